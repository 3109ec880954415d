"""How far a transfer is, as a bar on a terminal, and what it came to. Names are the host's text."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from aicrun import api
from aicrun.cli.screen import Screen
from aicrun.plan.words import counted, cut, harmless, size

_NAME_CELLS = 24


class Bar:
    """A bar on stderr where that is a terminal, nothing else."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._progress: Progress | None = None

    def __enter__(self) -> Bar:
        if self._screen.err_terminal and not self._screen.json:
            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
            console = Console(stderr=True, markup=False, highlight=False)
            self._progress = Progress(
                *columns, TransferSpeedColumn(), TimeRemainingColumn(), console=console, transient=True
            )
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def tell(self, moving: api.transfer.Moving) -> None:
        """Show how far it is."""
        if self._progress is None:
            return
        if not self._progress.tasks:
            self._progress.add_task("", total=moving.whole_bytes)
        words = cut(harmless(moving.name), _NAME_CELLS, self._screen.mark)
        self._progress.update(self._progress.tasks[0].id, completed=moving.done_bytes, description=words)


def moved_lines(screen: Screen, moved: api.transfer.Moved) -> list[str]:
    """One line of what is in place now, and what was left out."""
    same = f", {moved.same} of them there already" if moved.same else ""
    shown = [
        cut(
            f"{counted(moved.files, 'file')}, {size(moved.bytes)}, checked{same}: {harmless(moved.to)}",
            screen.width,
            screen.mark,
        )
    ]
    if moved.skipped:
        first = ", ".join(harmless(name) for name in moved.skipped[:3])
        shown.append(cut(f"left out, for links and devices are not followed: {first}", screen.width, screen.mark))
    return shown
