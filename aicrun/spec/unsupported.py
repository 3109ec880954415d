"""Fields of the grammar that this version refuses, as data: what is not built yet, and words that are reserved.

A capability that gets built loses its row here, and nothing else. No field may be accepted and left undone.
"""

from __future__ import annotations

from collections.abc import Iterator

from aicrun.spec.findings import Finding, Range, range_of
from aicrun.spec.nodes import Node, Path, dotted

# Stands for every key of a mapping whose keys are free.
ANY = "*"

# Field, the values that are supported (none: the key itself is not), what to do meanwhile.
NOT_YET: tuple[tuple[Path, tuple[str, ...], str], ...] = (
    (("notify",), (), "use aicrun wait"),
    (("params",), (), "use one --set for each run, with a name of its own"),
)
RESERVED = ("nodes", "share", "after")


def meanwhile(*path: str) -> str:
    """What to do until the field at `path`, or the whole one above it, is built; empty when it is supported.

    Advice asks here, so that no help leads into a refusal, and heals when a row goes.
    """
    return next((help_ for field, values, help_ in NOT_YET if not values and _is_below(path, field)), "")


def upload_example() -> str:
    """A target that advice may name: one that this version writes to."""
    return "s3://bucket/prefix/"


def unsupported_findings(root: Node) -> Iterator[Finding]:
    """A finding for each field that is there and is not supported, or is a reserved word."""
    for path, values, help_ in _each(root):
        node = root.at(*path)
        if node is None or node.text in values or (values and node.children is not None):
            continue
        what = f'"{dotted(path)}"' if not values else f'"{dotted(path)}: {node.text}"'
        where = range_of(node) if values else _key(root, path)
        yield Finding("AIC-E150", f"{what} is not supported yet", where, path, helps=(help_,))
    for word in RESERVED:
        if root.at(word) is not None:
            help_ = "remove it; keys of your own start with x-"
            yield Finding(
                "AIC-E151", f'"{word}" is a reserved word', range_of(root.keys[word]), (word,), helps=(help_,)
            )


def _is_below(path: tuple[str, ...], field: Path) -> bool:
    pairs = zip(path, field, strict=False)
    return len(path) >= len(field) and all(wanted in (step, ANY) for step, wanted in pairs)


def _each(root: Node) -> Iterator[tuple[Path, tuple[str, ...], str]]:
    """The rows of `NOT_YET`, one for each key that `ANY` stands for."""
    for path, values, help_ in NOT_YET:
        if ANY not in path:
            yield path, values, help_
            continue
        place = path.index(ANY)
        above = root.at(*path[:place])
        for key in above.keys if above is not None else ():
            yield (*path[:place], key, *path[place + 1 :]), values, help_


def _key(root: Node, path: Path) -> Range:
    above = root.at(*path[:-1]) or root
    return range_of(above.keys[str(path[-1])])
