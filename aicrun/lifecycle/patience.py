"""Asking a machine that may fall silent for a while: the same question again, over a new connection.

Only questions that are safe to repeat pass here; a start is one of them because it carries its job id.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from aicrun.errors import HostUnreachable
from aicrun.hosts.backend import Backend
from aicrun.lifecycle.events import Remark, Tell
from aicrun.lifecycle.session import Session
from aicrun.plan.words import duration

T = TypeVar("T")

_PAUSE_S = 0.5
_PAUSE_MOST_S = 10.0
TOLD_AFTER_S = 20.0


class Patience:
    """Asks one machine about one run; gives up after `at_most_s` of silence (None: never)."""

    def __init__(self, session: Session, machine: str, run: str, tell: Tell, at_most_s: float | None) -> None:
        self.session = session
        self.machine = machine
        self.run = run
        self.tell = tell
        self._at_most_s = at_most_s
        self._silent_since: float | None = None
        self._told = False

    def ask(self, question: Callable[[Backend], T]) -> T:
        """The answer; raises the last `HostUnreachable` when patience ends."""
        pause = _PAUSE_S
        while True:
            try:
                answer = question(self.session.backend(self.machine))
            except HostUnreachable:
                self.session.drop(self.machine)
                self.silent()
                time.sleep(pause)
                pause = min(pause * 2, _PAUSE_MOST_S)
            else:
                self.answered()
                return answer

    def silent(self) -> None:
        """Count a silence; re-raises the fault being handled once it has lasted too long."""
        now = time.monotonic()
        self._silent_since = self._silent_since if self._silent_since is not None else now
        lasted = now - self._silent_since
        if self._at_most_s is not None and lasted >= self._at_most_s:
            raise  # only called while a HostUnreachable is being handled
        if lasted >= TOLD_AFTER_S and not self._told:
            self._told = True
            self.tell(
                Remark(
                    self.run,
                    f"{self.machine} does not answer for {duration(lasted)}; what runs there goes on, trying again",
                )
            )

    def answered(self) -> None:
        """The machine is there; says so when its silence was told."""
        if self._told and self._silent_since is not None:
            lasted = duration(time.monotonic() - self._silent_since)
            self.tell(Remark(self.run, f"{self.machine} answers again after {lasted}; nothing of the log was lost"))
        self._silent_since, self._told = None, False
