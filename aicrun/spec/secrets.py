"""What looks like a secret in a text, and how it is hidden in everything that is shown. Pure.

A missed secret ends up in a repository, a false alarm costs one line: known shapes are errors without appeal, names
that sound secret and long random values can be marked as harmless (`x-not-secret`). It must never give a value back.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field

# Shapes as their makers document them; the group is the prefix that may be shown. Every repetition is bounded, so that
# no text makes a search slow.
SHAPES = re.compile(
    r"(?<![A-Za-z0-9_])(?:"
    r"(?:(hf_)[A-Za-z0-9]{20,300}"
    r"|(gh[pousr]_)[A-Za-z0-9]{30,300}|(github_pat_)[A-Za-z0-9_]{30,300}|(glpat-)[A-Za-z0-9_-]{20,300}"
    r"|(sk-)(?:(?:ant|proj|or)-[A-Za-z0-9_-]{20,300}|[A-Za-z0-9]{32,300})"
    r"|(r8_)[A-Za-z0-9]{30,300}|(nvapi-)[A-Za-z0-9_-]{40,300}"
    r"|(AKIA|ASIA)[A-Z0-9]{16}|(AIza)[A-Za-z0-9_-]{35}|(xox[abposr]-)[A-Za-z0-9-]{10,300}"
    r"|(pypi-)[A-Za-z0-9_-]{50,300}|(eyJ)[A-Za-z0-9_-]{15,1000}\.[A-Za-z0-9_-]{10,3000}\.[A-Za-z0-9_-]{10,1000})"
    r"(?![A-Za-z0-9_]))"
    r"|(-----BEGIN) [A-Z ]*PRIVATE KEY-----[^\n]*"
)
URL_PASSWORD = re.compile(r"(?<=://)[^\s/:@'\"$]*:(?P<value>[^\s/@'\"$]+)(?=@)")
SECRET_FLAG = re.compile(
    r"(?<!\S)(?P<flag>--?[A-Za-z0-9_-]*(?:token|password|passwd|secret|api[_-]?key|access[_-]?key))"
    r"[= ]+['\"]?(?P<value>[A-Za-z0-9][A-Za-z0-9_+/=.-]{7,})",
    re.IGNORECASE,
)
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|API_?KEY|ACCESS_KEY|PRIVATE_KEY|SECRET_KEY|CREDENTIALS)$",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(r"[A-Za-z0-9_+/=.!@#%^&*-]{8,}")
_ASSIGNED = re.compile(
    r"(?:token|secret|password|passwd|api_?key|access_key)[\"']?\s*[:=]\s*[\"']?(?P<value>[^\s\"',}$]{8,})",
    re.IGNORECASE,
)
_HEX = re.compile(r"[0-9a-fA-F]{32,}")
_RANDOM = re.compile(r"[A-Za-z0-9+/=_-]{32,}")
_PIECE = re.compile(r"[A-Za-z0-9+]{24,}")


def shapes_in(text: str) -> list[tuple[str, str]]:
    """(value, prefix that may be shown) of each known token and each password of a URL in `text`."""
    found = [(match.group(), next(group for group in match.groups() if group)) for match in SHAPES.finditer(text)]
    return found + [(match["value"], "") for match in URL_PASSWORD.finditer(text)]


def flags_in(command: str) -> list[tuple[str, str]]:
    """(flag, value) of each flag of a command that is named for a secret and has a literal value."""
    return [(match["flag"], match["value"]) for match in SECRET_FLAG.finditer(command)]


def sounds_secret(name: str) -> bool:
    """True when a variable's name sounds secret, whatever its value."""
    return bool(_SECRET_NAME.search(name))


def is_secret_by_name(name: str, value: str) -> bool:
    """True when a variable's name sounds secret and its value could be one (not a path, a word, a placeholder)."""
    if not sounds_secret(name) or value.startswith(("/", "~", "./")) or not _SECRET_VALUE.fullmatch(value):
        return False
    return not value.isalpha() or len(value) >= 16


