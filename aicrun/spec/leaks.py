"""Secrets that stand in a document: finds them, hides them from every excerpt, and says how to mark a false alarm.

Known shapes are refused everywhere; names that sound secret and random values can be listed under `x-not-secret`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from aicrun.spec.findings import Finding, Range, part_of, range_of
from aicrun.spec.nodes import Node, Path, Text, dotted
from aicrun.spec.secrets import Mask, flags_in, is_random, is_secret_by_name, shapes_in
from aicrun.spec.unsupported import meanwhile

MARK = "x-not-secret"
# All are hidden; a person who reads of twenty in one value need not read of more.
_MOST_OF_ONE = 20
_NOT_COPIED = "{file} is read by others; aicrun copies the value nowhere"
_LOST = "if the file was pushed anywhere, make a new token"


def leak_findings(root: Node, mask: Mask) -> Iterator[Finding]:
    """A finding for each secret; each value is hidden by `mask` from then on, so call it before excerpts are drawn."""
    harmless = _marked(root)
    raw = root.origin.raw
    suspicious = bool(shapes_in(raw))
    # Only an escape can make a token of what is none in the file's own text.
    escaped = "\\" in raw
    for path, node in root.scalars():
        text = node.text or ""
        if len(text) < 8 or (path and str(path[0]).startswith("x-") and not shapes_in(text)):
            continue
        shapes = shapes_in(text) if suspicious or (escaped and not node.plain) or node.origin is not root.origin else []
        if shapes:
            yield from _shapes(path, node, shapes, mask)
        elif _is_env(path):
            yield from _value(path, node, mask, harmless)
        if _is_command(path):
            yield from _flags(path, node, mask)
    if suspicious:
        yield from _outside_values(root.origin, mask)


def _outside_values(text: Text, mask: Mask) -> Iterator[Finding]:
    """Tokens in comments and keys, which are pushed with the file like all else."""
    found = [(value, prefix) for value, prefix in shapes_in(text.raw) if value.splitlines()[0] not in mask.values]
    for value, prefix in found:
        mask.hide(value, prefix)
    for value in itertools.islice(dict.fromkeys(value for value, _ in found), _MOST_OF_ONE):
        first_line = value.splitlines()[0]
        where = Range(text, text.place(text.raw.index(value)), len(first_line))
        message = "a comment or a key holds what looks like a secret"
        notes = (_NOT_COPIED.format(file=text.file.rpartition("/")[2]),)
        yield Finding("AIC-E140", message, where, notes=notes, helps=(f"remove it; {_LOST}",))


def _marked(root: Node) -> frozenset[str]:
    listed = root.at(MARK)
    return frozenset(node.text or "" for node in listed.elements()) if listed else frozenset()


def _is_env(path: Path) -> bool:
    return len(path) >= 2 and path[-2] == "env"


def _is_command(path: Path) -> bool:
    return path == ("command",) or path[:2] == ("setup", "run")


def _shapes(path: Path, node: Node, shapes: list[tuple[str, str]], mask: Mask) -> Iterator[Finding]:
    for value, prefix in shapes:
        mask.hide(value, prefix)
    for value in itertools.islice(dict.fromkeys(value for value, _ in shapes), _MOST_OF_ONE):
        if value.startswith("-----BEGIN"):
            for line in (node.text or "").splitlines():
                mask.hide(line)
        yield _finding("AIC-E140", path, node, value)


def _value(path: Path, node: Node, mask: Mask, harmless: frozenset[str]) -> Iterator[Finding]:
    name, value = str(path[-1]), node.text or ""
    if dotted(path) in harmless:
        return
    if is_secret_by_name(name, value):
        mask.hide(value)
        yield _finding("AIC-E140", path, node, value)
    elif is_random(value):
        mask.hide(value)
        message = f'"{dotted(path)}" holds a value as random as a key'
        helps = (_instead(path), f"if it is no secret, add {MARK}: [{dotted(path)}]")
        yield Finding("AIC-E141", message, range_of(node), path, notes=(_note(node),), helps=helps)


def _flags(path: Path, node: Node, mask: Mask) -> Iterator[Finding]:
    for flag, value in flags_in(node.text or ""):
        if value in mask.values:
            continue
        mask.hide(value)
        message = f"the command gives {flag} what looks like a secret"
        variable = flag.lstrip("-").replace("-", "_").upper()
        help_ = f'read it from a variable: {flag} "${variable}"'
        where = part_of(node, value)
        yield Finding("AIC-E140", message, where, path, notes=(_note(node),), helps=(f"{help_}; {_LOST}",))


def _finding(code: str, path: Path, node: Node, value: str) -> Finding:
    message = f'"{dotted(path)}" holds what looks like a secret'
    first_line = value.splitlines()[0]
    helps = (f"{_instead(path)}; {_LOST}",)
    return Finding(code, message, part_of(node, first_line), path, notes=(_note(node),), helps=helps)


def _note(node: Node) -> str:
    if node.origin.file == "--set":
        return "command lines are seen by others; aicrun copies the value nowhere"
    return _NOT_COPIED.format(file=node.origin.file.rpartition("/")[2])


def _instead(path: Path) -> str:
    until_secrets = meanwhile("secrets")
    if until_secrets:
        return f"remove it; until secrets are built, {until_secrets}"
    if _is_env(path) and len(path) == 2:
        return f'remove the line, write "secrets: [{path[-1]}]" and export it in your shell'
    return "remove it, and keep the value on the machine or in a secret"
