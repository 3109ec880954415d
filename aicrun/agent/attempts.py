"""The attempts of one job in the hands of its keeper: which is the newest, whether one follows, and the pause between.

It must not run a step. What is due is on the disk before the cards are given up, so that whoever asks sees why the job
waits; a stop ends the pause, and a changed rule is heeded in it.
"""

import os
import time
from typing import List, Optional

from aicrun.agent import children, hooks
from aicrun.agent.history import note
from aicrun.agent.kept import Pause
from aicrun.agent.records import insist, write_record
from aicrun.agent.retry import again
from aicrun.agent.wishes import Wishes
from aicrun.wire import lean, names
from aicrun.wire.jobs import NextAttempt, StepExit
from aicrun.wire.status import next_words

TICK_S = 1.0


class Attempts:
    """The newest attempt's number and exits, the setup's first; `not_made` tells why one that is due is not made."""

    def __init__(self, job_dir: str, first: int, wishes: Wishes) -> None:
        self.number = first
        self.exits: List[StepExit] = []
        self.not_made = ""
        self._job_dir = job_dir
        self._wishes = wishes
        self._due: Optional[Pause] = None

    @property
    def is_due(self) -> bool:
        """True from the end of an attempt that another follows until that one begins."""
        return self._due is not None

    @property
    def words(self) -> str:
        """What is due, in words; empty when nothing is."""
        return next_words(self._next(0.0)) if self._due is not None else ""

    def missed(self) -> Optional[NextAttempt]:
        """The attempt that was due and was not made, for the job's end."""
        return self._next(0.0) if self._due is not None else None

    def begin(self) -> None:
        """The attempt that is due begins (or the first): the exits of the one before are its own no more."""
        if self._due is not None:
            self.number, self._due = self._due.attempt, None
            self.exits = [end for end in self.exits if end.step == "setup"]

    def follows(self) -> bool:
        """Whether another attempt follows the one that has ended; its pause begins, durably, with this call."""
        found = again(self._wishes.retry(), tuple(self.exits), self.number)
        if found is None:
            return False
        most = 1 + self._wishes.retry().most
        began_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._keep(Pause(self.number + 1, most, found.cause, found.pause_s, began_s))
        note(self._job_dir, "retry", detail=next_words(self._next(found.pause_s)))
        hooks.reached("pause")
        return True

    def wait(self) -> bool:
        """Let the pause pass; False when the attempt is not made: it was stopped, or its rule is another now."""
        while self._due is not None:
            if self._wishes.stop() is not None:
                return self.give_up("stopped")
            if not self._stands(self._due):
                return self.give_up("changed")
            left_s = self._due.began_s + self._due.pause_s - time.clock_gettime(time.CLOCK_BOOTTIME)
            if left_s <= 0:
                hooks.reached("pause_over")
                return True
            children.wait(min(left_s, TICK_S))
        return False

    def give_up(self, why: str) -> bool:
        """The attempt that is due is not made, because of `why` (a token of `NextAttempt.not_made`); False."""
        self.not_made = why
        note(self._job_dir, "retry", detail=self.words)
        return False

    def _stands(self, due: Pause) -> bool:
        """Whether the rule of now still allows what is due; a changed pause or count is put on record."""
        rule = self._wishes.retry()
        found = again(rule, tuple(self.exits), self.number)
        if found is None:
            return False
        now = lean.replace(due, most=1 + rule.most, pause_s=found.pause_s)
        if now != due:
            self._keep(now)
        return True

    def _keep(self, due: Pause) -> None:
        self._due = due
        insist(lambda: write_record(os.path.join(self._job_dir, names.RETRY), due), self._job_dir)

    def _next(self, in_s: float) -> NextAttempt:
        due = self._due
        if due is None:
            raise RuntimeError("no attempt is due")
        return NextAttempt(due.attempt, due.most, due.cause, in_s, self.not_made)
