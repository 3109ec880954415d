"""Makes text from a host harmless before a terminal sees it, as a stream and line by line.

Control characters, escape sequences, bidi overrides and private characters are dropped; nothing is interpreted.
"""

from __future__ import annotations

import codecs
import re

from aicrun.plan.words import harmless

_LINE_MOST = 64 * 1024
_ENDS = re.compile(r"(\r\n|\n|\r)")


def line(text: str) -> str:
    """One harmless line; of a line that was rewritten with carriage returns, what stood last."""
    shown = [part for part in text.split("\r") if part.strip()]
    return harmless(shown[-1] if shown else "")


class Lines:
    """Bytes of a log in, whole harmless lines out; a character cut by the end of a slice is kept for the next."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, data: bytes) -> list[str]:
        """The lines that `data` completes; a line without an end is given out in pieces of 64 KiB."""
        self._held += self._decoder.decode(data)
        *whole, self._held = self._held.split("\n")
        if len(self._held) > _LINE_MOST:
            whole.append(self._held)
            self._held = ""
        return [line(text) for text in whole]

    def rest(self) -> list[str]:
        """What was held back, at the end."""
        held, self._held = self._held, ""
        return [line(held)] if held else []


class Bare:
    """Bytes of a log in, harmless text out with its own line ends and carriage returns, for `logs` on a terminal."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, data: bytes) -> str:
        """Harmless text up to the last line end of what came; the rest waits, for a sequence may be cut in it."""
        self._held += self._decoder.decode(data)
        cut = max(self._held.rfind("\n"), self._held.rfind("\r")) + 1
        if len(self._held) - cut > _LINE_MOST:
            cut = len(self._held)
        ready, self._held = self._held[:cut], self._held[cut:]
        return self._clean(ready)

    def rest(self) -> str:
        """What was held back, at the end."""
        held, self._held = self._held, ""
        return self._clean(held)

    @staticmethod
    def _clean(text: str) -> str:
        return "".join(part if _ENDS.fullmatch(part) else harmless(part) for part in _ENDS.split(text))
