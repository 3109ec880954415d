"""Builds the tree of nodes from the events of a YAML parser, without recursion and within limits.

It must not import YAML: `source.py` hands the events in. Duplicate keys, merge keys, tags and aliases that lead nowhere
are collected as faults; what would grow beyond the limits ends the reading.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aicrun.spec.findings import Finding, Range, range_of
from aicrun.spec.nodes import Node, Text

# Far above what people write and far below what costs time.
MOST_NODES = 10_000
MOST_DEPTH = 32

REST = "the rest of the file could not be checked"


class Stopped(Exception):
    """Reading cannot go on; the finding says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.code)
        self.finding = finding


class Composer:
    """Takes events one by one; afterwards `roots` has one node for each document, `findings` the faults."""

    def __init__(self, text: Text, resolve: Callable[[str], Any]) -> None:
        self.text = text
        self.resolve = resolve
        self.roots: list[Node] = []
        self.findings: list[Finding] = []
        self._anchors: dict[str, Node] = {}
        self._open_nodes: list[Node] = []
        self._inside: list[list[Node]] = []
        self._count = 0

    def handlers(self) -> dict[str, Callable[[Any], None]]:
        """What takes which event, by the name of its class; other events mean nothing here."""
        return {
            "ScalarEvent": self._scalar,
            "MappingStartEvent": self._open,
            "SequenceStartEvent": self._open,
            "MappingEndEvent": self._close_mapping,
            "SequenceEndEvent": self._close_list,
            "AliasEvent": self._alias,
        }

    def _scalar(self, event: Any) -> None:
        text = event.value
        plain = not event.style
        node = Node(self.text, event.start_mark, event.end_mark, self.resolve(text) if plain else text, text)
        node.plain = plain
        if event.tag is not None:
            self._tagged(event)
        if not (text.isascii() and text.isprintable()):
            self._check_characters(node, text)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        self._counted(1, node)
        self._place(node)

    def _open(self, event: Any) -> None:
        node = Node(self.text, event.start_mark, event.end_mark)
        node.weight = 0
        if event.tag is not None:
            self._tagged(event)
        if len(self._open_nodes) >= MOST_DEPTH:
            raise Stopped(too_large(range_of(node), f"more than {MOST_DEPTH} levels deep"))
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        self._counted(1, node)
        self._open_nodes.append(node)
        self._inside.append([])

    def _close_list(self, event: Any) -> None:
        node, inside = self._open_nodes.pop(), self._inside.pop()
        node.children = inside
        node.value = [child.value for child in inside]
        self._close(node, event, inside)

    def _close_mapping(self, event: Any) -> None:
        node, inside = self._open_nodes.pop(), self._inside.pop()
        children: dict[str, Node] = {}
        keys: dict[str, Node] = {}
        node.keys = keys
        for index in range(0, len(inside), 2):
            key = inside[index]
            name = key.text
            if name is None or (key.plain and key.value is None) or name == "<<":
                self.findings.append(_bad_key(key))
            elif name in children:
                self.findings.append(_twice(name, keys[name], key))
            else:
                children[name] = inside[index + 1]
                keys[name] = key
        node.children = children
        node.value = {name: child.value for name, child in children.items()}
        self._close(node, event, inside)

    def _close(self, node: Node, event: Any, inside: list[Node]) -> None:
        node.end = event.end_mark
        node.weight = 1 + sum(child.weight for child in inside)
        node.height = 1 + max((child.height for child in inside), default=0)
        self._place(node)

    def _alias(self, event: Any) -> None:
        where = Range(self.text, event.start_mark, len(event.anchor) + 1)
        node = self._anchors.get(event.anchor)
        if node is None or node.weight == 0:
            self.findings.append(_bad_alias(event.anchor, where, recursive=node is not None))
            node = Node(self.text, event.start_mark, event.end_mark, "", "")
        if len(self._open_nodes) + node.height > MOST_DEPTH:
            raise Stopped(too_large(where, f"more than {MOST_DEPTH} levels deep, aliases followed"))
        self._counted(node.weight, node)
        self._place(node)

    def _counted(self, nodes: int, node: Node) -> None:
        self._count += nodes
        if self._count > MOST_NODES:
            raise Stopped(too_large(range_of(node), f"more than {MOST_NODES:,} values, aliases followed"))

    def _place(self, node: Node) -> None:
        (self._inside[-1] if self._inside else self.roots).append(node)

    def _tagged(self, event: Any) -> None:
        where = Range(self.text, event.start_mark)
        words = self.text.raw[event.start_mark.index : event.end_mark.index].split()
        tag = next((word for word in words if word.startswith("!")), "!")
        at = self.text.raw.find(tag, event.start_mark.index)
        where = Range(self.text, self.text.place(max(at, event.start_mark.index)), len(tag))
        helps = ('remove it; text that looks like a number goes into quotes: "1"',)
        self.findings.append(Finding("AIC-E105", f"the tag {tag} is not used here", where, helps=helps))

    def _check_characters(self, node: Node, text: str) -> None:
        bad = next((char for char in text if char == "\0" or "\ud800" <= char <= "\udfff"), "")
        if bad:
            message = f"the text holds the character U+{ord(bad):04X}, which no program can be given"
            self.findings.append(Finding("AIC-E109", message, range_of(node), helps=("remove the escape",)))


def too_large(where: Range, what: str) -> Finding:
    """The fault of a text that is beyond a limit; reading ends there."""
    return Finding("AIC-E106", f"this is too large for a spec: {what}", where, notes=(REST,), alone=True)


def _bad_key(key: Node) -> Finding:
    if key.text == "<<":
        helps = ("write the keys out; a whole value can be shared: env: *name, with x-… as the place of the anchor",)
        return Finding("AIC-E104", "merge keys << are not supported", range_of(key), helps=helps)
    what = "nothing" if key.text is not None else "a list" if isinstance(key.value, list) else "a mapping"
    helps = ("a key is a word",)
    return Finding("AIC-E108", f"a key is text, here it is {what}", range_of(key), helps=helps)


def _twice(name: str, first: Node, again: Node) -> Finding:
    helps = ("keep one of the two; YAML would silently use the second",)
    also = (range_of(first), "first here")
    return Finding(
        "AIC-E102", f'key "{name}" stands twice', range_of(again), label="again here", helps=helps, also=also
    )


def _bad_alias(anchor: str, where: Range, *, recursive: bool) -> Finding:
    if recursive:
        message = f"*{anchor} leads to itself: it stands inside &{anchor}"
        return Finding("AIC-E107", message, where, helps=("a value cannot contain itself; write it out",))
    message = f"*{anchor} has no anchor &{anchor} before it"
    return Finding("AIC-E107", message, where, helps=(f'set the anchor first, or quote the text: "*{anchor}"',))
