"""A page of a plan in the making: lines with signs, labels, wrapped prose and ways out, coloured as text.

It must not know what a plan is; `plan_human.py` does. Prose ends at column 80, tables may go on.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from aicrun.plan.model import Sign, Way
from aicrun.plan.words import cells, cut

PROSE = 80
VALUES = 12
_SIGN_STYLES = {
    Sign.START: "green",
    Sign.KEEP: "green",
    Sign.UPLOAD: "green",
    Sign.WAIT: "yellow",
    Sign.MOVE: "yellow",
    Sign.CHANGE: "yellow",
    Sign.REPLACE: "yellow",
    Sign.REFUSE: "red",
}
# Signs and marks where the terminal has no Unicode; every sign stays one column wide.
_ASCII_SIGNS = {"…": ".", "±": "/"}

Part = tuple[str, str]


class Page:
    """Lines so far; `mark` tells that text was cut, `bar` stands before text of a host."""

    def __init__(self, width: int, ascii_only: bool) -> None:
        self.width = max(width, 40)
        self.prose = min(self.width, PROSE)
        self.ascii_only = ascii_only
        self.mark = ".." if ascii_only else "…"
        self.bar = "|" if ascii_only else "│"
        self._lines: list[list[Part]] = []

    def add(self, *parts: Part) -> None:
        """One line of (text, style) parts."""
        self._lines.append(list(parts))

    def blank(self) -> None:
        """An empty line between two blocks; never two, never first."""
        if self._lines and self._lines[-1]:
            self._lines.append([])

    def sign(self, sign: Sign) -> Part:
        """The sign as the first part of a line, with the space behind it."""
        return (self.sign_text(sign) + " ", _SIGN_STYLES[sign])

    def sign_text(self, sign: Sign) -> str:
        """The sign, one column wide."""
        return _ASCII_SIGNS.get(sign.value, sign.value) if self.ascii_only else sign.value

    def row(self, label: str, text: str, style: str = "") -> None:
        """A label at column 2 and a value from column 12, wrapped below itself."""
        head = f"  {label:<{VALUES - 3}} "
        for place, line in enumerate(wrapped(text, self.prose - cells(head), self.prose - VALUES)):
            self.add((head if place == 0 else " " * VALUES, ""), (line, style))

    def sentence(self, text: str, style: str = "", indent: int = 0) -> None:
        """Prose from column `indent`, wrapped."""
        for line in wrapped(text, self.prose - indent, self.prose - indent):
            self.add((" " * indent, ""), (line, style))

    def quoted(self, text: str) -> None:
        """One line of a host behind the bar; cut, never wrapped."""
        self.add((f"  {self.bar} ", "dim"), (cut(text, self.width - 4, self.mark), ""))

    def ways(self, ways: Iterable[Way]) -> None:
        """Ways out: what each does, and the command to type; a long command has a line of its own."""
        listed = list(ways)
        label = max((cells(way.what) for way in listed), default=0)
        for way in listed:
            head = f"  {way.what}{' ' * (label - cells(way.what))}  "
            if not way.command:
                self.add((head.rstrip(), ""))
            elif cells(head) + cells(way.command) <= self.width:
                self.add((head, ""), (way.command, "bold"))
            else:
                self.add((head.rstrip(), ""))
                self.add(("    ", ""), (way.command, "bold"))

    def text(self) -> Text:
        """The page as coloured text; lines have no trailing spaces."""
        whole = Text()
        for line in self._lines:
            shown = Text()
            for text, style in line:
                shown.append(self._printable(text), style=style)
            shown.rstrip()
            whole.append(shown)
            whole.append("\n")
        return whole

    def _printable(self, text: str) -> str:
        if not self.ascii_only:
            return text
        return text.replace("…", self.mark).replace("±", "/").encode("ascii", "replace").decode("ascii")


def wrapped(text: str, first: int, others: int) -> list[str]:
    """`text` in lines of at most `first` and then `others` columns, broken at spaces; at least one line."""
    lines, line, room = [], "", max(first, 8)
    for word in text.split(" "):
        tried = f"{line} {word}" if line else word
        if cells(tried) <= room or not line:
            line = tried
            continue
        lines.append(line)
        line, room = word, max(others, 8)
    return [*lines, line]
