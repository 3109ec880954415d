"""The story of an apply on stderr: steps with the time they took, the log behind its bar, remarks.

A step that goes on rewrites its own line on a terminal; elsewhere it is printed once, when it ended.
"""

from __future__ import annotations

from aicrun.cli.safe_text import Lines
from aicrun.cli.screen import PROSE_COLUMNS, Screen, styled
from aicrun.lifecycle.events import Happening, LogBytes, Remark, StepBegan, StepDone
from aicrun.plan.words import cells, cut, harmless, took

_LABEL = 10
_EDGE = PROSE_COLUMNS - 1
# A step whose time says nothing ends without one: it is a moment.
_MOMENTS = frozenset(("started", "in line"))


def step_line(step: str, words: str, took_s: float | None, mark: str = "…") -> str:
    """`  push      43 files, 1.2 MiB to lab            0.8s`, its time at the right edge of prose."""
    time = took(took_s) if took_s is not None else ""
    room = _EDGE - 2 - _LABEL - (len(time) + 1 if time else 0)
    text = f"  {step:<{_LABEL}}{cut(harmless(words), room, mark)}"
    return text + time.rjust(_EDGE - cells(text)) if time else text


class Story:
    """A `Tell` that prints as it is told; `bars` False leaves log text out (a quiet apply)."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._log = Lines()

    def tell(self, happening: Happening) -> None:
        """Print one happening."""
        if isinstance(happening, StepBegan):
            self._screen.rewrite(step_line(happening.step, happening.words, None, self._screen.mark))
        elif isinstance(happening, StepDone):
            self.flush()
            seconds = None if happening.step in _MOMENTS else happening.took_s
            self._screen.err([step_line(happening.step, happening.words, seconds, self._screen.mark)])
        elif isinstance(happening, LogBytes):
            self._quote(self._log.feed(happening.data))
        elif isinstance(happening, Remark):
            self._screen.err([harmless(happening.words)])

    def flush(self) -> None:
        """Print what is held of an unfinished line of the log."""
        self._quote(self._log.rest())

    def _quote(self, lines: list[str]) -> None:
        if lines:
            self._screen.err(quoted(self._screen, lines, self._screen.err_terminal))


def quoted(screen: Screen, lines: list[str], cutting: bool) -> list[str]:
    """Host text behind the bar, cut to the width on a terminal and whole elsewhere."""
    room = screen.width - len(screen.bar) - 1
    bar, bare = styled("dim", screen.bar), styled("dim", screen.bar.rstrip())
    return [bar + (cut(line, room, screen.mark) if cutting else line) if line.strip() else bare for line in lines]
