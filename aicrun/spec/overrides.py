"""`--set a.b=c`: puts a value into the tree of a spec before it is checked, typed by the schema.

What it puts in has its place in the argument itself, so that a fault is shown there (file `--set`). It must not check:
the checks that follow do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aicrun.spec.findings import Finding, Range
from aicrun.spec.grammar import Grammar
from aicrun.spec.nodes import Node, Path, Place, Text, dotted
from aicrun.spec.scalars import resolved
from aicrun.spec.sizes import cards
from aicrun.spec.source import read_text
from aicrun.spec.validity import is_kind
from aicrun.spec.values import kind_of, short

FILE = "--set"


@dataclass(frozen=True)
class Overridden:
    """The tree with all overrides in it, and the faults of the arguments themselves."""

    root: Node
    findings: tuple[Finding, ...]


def overridden(root: Node, overrides: tuple[str, ...], grammar: Grammar) -> Overridden:
    """`root` with each `a.b=c` in its place, later ones over earlier ones; `root` itself is left as it is."""
    text = Text(FILE, "\n".join(overrides))
    findings: list[Finding] = []
    index = 0
    for argument in overrides:
        setter = _Setter(text, index, argument, grammar)
        root = setter.applied(root)
        findings += setter.findings
        index += len(argument) + 1
    return Overridden(root, tuple(findings))


class _Setter:
    """One argument; `start` is where it begins in the text of all arguments."""

    def __init__(self, text: Text, start: int, argument: str, grammar: Grammar) -> None:
        self.text = text
        self.start = start
        self.argument = argument
        self.grammar = grammar
        self.findings: list[Finding] = []
        words, self.equals, self.value = argument.partition("=")
        self.steps = tuple(words.split("."))

    def applied(self, root: Node) -> Node:
        if not self.equals or not all(self.steps) or any(step != step.strip() for step in self.steps):
            self._wrong(
                f'--set takes key.path=value, here it is "{short(self.argument)}"',
                "for instance limits.max_duration=2h",
            )
            return root
        changed = self._put(root, 0)
        return root if self.findings else changed

    def _put(self, node: Node | None, depth: int) -> Node:
        """A copy of `node` (None: nothing is there) with the value at the rest of the path."""
        if depth == len(self.steps):
            return self._valued()
        if node is not None and node.children is None and self.steps[:depth] == ("machine", "gpu"):
            node = self._expanded(node)
        if node is not None and not isinstance(node.children, dict):
            above = dotted(self.steps[:depth])
            self._wrong(
                f'"{dotted(self.steps)}" cannot be set: "{above}" is {kind_of(node.value)}', f"set {above} as a whole"
            )
            return node
        copy = Node(self.text, self._key_mark(depth), self._end(), {}, None)
        children: dict[str, Node] = {}
        copy.keys = {}
        if node is not None:
            copy = Node(node.origin, node.start, node.end, {}, None)
            children = dict(node.items())
            copy.keys = dict(node.keys)
        step = self.steps[depth]
        children[step] = self._put(children.get(step), depth + 1)
        copy.keys[step] = self._key(depth)
        copy.children = children
        copy.value = {key: child.value for key, child in children.items()}
        return copy

    def _expanded(self, node: Node) -> Node:
        """The short form of `gpu` as a mapping, so that a key below it can be set."""
        short_form = cards(node.text or "")
        if short_form is None:
            return node
        count, size = short_form
        mapping = Node(node.origin, node.start, node.end)
        children = {"vram": _like(node, size, size)}
        if count > 1:
            children["count"] = _like(node, count, str(count))
        mapping.children = children
        mapping.keys = dict.fromkeys(children, node)
        return mapping

    def _valued(self) -> Node:
        path: Path = self.steps
        if self.value[:1] in ("[", "{") and (self.grammar.admits(path, "array") or self.grammar.admits(path, "object")):
            reading = read_text(Text(FILE, self.value))
            self.findings += reading.findings
            if reading.root is not None:
                return reading.root
        node = Node(
            self.text, self._mark(len(self.argument) - len(self.value)), self._end(), self._typed(path), self.value
        )
        node.plain = True
        return node

    def _typed(self, path: Path) -> Any:
        """The value as the schema wants it: text where the field takes text and not what the characters look like."""
        value = resolved(self.value)
        if not self.grammar.admits(path, "string"):
            return value if self.value else ""
        kinds = [kind for kind in ("integer", "number", "boolean") if self.grammar.admits(path, kind)]
        return value if any(is_kind(kind, value) for kind in kinds) else self.value

    def _key(self, depth: int) -> Node:
        begin = len(".".join(self.steps[:depth])) + (1 if depth else 0)
        word = self.steps[depth]
        return Node(self.text, self._mark(begin), self._mark(begin + len(word)), word, word)

    def _key_mark(self, depth: int) -> Place:
        return self._mark(len(".".join(self.steps[:depth])) + (1 if depth else 0))

    def _mark(self, offset: int) -> Place:
        return self.text.place(self.start + offset)

    def _end(self) -> Place:
        return self._mark(len(self.argument))

    def _wrong(self, message: str, help_: str) -> None:
        where = Range(self.text, self._mark(0), max(1, len(self.argument.split("\n")[0])))
        self.findings.append(Finding("AIC-E170", message, where, helps=(help_,)))


def _like(node: Node, value: Any, text: str) -> Node:
    made = Node(node.origin, node.start, node.end, value, text)
    made.plain = True
    return made
