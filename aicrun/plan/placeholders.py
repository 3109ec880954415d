"""Our placeholders, `${word.word}`: filling them in, and knowing which a text holds.

It must not know what the values are or where they come from. `$${…}` stays as it is until the very last filling, so
that an escaped placeholder is never taken for one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_FORM = re.compile(r"(\$?)\$\{([A-Za-z]\w*(?:\.\w+)+)\}")


def names_in(text: str) -> frozenset[str]:
    """The names of all placeholders that `text` holds; escaped ones are none."""
    return frozenset(found.group(2) for found in _FORM.finditer(text) if not found.group(1))


def fill(text: str, values: Mapping[str, str]) -> str:
    """`text` with every placeholder of `values` replaced; others and escaped ones are left alone."""
    return _FORM.sub(lambda found: _value(found, values), text)


def finish(text: str, values: Mapping[str, str]) -> str:
    """The last filling: as `fill`, then `$${…}` becomes `${…}`."""
    return _FORM.sub(lambda found: found.group(0)[1:] if found.group(1) else _value(found, values), text)


def escaped(text: str) -> str:
    """`text` in a form that the last filling turns into exactly `text` again."""
    return _FORM.sub(lambda found: "$" + found.group(0), text)


def _value(found: re.Match[str], values: Mapping[str, str]) -> str:
    return found.group(0) if found.group(1) else values.get(found.group(2), found.group(0))
