"""The tree that a YAML text becomes: values with the place and the source text of each, and paths through it.

It must not know YAML's grammar (see `source.py`) nor what the keys mean.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

Path = tuple[str | int, ...]

# What YAML readers count as the end of a line (YAML 1.1, section 5.4).
_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)+")


class Mark(Protocol):
    """A place in a text, as the YAML reader gives it: 0-based line, column and index, in characters."""

    @property
    def line(self) -> int: ...  # noqa: D102  # named by the class
    @property
    def column(self) -> int: ...  # noqa: D102  # named by the class
    @property
    def index(self) -> int: ...  # noqa: D102  # named by the class


@dataclass(frozen=True)
class Place:
    """A place in a text that no reader gave: 0-based line, column and index, in characters."""

    line: int
    column: int
    index: int


class Text:
    """A text with its file's name as people typed it, and its lines."""

    def __init__(self, file: str, raw: str) -> None:
        self.file = file
        self.raw = raw

    @cached_property
    def starts(self) -> list[int]:
        """The index of each line's first character."""
        return [0, *(end.end() for end in _LINE_END.finditer(self.raw))]

    @cached_property
    def lines(self) -> list[str]:
        """The lines without their ends; at least one."""
        return _LINE_END.split(self.raw)

    def place(self, index: int) -> Place:
        """The place of the character at `index`."""
        line = bisect.bisect_right(self.starts, index) - 1
        return Place(line, index - self.starts[line], index)

    def end_of(self, line: int) -> Place:
        """The place behind the last character of `line`."""
        return Place(line, len(self.lines[line]), self.starts[line] + len(self.lines[line]))


# Shared by all that is no mapping, so it is never written to: nine nodes of ten are scalars.
_NO_KEYS: dict[str, Node] = {}


class Node:
    """A value with its place. `value` is plain data (dict, list, text, number, boolean, None).

    `text` is the source text of a scalar, None for lists and mappings; `plain` is True for an unquoted scalar.
    `children` are the nodes below: a dict by key's text, or a list; `keys` the nodes of a mapping's keys.
    `weight` counts the node and all below it, aliases followed; 0 while it is still being read.
    """

    __slots__ = ("children", "end", "height", "keys", "origin", "plain", "start", "text", "value", "weight")

    def __init__(self, origin: Text, start: Mark, end: Mark, value: Any = None, text: str | None = None) -> None:
        self.origin = origin
        self.start = start
        self.end = end
        self.value = value
        self.text = text
        self.plain = False
        self.children: dict[str, Node] | list[Node] | None = None
        self.keys = _NO_KEYS
        self.weight = 1
        self.height = 0

    def child(self, step: str | int) -> Node | None:
        """The node one step below, or None."""
        children = self.children
        if isinstance(children, dict):
            return children.get(step) if isinstance(step, str) else None
        if isinstance(children, list) and isinstance(step, int) and 0 <= step < len(children):
            return children[step]
        return None

    def at(self, *path: str | int) -> Node | None:
        """The node at `path` below this one, or None."""
        node: Node | None = self
        for step in path:
            if node is None:
                return None
            node = node.child(step)
        return node

    def items(self) -> Iterator[tuple[str, Node]]:
        """Key and node of each entry of a mapping; nothing for anything else."""
        if isinstance(self.children, dict):
            yield from self.children.items()

    def elements(self) -> Iterator[Node]:
        """The nodes of a list; nothing for anything else."""
        if isinstance(self.children, list):
            yield from self.children

    def scalars(self, path: Path = ()) -> Iterator[tuple[Path, Node]]:
        """Every scalar at or below this node, with its path."""
        if self.children is None:
            yield path, self
        elif isinstance(self.children, dict):
            for key, child in self.children.items():
                yield from child.scalars((*path, key))
        else:
            for index, child in enumerate(self.children):
                yield from child.scalars((*path, index))

    def first(self) -> Mark:
        """Where the value itself begins, behind an anchor or tag."""
        found = _PROPERTIES.match(self.origin.raw, self.start.index, self.end.index)
        return self.origin.place(found.end()) if found else self.start


def dotted(path: Path) -> str:
    """The path as people read it: `machine.gpu`, `setup.run[0]`."""
    words = ""
    for step in path:
        words += f"[{step}]" if isinstance(step, int) else f".{step}" if words else step
    return words


def written(node: Node) -> Any:
    """The node as it was typed: scalars as their source text, mappings and lists as such."""
    if node.children is None:
        return node.text
    if isinstance(node.children, dict):
        return {key: written(child) for key, child in node.children.items()}
    return [written(child) for child in node.children]


def texts(node: Node | None) -> Mapping[str, str]:
    """A mapping's scalars as text by key; empty when there is no such mapping."""
    return {key: child.text or "" for key, child in node.items()} if node else {}
