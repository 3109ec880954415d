"""What git knows of a source and this client has not: files whose contents git-lfs keeps, submodules not checked out.

They would be missed over there, hours later, as a file of three lines or an empty folder. It must not fetch anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from aicrun.lifecycle.listing import git_says, is_wanted
from aicrun.spec.model import SourceSpec

POINTER = b"version https://git-lfs.github.com/spec/v1\n"
# The format has no upper bound; those that git-lfs writes have about 130 bytes.
_POINTER_BYTES = range(len(POINTER), 1025)


def pointers(root: str, sizes: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """Those of the (path, bytes) that are pointers of git-lfs; nothing is read where no attribute names git-lfs."""
    listed = tuple(sizes)
    folders = {path for path, _ in listed if os.path.basename(path) == ".gitattributes"}
    if not any(_names_lfs(place) for place in (*(os.path.join(root, path) for path in folders), *_above(root))):
        return ()
    return tuple(path for path, size in listed if size in _POINTER_BYTES and _begins(os.path.join(root, path), POINTER))


def submodules(source: SourceSpec) -> tuple[str, ...]:
    """Submodules below the source, as far as it wants them, in whose place is an empty folder, or none."""
    root = source.path
    if not any(os.path.exists(os.path.join(folder, ".gitmodules")) for folder in _folders(root)):
        return ()
    said = git_says(root, "ls-files", "--stage", "-z", "--", ".")
    entries = said.split(b"\0") if isinstance(said, bytes) else []
    paths = [os.fsdecode(entry.partition(b"\t")[2]) for entry in entries if entry.startswith(b"160000 ")]
    return tuple(
        path for path in paths if is_wanted(path, source) and not os.path.exists(os.path.join(root, path, ".git"))
    )


def _folders(root: str) -> Iterator[str]:
    """The folder and those above it, up to the top of its repository; none outside one."""
    here, found = os.path.realpath(root), []
    while True:
        found.append(here)
        if os.path.exists(os.path.join(here, ".git")):
            return iter(found)
        here, below = os.path.dirname(here), here
        if here == below:
            return iter(())


def _above(root: str) -> Iterator[str]:
    return (os.path.join(folder, ".gitattributes") for folder in _folders(root))


def _names_lfs(place: str) -> bool:
    try:
        with open(place, "rb") as stream:
            return b"filter=lfs" in stream.read(1 << 20)
    except OSError:
        return False


def _begins(place: str, head: bytes) -> bool:
    try:
        with open(place, "rb") as stream:
            return stream.read(len(head)) == head
    except OSError:
        return False
