"""Rules of `setup`: which forms exclude each other, what needs what, and which files of this client must be there.

Each rule passes over fields of the wrong type, which the schema has told already. It must not ask a machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from aicrun.spec.findings import Finding, Range, range_of
from aicrun.spec.nodes import Node, Path, dotted
from aicrun.spec.values import short

# One version, or conditions as pip writes them (PEP 440), parted by commas.
_CONDITION = r"(?:===?|!=|~=|>=?|<=?) ?[0-9]+(?:\.[0-9]+)*(?:\.\*)?"
PYTHON_RANGE = re.compile(rf"[0-9]+(?:\.[0-9]+){{0,2}}|{_CONDITION}(?: ?, ?{_CONDITION})*")
# A lock of uv is read together with the project file beside it.
LOCK, PYPROJECT = "uv.lock", "pyproject.toml"
_FORMS = (("lock",), ("project",), ("venv",), ("requirements", "packages"))
# An environment that is used as it is has its own interpreter and packages; a lock names each build of a package;
# a folder of wheels is the only place that packages come from.
_APART = (
    ("venv", "python"),
    ("venv", "wheels"),
    ("venv", "index"),
    ("venv", "torch_backend"),
    ("lock", "torch_backend"),
    ("project", "torch_backend"),
    ("wheels", "index"),
    ("wheels", "torch_backend"),
)


def setup_findings(root: Node) -> Iterator[Finding]:
    """Every fault between the fields of `setup`."""
    setup = root.at("setup")
    if setup is None or not isinstance(setup.children, dict):
        return
    there = [key for key in setup.keys if not _says_nothing(setup, key)]
    groups = [next(key for key in form if key in there) for form in _FORMS if any(key in there for key in form)]
    if len(groups) > 1:
        yield exclusive(setup, ("setup",), groups[0], groups[1])
    for one, other in _APART:
        if one in there and other in there:
            yield exclusive(setup, ("setup",), one, other)
    yield from _needs(root, setup, there, groups)
    python = setup.at("python")
    is_text = python is not None and bool(python.text) and not isinstance(python.value, bool)
    if python is not None and is_text and not PYTHON_RANGE.fullmatch(python.text or ""):
        message = f'"setup.python" is a version or a range of versions, and "{short(python.text or "")}" is none'
        helps = ('write 3.12, or ">=3.10"',)
        yield Finding("AIC-E125", message, range_of(python), ("setup", "python"), helps=helps)


def exclusive(node: Node, path: Path, one: str, other: str) -> Finding:
    """The finding of two keys of `node` that exclude each other."""
    first, second = sorted((node.keys[one], node.keys[other]), key=lambda key: key.start.index)
    name = f'"{dotted(path)}"'
    message = f'{name} takes only one of "{first.text}" and "{second.text}"'
    also = (range_of(first), "first here")
    return Finding("AIC-E114", message, range_of(second), path, "and here", helps=("keep one of the two",), also=also)


def missing_files(root: Node, folder: str) -> Iterator[Finding]:
    """A finding for each file of this client that the spec in `folder` names and that is not there."""
    source = root.at("source", "path")
    top = folder
    if source is not None and source.text:
        top = os.path.join(folder, os.path.expanduser(source.text))
        if not os.path.isdir(top):
            what = "is not a folder" if os.path.exists(top) else "is not there"
            yield missing(range_of(source), ("source", "path"), source.text, what, top)
            return
    if root.at("source", "git") is not None:
        return
    for node, path, text in _named_files(root):
        file = os.path.join(top, text)
        if not text.startswith(("/", "~")) and not os.path.isfile(file):
            what = "is not a file" if os.path.exists(file) else "is not there"
            yield missing(range_of(node), path, text, what, file)


def _says_nothing(setup: Node, key: str) -> bool:
    node = setup.at(key)
    return node is not None and (node.value is False or (key == "torch_backend" and node.text == "none"))


def _needs(root: Node, setup: Node, there: list[str], groups: list[str]) -> Iterator[Finding]:
    for key in ("wheels", "index"):
        if key in there and not groups:
            message = f'"setup.{key}" is there, and nothing to install'
            help_ = "add requirements, packages, lock or project"
            yield Finding("AIC-E133", message, range_of(setup.keys[key]), ("setup", key), helps=(help_,))
    if "project" in there and root.at("source") is None:
        message = '"setup.project" installs the source, and there is none'
        where = range_of(setup.keys["project"])
        yield Finding("AIC-E133", message, where, ("setup", "project"), helps=("add source: {path: .}",))


def _named_files(root: Node) -> Iterator[tuple[Node, Path, str]]:
    """(where it stands, field, path below the source) of each file that the setup reads."""
    for key in ("requirements", "lock"):
        node = root.at("setup", key)
        if node is not None and node.text:
            yield node, ("setup", key), node.text
            if key == "lock":
                yield node, ("setup", key), os.path.join(os.path.dirname(node.text), PYPROJECT)
    project = root.at("setup", "project")
    if project is not None and project.value is True and root.at("source") is not None:
        yield project, ("setup", "project"), PYPROJECT
        yield project, ("setup", "project"), LOCK


def missing(where: Range, path: Path, text: str, what: str, looked: str) -> Finding:
    """The finding of a file of this client, `looked` for there, that a field names and that `what` (is not there)."""
    note = f"looked for {os.path.normpath(looked)}"
    reads = "names" if path[-1] in ("path", "requirements", "from") or text not in (LOCK, PYPROJECT) else "reads"
    message = f'"{dotted(path)}" {reads} {short(text)}, which {what}'
    help_ = "make it: uv lock" if os.path.basename(text) == LOCK else "correct the path, or make the file"
    return Finding("AIC-E160", message, where, path, notes=(note,), helps=(help_,))
