"""What a plan reads out of the text of a uv.lock: who it is for, how much it holds, and what it cannot install there.

It must not resolve or check anything: uv does. The text is uv's own writing, one `source = { kind = "…" }` a package.
"""

from __future__ import annotations

import re

# The two texts that uv reads together.
LOCK, PYPROJECT = "uv.lock", "pyproject.toml"
_VERSION = re.compile(r"^version = \d+\s*$", re.MULTILINE)
_REQUIRES = re.compile(r"^requires-python = \"([^\"\n]*)\"", re.MULTILINE)
_PACKAGE = re.compile(r"^\[\[package\]\]\s*\n((?:(?!\[).*(?:\n|\Z))*)", re.MULTILINE)
_NAME = re.compile(r"^name = \"([^\"\n]*)\"", re.MULTILINE)
_SOURCE = re.compile(r"^source = \{ (\w+) = \"([^\"\n]*)\"", re.MULTILINE)
_CONDITION = r"(?:===?|!=|~=|>=?|<=?) ?[0-9]+(?:\.[0-9]+)*(?:\.\*)?"
_RANGE = re.compile(rf"{_CONDITION}(?: ?, ?{_CONDITION})*")


def is_lock(text: str) -> bool:
    """Whether `text` looks like a lock that uv wrote."""
    return bool(_VERSION.search(text[:4096]) and _REQUIRES.search(text[:4096]))


def requires_python(text: str) -> str:
    """The range of Pythons that the lock was made for; empty when it says none that a plan can compare."""
    found = _REQUIRES.search(text[:4096])
    return found.group(1) if found and _RANGE.fullmatch(found.group(1)) else ""


def packages(text: str) -> int:
    """How many packages stand in the lock, without the project itself."""
    return len([1 for _, kind, place in _sources(text) if not _is_root(kind, place)])


def local_sources(text: str) -> tuple[str, ...]:
    """`name (place)` of each package that lies on the disk where the lock was made, the project itself left out."""
    return tuple(
        f"{name} ({place})"
        for name, kind, place in _sources(text)
        if (kind in ("editable", "virtual", "directory", "path") and not _is_root(kind, place))
        or (kind == "registry" and "://" not in place)
        or place.startswith("file:")
    )


def outside(text: str) -> tuple[str, ...]:
    """As `local_sources`, those only that lie outside the folder of the lock."""
    return tuple(found for found in local_sources(text) if re.search(r" \((\.\.(/|\)$)|/|file:)", found))


def unlike_wheels(text: str) -> tuple[str, ...]:
    """As `local_sources`, and those that are fetched from git or an address: none of them comes out of a folder."""
    fetched = tuple(f"{name} ({place})" for name, kind, place in _sources(text) if kind in ("git", "url"))
    return local_sources(text) + fetched


def _is_root(kind: str, place: str) -> bool:
    return kind in ("editable", "virtual", "directory") and place == "."


def _sources(text: str) -> list[tuple[str, str, str]]:
    """(name, kind of source, place) of each package."""
    found = []
    for block in _PACKAGE.findall(text):
        name, source = _NAME.search(block), _SOURCE.search(block)
        if name and source:
            found.append((name.group(1), source.group(1), source.group(2)))
    return found
