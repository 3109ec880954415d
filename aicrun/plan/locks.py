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
_DEPENDENCIES = re.compile(r"^dependencies = \[\n(.*?)^\]", re.MULTILINE | re.DOTALL)
_DEPENDENCY = re.compile(r"^ *\{ name = \"([^\"\n]*)\"", re.MULTILINE)
_WHEEL = re.compile(r"^ *\{ url = \"[^\"\n]*?([^\"/\n]+)\.whl(?:#[^\"\n]*)?\".*? size = (\d+)", re.MULTILINE)
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


def download_bytes(text: str, architecture: str) -> int:
    """The bytes of wheels that every build from the lock needs: of what the project depends on in all its forms.

    Extras and groups are left out, for each package its smallest wheel for Linux counts, and an installed package is
    larger than its wheel: what is installed is never less.
    """
    sizes: dict[str, int] = {}
    needs: dict[str, set[str]] = {}
    due: list[str] = []
    for name, kind, place, body in _bodies(text):
        wanted = _DEPENDENCIES.search(body)
        asks = set(_DEPENDENCY.findall(wanted.group(1)) if wanted else ())
        # Of a package in several builds (for a processor, for a card) one is installed: what all of them need is sure.
        needs[name] = needs[name] & asks if name in needs else asks
        fitting = [int(size) for file, size in _WHEEL.findall(body) if _is_for(file, architecture)]
        if fitting:
            sizes[name] = min([*fitting, *([sizes[name]] if name in sizes else [])])
        due += [name] if _is_root(kind, place) else []
    reached: set[str] = set()
    while due:
        name = due.pop()
        if name not in reached:
            reached.add(name)
            due += needs.get(name, ())
    return sum(sizes.get(name, 0) for name in reached)


def _is_for(wheel: str, architecture: str) -> bool:
    platform = wheel.rpartition("-")[2]
    return platform == "any" or ("linux" in platform and platform.endswith(architecture))


def _is_root(kind: str, place: str) -> bool:
    return kind in ("editable", "virtual", "directory") and place == "."


def _sources(text: str) -> list[tuple[str, str, str]]:
    """(name, kind of source, place) of each package."""
    return [found[:3] for found in _bodies(text)]


def _bodies(text: str) -> list[tuple[str, str, str, str]]:
    """As `_sources`, each with the lines of its block."""
    found = []
    for block in _PACKAGE.findall(text):
        name, source = _NAME.search(block), _SOURCE.search(block)
        if name and source:
            found.append((name.group(1), source.group(1), source.group(2), block))
    return found
