"""Which faults a document has by its schema: the only door to jsonschema, whose words never reach people.

A valid document is told by our own compiled check, so that jsonschema is not even imported; only a document with
faults is read again, slowly and completely. It must not know any rule that spans several fields (see `rules.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

from aicrun.spec.faults import Fault, findings_of
from aicrun.spec.findings import Finding, Range
from aicrun.spec.grammar import grammar, schema_text
from aicrun.spec.nodes import Node
from aicrun.spec.source import Reading
from aicrun.spec.validity import Check, all_differ, compiled, strict_pattern
from aicrun.spec.values import kind_of

__all__ = ["is_valid", "schema_faults", "schema_findings", "schema_text"]

_FIRST = {"run": "version: 1, name: sft-run, command: python train.py", "machines": "version: 1, machines: [...]"}


def schema_findings(reading: Reading, name: str) -> list[Finding]:
    """Every fault of the document by the schema `name` (`run`, `machines`), in our words; empty when it is valid."""
    root = reading.root
    if root is None or not isinstance(root.value, dict):
        return [_no_mapping(reading, name)]
    if is_valid(root.value, name):
        return []
    # A broken alias or tag has no value of its own, so what the schema says about it would only confuse.
    told = {(finding.where.text.file, finding.where.start.index) for finding in reading.findings}
    found = findings_of(schema_faults(root.value, name), root, grammar(name))
    return [one for one in found if (one.where.text.file, one.where.start.index) not in told]


def is_valid(value: Any, name: str) -> bool:
    """True when plain data is valid by the schema `name`; agrees with jsonschema."""
    return _quick(name)(value)


def schema_faults(value: Any, name: str) -> Iterator[Fault]:
    """The faults that jsonschema finds in plain data, as data."""
    return _faults(_validator(name).iter_errors(value))


@functools.cache
def _quick(name: str) -> Check:
    return compiled(grammar(name).schema)


@functools.cache
def _validator(name: str) -> Any:
    import jsonschema  # a tenth of a second that only a document with faults is worth

    def pattern(_validator: Any, wanted: str, value: Any, _schema: Any) -> Iterator[Any]:
        if isinstance(value, str) and not strict_pattern(wanted).search(value):
            yield jsonschema.ValidationError("")

    def unique_items(_validator: Any, _wanted: Any, value: Any, _schema: Any) -> Iterator[Any]:
        if isinstance(value, list) and not all_differ(value):
            yield jsonschema.ValidationError("")

    # Python's `$` lets a line break follow, and the library's own comparison of items is quadratic.
    own = {"pattern": pattern, "uniqueItems": unique_items}
    extend: Any = jsonschema.validators.extend
    kind = extend(jsonschema.Draft202012Validator, own)
    return kind(grammar(name).schema)


def _faults(errors: Iterable[Any]) -> Iterator[Fault]:
    for error in errors:
        steps = list(error.absolute_schema_path)
        yield Fault(
            path=tuple(error.absolute_path),
            keyword=error.validator,
            wanted=error.validator_value,
            value=error.instance,
            schema=error.schema,
            in_key="propertyNames" in steps[-2:],
            branch=_branch(error),
            inner=tuple(_faults(error.context)),
        )


def _branch(error: Any) -> int:
    """Which alternative of the fault above this one belongs to; -1 where it belongs to none."""
    first = error.relative_schema_path[0] if error.parent is not None and error.relative_schema_path else -1
    return first if isinstance(first, int) else -1


def _no_mapping(reading: Reading, name: str) -> Finding:
    root = reading.root
    file = f"a {name}.yaml"
    text = reading.text
    helps = (f"the smallest one: {_FIRST[name]}",)
    if root is None:
        where = Range(text, text.place(0), 0)
        return Finding("AIC-E111", "the file is empty", where, notes=(f"{file} is a mapping of keys",), helps=helps)
    what = kind_of(root.value)
    message = f"{file} is a mapping of keys, here it is {what}"
    return Finding("AIC-E111", message, _whole(root), helps=helps)


def _whole(root: Node) -> Range:
    line = root.origin.lines[root.start.line]
    return Range(root.origin, root.start, max(1, len(line.rstrip()) - root.start.column))
