"""The fault of a value of the wrong type: what the field is, what stands there, and what to write instead."""

from __future__ import annotations

import re

from aicrun.spec.findings import Finding, range_of
from aicrun.spec.nodes import Node, Path, dotted
from aicrun.spec.validity import Schema
from aicrun.spec.values import as_yaml, kind_of, short

_TRUE = ("yes", "on", "y", "true", "1")
_FALSE = ("no", "off", "n", "false", "0")
_LEADING_ZERO = re.compile(r"0+([1-9][0-9]*)")
_GROUPED = re.compile(r"[0-9]{1,3}([_,][0-9]{3})+")
_SIXTIES = re.compile(r"[0-9]+(:[0-9]{2})+(\.[0-9]+)?")


def type_finding(path: Path, noun: str, kinds: tuple[str, ...], field: Schema, node: Node) -> Finding:
    """The fault of `node` at `path`, where the field is `noun` and takes the JSON Schema types `kinds`."""
    message = f'"{dotted(path)}" is {noun}, here it is {kind_of(node.value)}'
    note, help_ = _advice(path, kinds, field, node)
    return Finding("AIC-E120", message, range_of(node), path, notes=(note,) if note else (), helps=(help_,))


def _advice(path: Path, kinds: tuple[str, ...], field: Schema, node: Node) -> tuple[str, str]:
    text = node.text
    example = as_yaml(field["examples"][0]) if field.get("examples") else ""
    if text is not None and kinds == ("boolean",):
        return _of_boolean(text)
    if text is not None and set(kinds) <= {"integer", "number"} and isinstance(node.value, str):
        return _of_number(text, example)
    if text is not None and "string" in kinds and not isinstance(node.value, str):
        return "", f'put it into quotes: "{short(text)}"'
    if isinstance(field.get("examples", [None])[0], (dict, list)):
        example = _with_number(field, node) or example
        key = f"{path[-1]}: " if isinstance(path[-1], str) else ""
        return "", f"write {key}{example}"
    if "string" in kinds and not example and isinstance(path[-1], str):
        return "", f'write one text: {path[-1]}: "…"'
    return "", f"write {example}" if example else f"its form: aicrun explain {_topic(path)}"


def _with_number(field: Schema, node: Node) -> str:
    """The mapping that was meant by a number alone: of the one key that must be there; empty when there is none."""
    needed = field.get("required", ())
    of_key = field.get("properties", {}).get(needed[0], {}) if len(needed) == 1 else {}
    is_whole = isinstance(node.value, int) and not isinstance(node.value, bool)
    return as_yaml({needed[0]: node.value}) if is_whole and of_key.get("type") == "integer" else ""


def _topic(path: Path) -> str:
    return ".".join(str(step) for step in path if isinstance(step, str))


def _of_boolean(text: str) -> tuple[str, str]:
    if text.lower() in _TRUE:
        return "", "write true"
    if text.lower() in _FALSE:
        return "", "write false"
    return "", "write true or false"


def _of_number(text: str, example: str) -> tuple[str, str]:
    zero = _LEADING_ZERO.fullmatch(text)
    if zero:
        return "a number with a leading zero is text here, since YAML readers disagree about it", f"write {zero[1]}"
    if _SIXTIES.fullmatch(text):
        return "12:30 and the like are text here, since YAML readers disagree about them", f"write {example}"
    if _GROUPED.fullmatch(text):
        return "", f"write {re.sub('[_,]', '', text)}"
    if re.fullmatch(r"[0-9]+", text):
        return "", f"write {text}, without quotes"
    return "", f"write {example}"