def is_random(value: str) -> bool:
    """True for a value as long and as random as keys are: 32 hex digits, or 32 mixed characters of high entropy."""
    if _HEX.fullmatch(value):
        return _entropy(value.lower()) > 3.0
    piece = _PIECE.search(value) if _RANDOM.fullmatch(value) else None
    if piece is None or value.startswith("/"):
        return False
    kinds = (str.isdigit, str.isupper, str.islower)
    return all(any(kind(char) for char in piece.group()) for kind in kinds) and _entropy(piece.group()) > 3.7


def _entropy(text: str) -> float:
    """Bits for each character, after Shannon."""
    return -sum(count / len(text) * math.log2(count / len(text)) for count in Counter(text).values())


# Searching a line for each value of a file that has thousands would take minutes; then no line of it is shown at all.
_MOST_VALUES = 200


@dataclass(frozen=True)
class Shown:
    """A line as it may be shown, and where the marked piece of it stands now."""

    text: str
    column: int
    length: int


@dataclass
class Mask:
    """Hides secrets: the values that were found in a file (value -> prefix that may be shown), and known shapes."""

    values: dict[str, str] = field(default_factory=dict)
    _known: dict[tuple[str, bool], list[tuple[int, int, str]]] = field(default_factory=dict)

    def hide(self, value: str, prefix: str = "") -> None:
        """Hides `value` from now on, and each longer line of it."""
        self._known.clear()
        for line in value.splitlines():
            if len(line.strip()) >= 8 or line == value:
                self.values[line.strip()] = prefix

    def words(self, text: str) -> str:
        """`text` without any secret."""
        return self._hidden(text, self._spots(text))

    def line(self, text: str, column: int, length: int) -> Shown:
        """A line without any secret, with the caret of `length` at `column` (0-based) moved along."""
        if len(self.values) > _MOST_VALUES:
            return Shown("… (not shown: the file is full of secrets)", 0, 1)
        spots = self._spots(text, assigned=True)
        moved, shown_length = column, length
        for start, end, prefix in spots:
            sign = f"{prefix}…"
            grown = len(_shown(end - start, prefix)) - (end - start)
            if column >= end:
                moved += grown
            elif start <= column:
                moved, shown_length = moved - (column - start), min(length, len(sign)) or length
            elif column + length > start:
                shown_length = start - column + len(sign)
                break
        return Shown(self._hidden(text, spots), moved, shown_length)

    def _hidden(self, text: str, spots: list[tuple[int, int, str]]) -> str:
        pieces, at = [], 0
        for start, end, prefix in spots:
            pieces += [text[at:start], _shown(end - start, prefix)]
            at = end
        return "".join([*pieces, text[at:]])

    def _spots(self, text: str, *, assigned: bool = False) -> list[tuple[int, int, str]]:
        """(start, end, prefix) of what must not be shown, sorted, none overlapping another."""
        # One long line may have a hundred faults, and each draws it.
        if (text, assigned) not in self._known:
            self._known[text, assigned] = self._searched(text, assigned=assigned)
        return self._known[text, assigned]

    def _searched(self, text: str, *, assigned: bool) -> list[tuple[int, int, str]]:
        values = self.values.items() if len(self.values) <= _MOST_VALUES else ()
        spots = [(at, at + len(value), prefix) for value, prefix in values for at in _each(text, value)]
        for match in SHAPES.finditer(text):
            spots.append((match.start(), match.end(), next(group for group in match.groups() if group)))
        for pattern in (URL_PASSWORD, SECRET_FLAG, _ASSIGNED) if assigned else (URL_PASSWORD,):
            spots.extend((*match.span("value"), "") for match in pattern.finditer(text))
        kept: list[tuple[int, int, str]] = []
        for spot in sorted(spots, key=lambda one: (one[0], -one[1])):
            if not kept or spot[0] >= kept[-1][1]:
                kept.append(spot)
        return kept


def _shown(length: int, prefix: str) -> str:
    return f"{prefix}… ({length} characters, not shown)"


def _each(text: str, value: str) -> list[int]:
    found: list[int] = []
    at = text.find(value) if value else -1
    while at >= 0:
        found.append(at)
        at = text.find(value, at + len(value))
    return found
