"""The fault of a size, duration, percentage or range that is none: what is missing and what to write."""

from __future__ import annotations

import re

from aicrun.spec.findings import Finding, range_of
from aicrun.spec.nodes import Node, Path, dotted
from aicrun.spec.sizes import cards, duration_s, size_bytes
from aicrun.spec.validity import Schema
from aicrun.spec.values import as_yaml, short

_TITLES = ("a size", "a duration", "a percentage", "a range of")
_NUMBER = re.compile(r"[+]?[0-9]+(?:\.[0-9]+)?")
# More than a machine has is meant as a size.
_MOST_CARDS = 16
_STARTS_RANGE = re.compile(r"[0-9](?!.*\.\.)")
_OTHER_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]+)")
# What people write for a unit, by its first letters, lower case.
_DURATION_WORDS = {"s": "s", "sec": "s", "m": "m", "min": "m", "h": "h", "hour": "h", "hr": "h", "d": "d", "day": "d"}


def is_measure(field: Schema) -> bool:
    """True when the field is a size, a duration, a percentage or a range of them."""
    return str(field.get("title", "")).startswith(_TITLES)


def measure_finding(path: Path, field: Schema, node: Node) -> Finding:
    """The fault of `node`, which is not the measure that `field` is."""
    title, text = str(field["title"]), node.text or ""
    example = as_yaml(next((one for one in field.get("examples", ()) if isinstance(one, str)), "20GiB"))
    if _NUMBER.fullmatch(text) and not title.startswith("a range"):
        return _no_unit(path, title, example, node)
    name = f'"{dotted(path)}"'
    if size_bytes(text) == 0 or duration_s(text) == 0:
        message = f"{name} is {title} above zero, here it is {text}"
        return Finding("AIC-E117", message, range_of(node), path, helps=(f"write {example}",))
    shown = f'"{short(text)}"' if text else "empty text"
    notes, help_ = _advice(title, text, example)
    message = f"{name} is {title}, and {shown} is none"
    return Finding("AIC-E122", message, range_of(node), path, notes=notes, helps=(help_,))


def counted_cards(node: Node | None) -> str:
    """How the number of cards that `node` holds is written; empty where it holds none that a machine has."""
    if node is None or type(node.value) is not int or not 1 <= node.value <= _MOST_CARDS:
        return ""
    return f"gpu: {{vram: 20GiB, count: {node.value}}}"


def _no_unit(path: Path, title: str, example: str, node: Node) -> Finding:
    text = node.text or ""
    count = counted_cards(node) if path == ("machine", "gpu") else ""
    if count:
        message = f'"machine.gpu" is a size of free memory, and {text} has no unit'
        help_ = f"for a number of cards: {count}; for memory: {text}GiB"
        return Finding("AIC-E121", message, range_of(node), path, helps=(help_,))
    unit = re.sub(r"^.*?[0-9.]+ ?", "", example)
    message = f'"{dotted(path)}" is {title} and {text} has no unit'
    notes: tuple[str, ...] = ()
    if title.startswith("a size"):
        binary, decimal = size_bytes(f"{text}GiB"), size_bytes(f"{text}GB")
        if binary is not None and decimal is not None:
            notes = (f"{text}GiB is {binary // 2**20:,} MiB, {text}GB is {decimal // 2**20:,} MiB",)
    return Finding("AIC-E121", message, range_of(node), path, notes=notes, helps=(f"write {text.lstrip('+')}{unit}",))


def _advice(title: str, text: str, example: str) -> tuple[tuple[str, ...], str]:
    other = _OTHER_UNIT.fullmatch(text)
    if title.startswith("a size") and other and other[2][0].upper() in "KMGT":
        letter = other[2][0].upper()
        note = f"{letter}iB counts by 1024, {letter}B by 1000; other spellings are not used"
        return (note,), f"write {other[1]}{letter}iB or {other[1]}{letter}B"
    if title == "a duration" and other:
        unit = next((_DURATION_WORDS[word] for word in _words(other[2])), "")
        if unit and "." not in other[1]:
            return (), f"write {other[1]}{unit}"
    if title.startswith("a range") and _STARTS_RANGE.match(text):
        return (), f"write {text}.. for at least that, ..{text} for at most that"
    if title == "a size" and cards(text) is not None:
        return ("the count belongs into the long form",), f"write {example}"
    units = {"a duration": "w, d, h, m and s, in this order: 1h30m", "a percentage": "0% to 100%"}
    note = units.get(title, "")
    return ((f"durations use {note}",) if title == "a duration" else (), f"write {example}")


def _words(unit: str) -> list[str]:
    word = unit.lower().removesuffix("s") or "s"
    return [known for known in _DURATION_WORDS if word in (known, known + "s") or word.startswith(known + "u")]
