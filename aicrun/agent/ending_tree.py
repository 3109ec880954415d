"""How the keeper ends the tree of a step: for a stop, for a deadline, and what is left when the command is over.

TERM, grace, KILL; whoever survives KILL for long is named durably. It must not wait for the step's own process.
"""

import os
import signal
import time
from typing import Callable, List, Optional, Tuple

from aicrun.agent import children, family, hooks
from aicrun.agent.history import note
from aicrun.agent.kept import Stuck, StuckProcess
from aicrun.agent.process import Proc, look
from aicrun.agent.records import insist, write_record
from aicrun.agent.wishes import Wishes
from aicrun.wire import lean, names
from aicrun.wire.facts import BootIdentity

LEFTOVER_GRACE_S = 10.0
STUCK_AFTER_S = 60
TICK_S = 1.0
BUSY_TICK_S = 0.05


@lean.dataclass(frozen=True)
class Tree:
    """Whose processes are meant: the step's main process by identity, and its control group (empty: none)."""

    job_id: str
    step: str
    job_dir: str
    boot: BootIdentity
    pid: int
    ticks: int
    group: str = ""


class Ending:
    """The end of one step's tree; `stop_sent` and `timed_out` are True once our signal reached a living process.

    `spared` are processes of ours that stand below the keeper too, asked for at each look.
    """

    def __init__(self, tree: Tree, wishes: Wishes, spared: Callable[[], int]) -> None:
        self._tree = tree
        self._wishes = wishes
        self._spared = spared
        self._term_at: Optional[float] = None
        self._kill_at: Optional[float] = None
        self._stuck: Tuple[StuckProcess, ...] = ()
        self.kill_sent = False
        self.stop_sent = False
        self.timed_out = False

    def obey(self, deadline: Optional[float]) -> None:
        """Do what a stop intent asks for, or the `deadline` (of the monotonic clock) once it is over."""
        now = time.monotonic()
        stop = self._wishes.stop() or (self._wishes.any_stop() if self.stop_sent else None)
        if stop is not None and not self.begun:
            self.stop_sent = self.begin(float(stop.grace_s))
            if self.stop_sent:
                self._wishes.served(stop)
                note(self._tree.job_dir, "stop_sent", detail=self._tree.step)
        elif deadline is not None and now >= deadline and not self.begun:
            self.timed_out = self.begin(float(self._wishes.limits().grace_s))
        if stop is not None and self._term_at is not None:
            # A second stop may shorten the grace of the first, or of a deadline; it never makes it longer.
            self._kill_at = min(self._kill_at or now, self._term_at + stop.grace_s)
        self.insist()

    @property
    def begun(self) -> bool:
        """True once TERM was sent, for whatever reason."""
        return self._term_at is not None

    def begin(self, grace_s: float) -> bool:
        """TERM to the step's process group, if that was not yet; False when no living process was there to get it."""
        tree = self._tree
        if self.begun or children.ended(tree.pid) is not None:
            return self.begun
        if family.signal_group(tree.pid, tree.ticks, signal.SIGTERM):
            self._term_at = time.monotonic()
            self._kill_at = self._term_at + grace_s
        return self.begun

    def insist(self) -> None:
        """KILL to the whole tree, once its grace is over."""
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill()

    def next_look_s(self, deadline: Optional[float]) -> float:
        """How long nothing needs to be done, at most."""
        now, looks = time.monotonic(), [TICK_S]
        if self._kill_at is not None:
            looks.append(self._kill_at - now if self._kill_at > now else self._busy_tick_s())
        if deadline is not None and not self.begun:
            looks.append(deadline - now)
        return max(0.0, min(looks))

    def sweep(self, tend: Callable[[], None]) -> None:
        """End what the step left behind: TERM, grace, KILL, until two looks in a row find nobody."""
        members = self._members() or self._members()
        if not members and self._alone():
            return
        family.signal_all(members, signal.SIGTERM)
        if self._kill_at is None:
            self._kill_at = time.monotonic() + min(LEFTOVER_GRACE_S, float(self._wishes.limits().grace_s))
        empty = 0
        while empty < 2:
            tend()
            members = self._members()
            empty = empty + 1 if not members and self._alone() else 0
            if not empty and time.monotonic() >= self._kill_at:
                near = self._near()
                family.kill_all(members, near)
                # One that a process beside the command has left behind is ours as well, and carries no mark.
                self._tell_stuck(members or near.members())
            children.wait(self._busy_tick_s())
        note(self._tree.job_dir, "leftovers_killed", detail=self._tree.step)

    def _busy_tick_s(self) -> float:
        return TICK_S if self._stuck else BUSY_TICK_S

    def _members(self) -> List[Proc]:
        tree, main = self._tree, look(self._tree.pid)
        found = family.Family(tree.job_id, os.getpid(), frozenset((self._spared(),)), tree.group).members()
        if main is not None and main.lives and main.ticks == tree.ticks and main not in found:
            # A setup that is done without an exec still carries the keeper's mark.
            found.append(main)
        return found

    def _kill(self) -> None:
        members = self._members()
        if family.kill_all(members, self._near()) and not self.kill_sent:
            self.kill_sent = True
            note(self._tree.job_dir, "kill_sent", detail=self._tree.step)
        self._tell_stuck(members)

    def _alone(self) -> bool:
        return self._near().nobody() and not children.left(family.keepers_below() | {self._spared()})

    def _near(self) -> family.Near:
        groups = (self._tree.group,) if self._tree.group else ()
        return family.Near(groups, frozenset((self._spared(),)))

    def _tell_stuck(self, members: List[Proc]) -> None:
        """Once KILL was in vain for long: name who is left, durably, so that a stop can be told to have failed."""
        now, patience_s = time.monotonic(), hooks.number("STUCK_S", STUCK_AFTER_S)
        if self._kill_at is None or now < self._kill_at + patience_s or not members:
            return
        who = tuple(StuckProcess(member.pid, member.ticks) for member in members)
        if who != self._stuck:
            self._stuck = who
            record = Stuck(who, self._tree.boot, time.time())
            insist(lambda: write_record(os.path.join(self._tree.job_dir, names.STUCK), record), self._tree.job_dir)
