"""A JSON Schema turned into one function that says valid or not, for the good case that nearly every file is.

It must agree with jsonschema on every document (a property test holds that), and knows only the keywords our schemas
use; another keyword is an error when the function is made. Which faults there are is not asked here: see `check.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]
Check = Callable[[Any], bool]

_NOTES = frozenset(("$schema", "$id", "$defs", "$comment", "title", "description", "examples"))
# Read together with their neighbours.
_TOGETHER = frozenset(("patternProperties", "additionalProperties"))


def strict_pattern(pattern: str) -> re.Pattern[str]:
    """The pattern as ECMA-262 means it: `$` ends the text, where Python lets a line break follow."""
    return re.compile(pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern)


def is_kind(kind: str, value: Any) -> bool:
    """True when `value` is of the JSON Schema type `kind`; 2.0 is an integer, true is no number."""
    if kind == "integer":
        return not isinstance(value, bool) and (
            isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        )
    if kind == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    kinds = {"string": str, "boolean": bool, "object": dict, "array": list, "null": type(None)}
    return isinstance(value, kinds[kind])


def compiled(schema: Schema) -> Check:
    """A function that is True for exactly the plain values that are valid; raises `ValueError` for unknown keywords."""
    return _Compiler(schema).check(schema)


class _Compiler:
    """Makes checks keyword by keyword; each `$ref` is made once."""

    def __init__(self, root: Schema) -> None:
        self.root = root
        self.refs: dict[str, Check] = {}

    def check(self, schema: Schema | bool) -> Check:
        if isinstance(schema, bool):
            return lambda _value: schema
        checks = [self.keyword(key, schema) for key in schema if key not in _NOTES and key not in _TOGETHER]
        if len(checks) == 1:
            return checks[0]

        def every(value: Any) -> bool:
            # A loop costs half of a generator, and nearly every document only walks through here.
            for check in checks:  # noqa: SIM110  # see above
                if not check(value):
                    return False
            return True

        return every

    def keyword(self, key: str, schema: Schema) -> Check:
        make = getattr(self, "_" + key.removeprefix("$"), None)
        if make is None:
            raise ValueError(f"the keyword {key} is not known here")
        made: Check = make(schema[key], schema)
        return made

    def _ref(self, target: str, _schema: Schema) -> Check:
        if target not in self.refs:
            self.refs[target] = self.check(self.root["$defs"][target.removeprefix("#/$defs/")])
        return self.refs[target]

    def _type(self, kinds: Any, schema: Schema) -> Check:
        if kinds == "object":
            # Only a mapping can reach the checks of properties, so an empty one of those still needs this one.
            return self._object(schema)
        if kinds == "string":
            return lambda value: isinstance(value, str)
        if isinstance(kinds, str):
            return lambda value: is_kind(kinds, value)
        return lambda value: any(is_kind(kind, value) for kind in kinds)

    def _object(self, schema: Schema) -> Check:
        properties = {key: self.check(inner) for key, inner in schema.get("properties", {}).items()}
        patterns = [
            (strict_pattern(key), self.check(inner)) for key, inner in schema.get("patternProperties", {}).items()
        ]
        rest = self.check(schema.get("additionalProperties", True))

        def check(value: Any) -> bool:
            if not isinstance(value, dict):
                return False
            for key, item in value.items():
                known = properties.get(key)
                matching = [inner for pattern, inner in patterns if pattern.search(key)] if patterns else ()
                if known is not None:
                    if not known(item):
                        return False
                elif not matching and not rest(item):
                    return False
                if not all(inner(item) for inner in matching):
                    return False
            return True

        return check

    def _properties(self, _inner: Any, schema: Schema) -> Check:
        if schema.get("type") != "object":
            raise ValueError("properties without type: object")
        return lambda _value: True

    def _const(self, wanted: Any, _schema: Schema) -> Check:
        return lambda value: bool(value == wanted) and isinstance(value, bool) == isinstance(wanted, bool)

    def _enum(self, wanted: list[str], _schema: Schema) -> Check:
        return lambda value: isinstance(value, str) and value in wanted

    def _pattern(self, pattern: str, _schema: Schema) -> Check:
        search = strict_pattern(pattern).search
        return lambda value: not isinstance(value, str) or search(value) is not None

    def _minLength(self, least: int, _schema: Schema) -> Check:  # noqa: N802  # named by the keyword
        return lambda value: not isinstance(value, str) or len(value) >= least

    def _minimum(self, least: float, _schema: Schema) -> Check:
        return lambda value: not is_kind("number", value) or value >= least

    def _maximum(self, most: float, _schema: Schema) -> Check:
        return lambda value: not is_kind("number", value) or value <= most

    def _required(self, keys: list[str], _schema: Schema) -> Check:
        return lambda value: not isinstance(value, dict) or all(key in value for key in keys)

    def _dependentRequired(self, wants: dict[str, list[str]], _schema: Schema) -> Check:  # noqa: N802  # the keyword
        return lambda value: (
            not isinstance(value, dict)
            or all(need in value for key, needs in wants.items() if key in value for need in needs)
        )

    def _minProperties(self, least: int, _schema: Schema) -> Check:  # noqa: N802  # named by the keyword
        return lambda value: not isinstance(value, dict) or len(value) >= least

    def _maxProperties(self, most: int, _schema: Schema) -> Check:  # noqa: N802  # named by the keyword
        return lambda value: not isinstance(value, dict) or len(value) <= most

    def _propertyNames(self, inner: Schema, _schema: Schema) -> Check:  # noqa: N802  # named by the keyword
        check = self.check(inner)
        return lambda value: not isinstance(value, dict) or all(check(key) for key in value)

    def _items(self, inner: Schema, _schema: Schema) -> Check:
        check = self.check(inner)
        return lambda value: not isinstance(value, list) or all(check(item) for item in value)

    def _minItems(self, least: int, _schema: Schema) -> Check:  # noqa: N802  # named by the keyword
        return lambda value: not isinstance(value, list) or len(value) >= least

    def _maxItems(self, most: int, _schema: Schema) -> Check:  # noqa: N802  # named by the keyword
        return lambda value: not isinstance(value, list) or len(value) <= most

    def _uniqueItems(self, _wanted: bool, _schema: Schema) -> Check:  # noqa: N802  # named by the keyword
        return lambda value: not isinstance(value, list) or all_differ(value)

    def _anyOf(self, branches: list[Schema], _schema: Schema) -> Check:  # noqa: N802  # named by the keyword
        checks = [self.check(branch) for branch in branches]
        return lambda value: any(check(value) for check in checks)

    def _oneOf(self, branches: list[Schema], _schema: Schema) -> Check:  # noqa: N802  # named by the keyword
        checks = [self.check(branch) for branch in branches]
        return lambda value: sum(check(value) for check in checks) == 1


def all_differ(items: list[Any]) -> bool:
    """True when no item equals another, with 1 and true apart, as JSON Schema counts; linear in their number."""
    # Lists and mappings stand as their canonical text: a quadratic comparison of ten thousand would take a minute.
    return len({_mark(item) for item in items}) == len(items)


def _mark(item: Any) -> tuple[str, Any]:
    if isinstance(item, (dict, list)):
        return "", json.dumps(item, sort_keys=True)
    return ("boolean" if isinstance(item, bool) else "other"), item
