"""What a plan says of a source that is sent: files that are there by mistake, and files that are not there.

It must not refuse: what belongs to the code is its author's to say.
"""

from __future__ import annotations

from collections.abc import Iterator

from aicrun.plan import words
from aicrun.plan.model import Wanted

# Pushing more than this by accident (a data set in the tree) is worth a word.
LARGE_FILE_BYTES = 100 << 20
LARGE_TREE_BYTES, LARGE_TREE_FILES = 500 << 20, 50_000
_NAMED = 3


def source_warnings(wanted: Wanted) -> tuple[str, ...]:
    """One for each file, or for a tree, that is large enough to be there by mistake, and for what git has elsewhere."""
    return (*_large(wanted), *_absent(wanted))


def largest_words(largest: tuple[tuple[str, int], ...]) -> str:
    """The largest files with their sizes, largest first."""
    return ", ".join(f"{words.harmless(path)} {words.size(size)}" for path, size in largest)


def _large(wanted: Wanted) -> Iterator[str]:
    single = [(path, size) for path, size in wanted.largest if size >= LARGE_FILE_BYTES]
    for path, size in single:
        yield f"the source holds {words.harmless(path)}, {words.size(size)}: source.exclude leaves it out"
    source = wanted.source
    if source is None or source.git:
        return
    if source.bytes >= LARGE_TREE_BYTES or source.files >= LARGE_TREE_FILES:
        amount = f"{words.counted(source.files, 'file')}, {words.size(source.bytes)}"
        told = f"the source is {amount}; its largest: {largest_words(wanted.largest)}"
        yield f"{told}: data belongs into inputs, and source.exclude leaves out what is no code"


def _absent(wanted: Wanted) -> Iterator[str]:
    many = wanted.pointers
    if many:
        what = "a pointer of git-lfs without its contents" if len(many) == 1 else "pointers of git-lfs without contents"
        count = "1 file is" if len(many) == 1 else f"{words.count(len(many))} files are"
        yield f"{count} {what} ({_some(many)}) and would be sent as such: git lfs pull brings them"
    for path in wanted.submodules:
        shown = words.harmless(path)
        yield f"the submodule {shown} is not checked out here and cannot be sent: git submodule update --init {shown}"


def _some(paths: tuple[str, ...]) -> str:
    more = ", …" if len(paths) > _NAMED else ""
    return words.harmless(", ".join(paths[:_NAMED])) + more
