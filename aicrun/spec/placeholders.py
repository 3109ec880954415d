"""Our placeholders `${word.word}` in a spec: which are known, where they may stand, which values are safe. Pure.

Everything else with a `$` belongs to the shell. It fills in only what a spec itself knows: the run's name.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from aicrun.spec.findings import Finding, part_of
from aicrun.spec.grammar import nearest
from aicrun.spec.nodes import Node, Path, dotted
from aicrun.spec.values import short

FORM = re.compile(r"(\$?)\$\{([A-Za-z]\w*(?:\.\w+)+)\}")
# The same as the wire's SAFE_VALUE, which this room may not import; a test holds them equal.
SAFE_VALUE = re.compile(r"[A-Za-z0-9_@%+=:,./-]*\Z")
KNOWN = (
    "run.name",
    "run.id",
    "run.dir",
    "machine.name",
    "machine.data",
    "machine.cache",
    "gpu.count",
    "resume.checkpoint",
)
# Fields whose text is filled in; an index or a free name is `*`, the last word stands for all below it.
_FILLED = (
    ("command",),
    ("env",),
    ("workspace",),
    ("cwd",),
    ("checkpoints", "path"),
    ("checkpoints", "upload", "to"),
    ("machine", "disk", "path"),
    ("setup", "run"),
    ("setup", "venv"),
    ("setup", "wheels"),
    ("inputs",),
    ("resume", "args"),
    ("notify", "command"),
)
# Places that a machine is asked about before there is a run.
_OF_THE_MACHINE = (("setup", "venv"), ("setup", "wheels"))
_KNOWN_BEFORE = ("run.name", "machine.")
_START = "resume.checkpoint"
_START_HELP = "resume.args can hold it, and the command finds it as $AICRUN_RESUME_FROM"
# Text for people and patterns of another language: a `${…}` in them is nobody's placeholder.
_FREE = ("notes", "description", "progress", "params", "x-")


def filled(text: str, name: str) -> str:
    """`text` with `${run.name}` filled in; other placeholders and `$${…}` are left for the plan."""
    if "${run.name}" not in text:
        return text
    return FORM.sub(lambda found: name if not found[1] and found[2] == "run.name" else found[0], text)


def placeholder_findings(root: Node) -> Iterator[Finding]:
    """Unknown placeholders, known ones where none is filled in, and unsafe values inside a text command."""
    params = _params(root)
    known = (*KNOWN, *(f"params.{name}" for name in params))
    for key, node in root.items():
        if key.startswith(_FREE):
            continue
        for path, scalar in node.scalars((key,)):
            if scalar.text and "${" in scalar.text:
                yield from _in_text(path, scalar, known)
                if _is_shell_text(path):
                    yield from _unsafe(path, scalar, params)


def _in_text(path: Path, node: Node, known: tuple[str, ...]) -> Iterator[Finding]:
    text = node.text or ""
    # Past the first hundred of one text nobody reads on, and each is searched for in the source.
    for found in itertools.islice(FORM.finditer(text), 100):
        if found[1]:
            continue
        sign = f"${{{found[2]}}}"
        where = part_of(node, sign, text.count(sign, 0, found.start(2) - 2))
        if found[2] not in known:
            near = nearest(found[2], known)
            start = f"did you mean ${{{near}}}? for" if near else "for"
            help_ = f"{start} the text itself write ${sign}"
            yield Finding("AIC-E130", f"unknown placeholder {short(sign)}", where, path, helps=(help_,))
        elif not _is_filled(path, found[2]):
            message = f'the placeholder {sign} is not filled in "{dotted(path)}"'
            help_ = _START_HELP if found[2] == _START else "write the value itself"
            yield Finding("AIC-E131", message, where, path, helps=(help_,))


def _is_filled(path: Path, name: str) -> bool:
    if name == _START:
        # Known on the machine only, when the command is about to begin.
        return path == ("command",) or path[:2] == ("resume", "args")
    if path in _OF_THE_MACHINE:
        return name.startswith(_KNOWN_BEFORE)
    if path[0] == "inputs" and path[-1] != "path":
        # What is brought is one thing for all machines and runs.
        return name == "run.name" or name.startswith("params.")
    return any(path[: len(field)] == field for field in _FILLED)


def _is_shell_text(path: Path) -> bool:
    return path == ("command",) or path[:2] == ("setup", "run")


def _unsafe(path: Path, node: Node, params: dict[str, list[str]]) -> Iterator[Finding]:
    text = node.text or ""
    for name, values in params.items():
        sign = f"${{params.{name}}}"
        bad = next((value for value in values if not SAFE_VALUE.match(value)), None)
        if bad is None or not any(found[2] == f"params.{name}" and not found[1] for found in FORM.finditer(text)):
            continue
        message = f'the value "{short(bad)}" of {sign} is not safe inside a text command'
        help_ = f'use "$AICRUN_PARAM_{name.upper()}", which the shell quotes'
        yield Finding("AIC-E132", message, part_of(node, sign), path, helps=(help_,))


def _params(root: Node) -> dict[str, list[str]]:
    """The values of each parameter, as text; empty when there are none or they are malformed."""
    found: dict[str, list[str]] = {}
    params = root.at("params")
    if params is None:
        return found
    for form in ("product", "zip"):
        for name, values in (params.at(form) or params).items():
            if isinstance(values.children, list):
                found.setdefault(name, []).extend(value.text or "" for value in values.elements())
    rows = params.at("list")
    for row in rows.elements() if rows else ():
        for name, value in row.items():
            found.setdefault(name, []).append(value.text or "")
    return found
