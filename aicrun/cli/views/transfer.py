"""How far a transfer is, as a bar on a terminal, and what it came to. Names are the host's text."""

from __future__ import annotations

import time
from types import TracebackType

from aicrun import api
from aicrun.cli.screen import Screen
from aicrun.plan.words import cells, counted, cut, duration, harmless, size

_NAME_CELLS = 24
_BAR_CELLS = 16
# What is done sooner needs no bar.
_AFTER_S = 2.0
_EACH_S = 0.1


class Bar:
    """A line on stderr that is rewritten, where that is a terminal and it takes a while; nothing else."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._began_at = self._shown_at = time.monotonic()
        self._first: int | None = None

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._screen.clear()

    def tell(self, moving: api.transfer.Moving) -> None:
        """Show how far it is."""
        now = time.monotonic()
        if self._first is None:
            # What lay there already took no time, and would make the rate a fable.
            self._first, self._began_at = moving.done_bytes, now
        if self._screen.json or now - self._began_at < _AFTER_S or now - self._shown_at < _EACH_S:
            return
        self._shown_at = now
        rate = (moving.done_bytes - self._first) / (now - self._began_at)
        self._screen.rewrite(bar_line(self._screen, moving, rate))


def bar_line(screen: Screen, moving: api.transfer.Moving, rate: float) -> str:
    """`model.bin  [####----]  1.2 GiB of 4.0 GiB, 210.4 MiB/s, 14s left`; `rate` is in bytes a second."""
    part = moving.done_bytes / moving.whole_bytes if moving.whole_bytes else 1.0
    full = round(part * _BAR_CELLS)
    name = cut(harmless(moving.name), _NAME_CELLS, screen.mark)
    far = f"{size(moving.done_bytes)} of {size(moving.whole_bytes)}"
    left = f", {duration((moving.whole_bytes - moving.done_bytes) / rate)} left" if rate > 0 else ""
    words = f"[{'#' * full}{'-' * (_BAR_CELLS - full)}] {far}, {size(int(rate))}/s{left}"
    room = screen.width - 1 - cells(words) - 2
    return cut(f"{cut(name, max(room, 6), screen.mark)}  {words}", screen.width - 1, screen.mark)


def moved_lines(screen: Screen, moved: api.transfer.Moved) -> list[str]:
    """One line of what is in place now, and what was left out."""
    same = f", {moved.same} of them there already" if moved.same else ""
    what, where = f"{counted(moved.files, 'file')}, {size(moved.bytes)}, checked{same}:", harmless(moved.to)
    # Where it lies is never cut: it is what a person goes on with.
    shown = [f"{what} {where}"] if cells(f"{what} {where}") <= screen.width else [what, f"  {where}"]
    if moved.skipped:
        first = ", ".join(harmless(name) for name in moved.skipped[:3])
        shown.append(cut(f"left out, for links and devices are not followed: {first}", screen.width, screen.mark))
    return shown
