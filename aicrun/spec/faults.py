"""What a fault by the schema is in our words: the field, what it wants, what stands there, what to write.

It takes faults as data (path, keyword, value), whoever found them. It must not look for faults itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from aicrun.spec.endings import ending_help
from aicrun.spec.findings import Finding, Range, range_of
from aicrun.spec.grammar import Grammar, kinds_of, nearest
from aicrun.spec.measures import counted_cards, is_measure, measure_finding
from aicrun.spec.nodes import Node, Path, dotted
from aicrun.spec.validity import Schema, is_kind, strict_pattern
from aicrun.spec.values import as_yaml, kind_of, short
from aicrun.spec.wrong_type import type_finding

# How a number of cards is called elsewhere.
_COUNTS = frozenset(("gpus", "num_gpus", "n_gpus", "ngpus", "gpu_count", "cards", "num_cards", "accelerators"))
# The nearest name costs a millisecond; a file with more unknown keys than this is no spec.
_MOST_NEAREST = 50


@dataclass(frozen=True)
class Fault:
    """One fault by a schema: the keyword that failed at `path`, what it wanted, and the value it saw.

    `in_key` True: the value is a key of the mapping at `path`. `inner` are the faults of each alternative, told
    apart by `branch`.
    """

    path: Path
    keyword: str
    wanted: Any
    value: Any
    schema: Any
    in_key: bool = False
    branch: int = -1
    inner: tuple[Fault, ...] = ()


def findings_of(faults: Iterable[Fault], root: Node, grammar: Grammar) -> Iterator[Finding]:
    """The findings, in the order of the faults; one that says the same twice may come twice."""
    speaker = _Speaker(root, grammar)
    for fault in faults:
        yield from speaker.say(fault)


class _Speaker:
    """Says each fault; one method for each keyword."""

    def __init__(self, root: Node, grammar: Grammar) -> None:
        self.root = root
        self.grammar = grammar
        self.unknown = 0

    def say(self, fault: Fault) -> Iterator[Finding]:
        node = self.root.at(*fault.path) or self.root
        if fault.in_key:
            yield self._key(fault, node)
        elif node.value is None and fault.keyword in ("type", "anyOf", "const", "enum"):
            yield self._empty(fault, node)
        else:
            yield from _ROWS[fault.keyword](self, fault, node)

    def _field(self, fault: Fault) -> Schema:
        field = self.grammar.field(fault.path)
        return field if field is not None else dict(fault.schema)

    def _name(self, fault: Fault) -> str:
        return f'"{dotted(fault.path)}"'

    def _empty(self, fault: Fault, node: Node) -> Finding:
        field = self._field(fault)
        where = self._key_range(fault.path) or range_of(node)
        is_free_text = field.get("title") == "text" and len(fault.path) > 1
        helps = ('write "" for the empty text',) if is_free_text else ("remove the line, or give a value",)
        return Finding("AIC-E115", f"{self._name(fault)} has no value", where, fault.path, helps=helps)

    def _key_range(self, path: Path) -> Range | None:
        above = self.root.at(*path[:-1])
        key = above.keys.get(str(path[-1])) if above is not None and path else None
        return range_of(key) if key is not None else None

    def _key(self, fault: Fault, node: Node) -> Finding:
        key = str(fault.value)
        path = (*fault.path, key)
        noun = fault.schema.get("title", "a name")
        message = f'{self._name(fault)} has the key "{short(key)}", which is not {noun}'
        form = fault.schema.get("$comment", "")
        where = range_of(node.keys[key]) if key in node.keys else range_of(node)
        return Finding("AIC-E118", message, where, path, helps=(f"{noun}: {form}",))

    def _any_of(self, fault: Fault, node: Node) -> Iterator[Finding]:
        branches = self.grammar.branches(self._field(fault))
        fitting = [at for at, branch in enumerate(branches) if any(is_kind(k, fault.value) for k in kinds_of(branch))]
        if not fitting:
            yield self._type(fault, node)
            return
        for inner in fault.inner:
            if inner.branch == fitting[0]:
                yield from self.say(inner)

    def _one_of(self, fault: Fault, node: Node) -> Iterator[Finding]:
        if not isinstance(fault.value, dict):
            return  # no mapping at all, which is told as such
        keys = [branch["required"][0] for branch in fault.wanted]
        there = [key for key in keys if key in node.keys]
        words = ", ".join(keys[:-1]) + f" or {keys[-1]}"
        name = self._name(fault) if fault.path else "the file"
        if not there:
            where = self._key_range(fault.path) or self._first_line(node)
            yield Finding("AIC-E112", f"{name} needs {words}", where, fault.path, helps=(self._add(fault, keys[0]),))
            return
        first, second = (range_of(node.keys[key]) for key in there[:2])
        message = f'{name} takes only one of "{there[0]}" and "{there[1]}"'
        also = (first, "first here")
        yield Finding("AIC-E114", message, second, fault.path, "and here", helps=("keep one of the two",), also=also)

    def _required(self, fault: Fault, node: Node) -> Iterator[Finding]:
        for key in fault.wanted:
            if key not in fault.value:
                yield self._missing(fault, node, key)

    def _dependent(self, fault: Fault, node: Node) -> Iterator[Finding]:
        for key, needs in fault.wanted.items():
            for need in needs:
                if key in fault.value and need not in fault.value:
                    path = (*fault.path, key)
                    message = f'"{dotted(path)}" needs "{need}" beside it'
                    yield Finding("AIC-E112", message, range_of(node.keys[key]), path, helps=(f'add "{need}"',))

    def _missing(self, fault: Fault, node: Node, key: str) -> Finding:
        path = (*fault.path, key)
        where = self._key_range(fault.path) or self._first_line(node)
        return Finding("AIC-E112", f'"{dotted(path)}" is missing', where, path, helps=(self._add(fault, key),))

    def _add(self, fault: Fault, key: str) -> str:
        field = self.grammar.field((*fault.path, key)) or {}
        examples = field.get("examples", ["…"])
        return f"add {key}: {as_yaml(examples[0])}"

    def _first_line(self, node: Node) -> Range:
        return range_of(next(iter(node.keys.values()))) if node.keys else range_of(node)

    def _additional(self, fault: Fault, node: Node) -> Iterator[Finding]:
        known = fault.schema.get("properties", {})
        free = [strict_pattern(pattern) for pattern in fault.schema.get("patternProperties", {})]
        for key in fault.value:
            if key not in known and not any(pattern.search(key) for pattern in free):
                yield self._unknown(fault, node, key)

    def _unknown(self, fault: Fault, node: Node, key: str) -> Finding:
        path = (*fault.path, key)
        self.unknown += 1
        meant = self.grammar.meant(fault.path, key) if self.unknown <= _MOST_NEAREST else ""
        topic = ".".join(str(step) for step in fault.path if isinstance(step, str)) or self.grammar.name
        if self.grammar.name == "machines":
            topic = "machines"
        here = f"all keys here: aicrun explain {topic}"
        help_ = f'did you mean "{meant}"? {here}' if meant else here
        count = counted_cards(node.at(key)) if key.lower() in _COUNTS and self.grammar.name == "run" else ""
        if count and fault.path in ((), ("machine",)):
            help_ = f"cards are counted below machine: {count}"
        return Finding(
            "AIC-E110", f'unknown key "{short(dotted(path))}"', range_of(node.keys[key]), path, helps=(help_,)
        )

    def _type(self, fault: Fault, node: Node) -> Finding:
        field = self._field(fault)
        for branch in self.grammar.branches(field):
            if is_measure(branch) and is_kind("number", fault.value):
                return measure_finding(fault.path, {**field, **branch}, node)
        return type_finding(fault.path, self.grammar.noun(field), self._kinds(field), field, node)

    def _kinds(self, field: Schema) -> tuple[str, ...]:
        return tuple(kind for branch in self.grammar.branches(field) for kind in kinds_of(branch))

    def _types(self, fault: Fault, node: Node) -> Iterator[Finding]:
        yield self._type(fault, node)

    def _const(self, fault: Fault, node: Node) -> Iterator[Finding]:
        if fault.path == ("version",):
            message = f"version {short(node.text or kind_of(node.value))} of the file's grammar is not known here"
            yield Finding("AIC-E113", message, range_of(node), fault.path, helps=("write version: 1",))
            return
        message = f"{self._name(fault)} is {as_yaml(fault.wanted)} or absent"
        help_ = f"write {as_yaml(fault.wanted)}, or remove the line"
        yield Finding("AIC-E116", message, range_of(node), fault.path, helps=(help_,))

    def _enum(self, fault: Fault, node: Node) -> Iterator[Finding]:
        if node.text is None:
            yield type_finding(fault.path, "one of " + ", ".join(fault.wanted), ("string",), self._field(fault), node)
            return
        words = ", ".join(fault.wanted)
        message = f"{self._name(fault)} is one of {words}; {short(node.text) or 'empty text'} is none of them"
        near = nearest(node.text, tuple(fault.wanted))
        help_ = f"did you mean {near}?" if near else f"write {fault.wanted[0]}"
        yield Finding("AIC-E116", message, range_of(node), fault.path, helps=(help_,))

    def _bound(self, fault: Fault, node: Node) -> Iterator[Finding]:
        field = self._field(fault)
        if is_measure(field):
            yield measure_finding(fault.path, field, node)
            return
        least, most = field.get("minimum"), field.get("maximum")
        message = f"{self._name(fault)} is {least} to {most:,}, here it is {short(node.text or '')}"
        help_ = f"write {least if fault.keyword == 'minimum' else most}"
        yield Finding("AIC-E117", message, range_of(node), fault.path, helps=(help_,))

    def _example(self, field: Schema) -> str:
        return as_yaml(field.get("examples", ["…"])[0])

    def _pattern(self, fault: Fault, node: Node) -> Iterator[Finding]:
        field = {**fault.schema, **self._field(fault)}
        noun = fault.schema.get("title") or self.grammar.noun(field)
        if is_measure(fault.schema) or is_measure(field):
            yield measure_finding(fault.path, {**field, "title": noun}, node)
            return
        text = node.text or ""
        what = f'"{short(text)}"' if text else "empty text"
        message = f"{self._name(fault)} is {noun}, and {what} is none"
        form = ending_help(text) if noun == "an ending" else ""
        form = form or fault.schema.get("$comment", "")
        example = f"for instance {self._example(field)}" if field.get("examples") else ""
        helps = tuple(words for words in ("; ".join(word for word in (form, example) if word),) if words)
        yield Finding("AIC-E118", message, range_of(node), fault.path, helps=helps)

    def _too_short(self, fault: Fault, node: Node) -> Iterator[Finding]:
        message = f"{self._name(fault)} is empty text"
        helps = ("remove the line, or give a value",)
        yield Finding("AIC-E115", message, range_of(node), fault.path, helps=helps)

    def _too_few(self, fault: Fault, node: Node) -> Iterator[Finding]:
        message = f"{self._name(fault)} is {kind_of(node.value)} without entries"
        field = self._field(fault)
        helps = (f"remove the line, or write {self._example(field)}",)
        yield Finding("AIC-E119", message, range_of(node), fault.path, helps=helps)

    def _too_many(self, fault: Fault, node: Node) -> Iterator[Finding]:
        count = len(fault.value)
        message = f"{self._name(fault)} has {count:,} entries, {fault.wanted:,} at most"
        yield Finding("AIC-E119", message, range_of(node), fault.path, helps=("leave some out",))

    def _twice(self, fault: Fault, node: Node) -> Iterator[Finding]:
        seen: dict[str, Node] = {}
        for item in node.elements():
            text = item.text if item.text is not None else as_yaml(item.value)
            if text in seen:
                also = (range_of(seen[text]), "first here")
                message = f"{self._name(fault)} has {short(text)} twice"
                yield Finding(
                    "AIC-E119", message, range_of(item), fault.path, "again here", helps=("keep one",), also=also
                )
            seen.setdefault(text, item)


_ROWS: dict[str, Callable[[_Speaker, Fault, Node], Iterator[Finding]]] = {
    "anyOf": _Speaker._any_of,
    "oneOf": _Speaker._one_of,
    "required": _Speaker._required,
    "dependentRequired": _Speaker._dependent,
    "additionalProperties": _Speaker._additional,
    "type": _Speaker._types,
    "const": _Speaker._const,
    "enum": _Speaker._enum,
    "minimum": _Speaker._bound,
    "maximum": _Speaker._bound,
    "pattern": _Speaker._pattern,
    "minLength": _Speaker._too_short,
    "minItems": _Speaker._too_few,
    "minProperties": _Speaker._too_few,
    "maxItems": _Speaker._too_many,
    "maxProperties": _Speaker._too_many,
    "uniqueItems": _Speaker._twice,
}
