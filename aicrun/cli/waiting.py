"""The session of a command, and one line on a terminal while machines are asked: how many answered, who has not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aicrun import api
from aicrun.cli.screen import Screen
from aicrun.lifecycle.events import Waiting
from aicrun.plan.words import cut, some
from aicrun.spec.diagnostics import Diagnostic


@contextmanager
def open_session(
    screen: Screen, machines: str = "", folder: str = "."
) -> Iterator[tuple[api.Session, tuple[Diagnostic, ...]]]:
    """`api.open_session`, watched on `screen`."""
    with api.open_session(machines, folder) as (session, warnings):
        session.waiting = lambda waiting: _show(screen, waiting)
        yield session, warnings


def _show(screen: Screen, waiting: Waiting | None) -> None:
    if waiting is None:
        screen.clear()
    elif waiting.missing:
        screen.rewrite(cut(line(waiting), screen.width - 1, screen.mark))


def line(waiting: Waiting) -> str:
    """`60 of 64 machines answered, 1 failed; waiting for m3, m9 and m12`; of many only the first are named."""
    answered = waiting.asked - waiting.failed - len(waiting.missing)
    machines = "machine" if waiting.asked == 1 else "machines"
    failed = f", {waiting.failed} failed" if waiting.failed else ""
    return f"{answered} of {waiting.asked} {machines} answered{failed}; waiting for {some(waiting.missing, 3)}"
