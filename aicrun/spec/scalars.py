"""What a plain scalar of YAML is to aicrun: null, a boolean, a number, or the text that was typed. Pure.

It must not guess: `no`, `on`, `012`, `12:30` and dates are text, because tools disagree about them. `1e-4` and other
floats of YAML 1.2's core schema are numbers; every scalar keeps its source text beside its value.
"""

from __future__ import annotations

import math
import re

_WORDS: dict[str, bool | None] = {"": None, "null": None, "true": True, "false": False}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
# YAML 1.2.2, section 10.3.2, without leading zeros, infinities and NaN.
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_STARTS_A_NUMBER = frozenset("-+.0123456789")
# Python refuses to read integers of more than 4,300 digits, and no field has use for more than 30.
_LONGEST_NUMBER = 30


def resolved(text: str) -> bool | int | float | str | None:
    """The value of the plain scalar `text`; the text itself where it is neither null, boolean nor a finite number."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _STARTS_A_NUMBER or len(text) > _LONGEST_NUMBER:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text
