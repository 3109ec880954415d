"""Takes secret values out of a stream of bytes, chunk by chunk, as if it had been one piece. Pure.

What is written never holds a whole value; without values nothing changes. From the left, the longest value that begins
at a place counts, and what may be the beginning of one is kept back until more is known. It must not know where the
bytes come from, nor show a value.
"""

import json
import re
from typing import Iterable, List, NamedTuple, Tuple, Union

from aicrun.wire.secrets import LEAST_CHARACTERS

Raw = Union[bytes, memoryview]

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# The last one can be in no value: a variable of an environment has none.
_MARKS = b"*#=~@|^%\0"


class Passed(NamedTuple):
    """What is written of some bytes: `out`, behind `skipped` bytes that are not.

    `kept` must be given again, in front of the next ones; `shown` of the kept bytes have been written already.
    """

    out: Raw
    kept: bytes = b""
    shown: int = 0
    skipped: int = 0


class Redactor:
    """The values of one job and how each is hidden: `***` stands in its place."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        """`values` are the secrets; empty ones hide nothing."""
        forms = {form for value in values for form in _forms(value) if form}
        self._forms: Tuple[bytes, ...] = tuple(sorted(forms, key=lambda form: (-len(form), form)))
        joined = b"".join(self._forms)
        self._mark = bytes((next(mark for mark in _MARKS if mark not in joined),)) * 3
        self.longest = len(self._forms[0]) if self._forms else 0
        self._lookouts = [_Lookout(form) for form in self._forms]

    def __bool__(self) -> bool:
        return bool(self._forms)

    def whole(self, data: bytes, shown: int = 0) -> bytes:
        """All of `data` with every value hidden, without its first `shown` bytes, which were written before."""
        found = self._found(data)
        if not found:
            return data[shown:]
        if len(found) == 1 and not shown:
            return data.replace(found[0], self._mark)
        parts, at = [], 0
        for match in _any_of(found).finditer(data):
            if match.end() > shown:
                parts += [data[max(at, shown) : match.start()], self._mark]
            at = match.end()
        return b"".join(parts) + data[max(at, shown) :]

    def text(self, text: str) -> str:
        """A whole text with every value hidden."""
        for form in self._forms:
            text = text.replace(form.decode("utf-8", "surrogateescape"), self._mark.decode("ascii"))
        return text

    def passed(self, data: bytes, shown: int = 0) -> Passed:
        """What may be written of `data` when more follows; fewer than `longest` bytes are kept back."""
        begins = self._begins(data)
        if begins:
            matches = self._matches(data)
            for cut in begins:
                if not any(first < cut < last for first, last in matches):
                    return Passed(self.whole(data[:cut], min(cut, shown)), data[cut:], max(0, shown - cut))
        return Passed(self.whole(data, shown))

    def let_go(self, data: bytes, shown: int) -> Passed:
        """What of the kept bytes may be written because nothing follows for a while; they stay kept all the same.

        Fewer bytes than a value must have are no secret. A longer beginning of a value is not shown before the end.
        """
        if len(data) < LEAST_CHARACTERS:
            return Passed(data[shown:], data, len(data))
        return Passed(b"", data, shown)

    def _matches(self, data: bytes) -> List[Tuple[int, int]]:
        found = self._found(data)
        return [match.span() for match in _any_of(found).finditer(data)] if found else []

    def _found(self, data: bytes) -> List[bytes]:
        """The forms that stand in `data`, the longest first."""
        return [lookout.form for lookout in self._lookouts if lookout.sees(data)]

    def _begins(self, data: bytes) -> List[int]:
        """The places near the end of `data`, in order, from which on it is the beginning of a value and no more."""
        places = set()
        for form in self._forms:
            first = form[:1]
            at = data.find(first, max(0, len(data) - len(form) + 1))
            while at >= 0:
                if form.startswith(data[at:]):
                    places.add(at)
                at = data.find(first, at + 1)
        return sorted(places)


class _Lookout:
    """Looks for one form: where a byte of it does not occur at all, which is quickly known, the form does not either.

    A log uses few letters again and again, a secret many; a byte that did occur gives way to the next one.
    """

    def __init__(self, form: bytes) -> None:
        self.form = form
        # Those first that a log of words and numbers has seldom.
        self._letters = bytes(sorted(set(form), key=lambda byte: chr(byte).islower() or chr(byte).isdigit()))
        self._turn = 0

    def sees(self, data: bytes) -> bool:
        """True when the form stands in `data`."""
        if self._letters[self._turn] not in data:
            return False
        self._turn = (self._turn + 1) % len(self._letters)
        return self.form in data


def _any_of(forms: List[bytes]) -> "re.Pattern[bytes]":
    # The longest stand first, and the first that fits is taken.
    return re.compile(b"|".join(re.escape(form) for form in forms))


def _forms(value: str) -> Tuple[bytes, ...]:
    """The value as it is, and as it stands in an address and in a quoted text where that differs."""
    raw = value.encode("utf-8", "surrogateescape")
    percent = "".join(chr(byte) if byte in _UNRESERVED else "%%%02X" % byte for byte in raw)
    quoted = (json.dumps(value, ensure_ascii=plain)[1:-1] for plain in (True, False))
    return (raw, percent.encode("ascii")) + tuple(form.encode("utf-8", "surrogateescape") for form in quoted)
