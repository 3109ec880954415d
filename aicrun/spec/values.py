"""How values are named in messages and written as YAML in advice: short, and as people type them. Pure."""

from __future__ import annotations

import re
from typing import Any

from aicrun.spec.secrets import Mask

_PLAIN = re.compile(r"[A-Za-z0-9_./~$<=-][A-Za-z0-9_./~$<>=+@%-]*( [A-Za-z0-9_./~$=+-]+)*")
_LOOKS_TYPED = re.compile(r"null|true|false|[-+.]?[0-9].*")
LONGEST = 60


def short(text: str, most: int = LONGEST) -> str:
    """`text` on one line and at most `most` characters long, tokens of a known shape hidden.

    What is cut in the middle no longer looks like a token, so hiding comes first.
    """
    line = " ".join(Mask().words(text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def kind_of(value: Any) -> str:
    """What a plain value is, as people say it."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not value.is_integer():
        return "a number with a fraction"
    if isinstance(value, (int, float)):
        return "a number"
    return "a list" if isinstance(value, list) else "a mapping" if isinstance(value, dict) else "text"


def as_yaml(value: Any) -> str:
    """A value of a schema's examples in YAML's flow form, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_inside(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_inside(item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _inside(value: Any) -> str:
    """The same inside brackets, where commas and more need quotes; only what would be typed otherwise is quoted too."""
    if not isinstance(value, str):
        return as_yaml(value)
    if _PLAIN.fullmatch(value) and not (_LOOKS_TYPED.fullmatch(value) and not re.search(r"[A-Za-z.%]", value[1:])):
        return value
    return "'" + value.replace("'", "''") + "'" if '"' in value else f'"{value}"'
