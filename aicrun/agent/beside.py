"""Keeps one program of ours running beside a job's command, and ends it with it: the one that uploads early.

A process of its own supervises it as a step is supervised, with a log of its own, so that the keeper only has to look
after the command. It is forked from the keeper and carries the keeper's mark: what ends the command's tree leaves it
alone, and its control group is the keeper's, so that its memory and its out-of-memory kills are not the command's. It
ends when the keeper says so, and by itself when the keeper is gone.
"""

import os
import signal
import sys
import time
from typing import Callable, Optional

from aicrun.agent import children, family, handles, hooks, step_run
from aicrun.agent.process import become_subreaper, look, send_signal
from aicrun.agent.programs import Program
from aicrun.agent.records import Unreadable, read_record, set_aside
from aicrun.agent.refused import Refused
from aicrun.agent.wishes import Wishes
from aicrun.wire import lean, names
from aicrun.wire.jobs import Limits, Retry, StepStart, StopIntent

# It begins when the command has run for so long: most faults come sooner.
AFTER_S = hooks.number("EARLY_AFTER_MS", 1000) / 1000.0
GRACE_S = 5
# Longer than its own TERM, grace and KILL take.
LEAVES_S = 30.0
# It never ends by itself: what did is broken, and tried again after a while.
PAUSES_S = (5.0, 60.0, 600.0)


class Beside:
    """The process beside one command; `look` is called while the command runs, `end` once it has ended."""

    def __init__(
        self, order: step_run.Order, program: Callable[[], Program], wishes: Wishes, more: Callable[[], float]
    ) -> None:
        """`order` is of the step beside, `program` gives what it runs; `more` is what else is to be looked at."""
        self._order = order
        self._program = program
        self._wishes = wishes
        self._more = more
        self._due_at: Optional[float] = time.monotonic() + AFTER_S
        self._pid = self._ticks = self._gone = 0
        self._is_over = False

    def look(self) -> float:
        """Start it when it is time to, end it when a stop is asked for; in how many seconds to ask again."""
        again_s = self._more()
        if self._wishes.stop() is not None:
            self._is_over = True
            self._tell_to_end()
        if not self._is_over and self._due_at is None and self._is_gone():
            # Somebody ended it: the run would go on without, and nobody would know.
            self._due_at = time.monotonic() + (AFTER_S, *PAUSES_S)[min(self._gone, len(PAUSES_S))]
            self._gone += 1
        if self._is_over or self._due_at is None:
            return again_s
        left_s = self._due_at - time.monotonic()
        if left_s > 0:
            return min(left_s, again_s)
        self._due_at = None
        try:
            self._start()
        except (OSError, Refused):
            # No process can be had now: the run goes on without, and its last step uploads what is left.
            pass
        return again_s

    def end(self) -> None:
        """Tell it to end and wait until nothing of it lives; it is ended by force when it does not."""
        if not self._pid:
            return
        until, again_at = time.monotonic() + hooks.number("LEAVES_S", int(LEAVES_S)), 0.0
        while self._lives():
            if time.monotonic() >= again_at:
                # Said once it may be lost: of two waiting signals of one kind the kernel keeps the first, a stranger's.
                self._tell_to_end()
                again_at = time.monotonic() + 1.0
            if time.monotonic() > until:
                tree = family.Family(self._order.job_id, self._pid).members()
                send_signal(self._pid, self._ticks, signal.SIGKILL)
                family.signal_all(tree, signal.SIGKILL)
            time.sleep(0.01)
        children.reap(self._pid)
        self._pid = 0

    def _tell_to_end(self) -> None:
        if self._pid and self._lives():
            send_signal(self._pid, self._ticks, signal.SIGTERM)

    def _lives(self) -> bool:
        proc = look(self._pid)
        return proc is not None and proc.lives and proc.ticks == self._ticks

    def _is_gone(self) -> bool:
        """True when it ended before its time, and what it supervised has ended too: two would be in the way."""
        if not self._pid or self._lives():
            return False
        try:
            begun = read_record(os.path.join(self._order.folder, names.STEP_START), StepStart)
        except Unreadable:
            begun = None
        return begun is None or not family.main_lives(begun)

    def _start(self) -> None:
        program = self._program()
        keeper = os.getpid()
        pid = os.fork()
        if pid:
            proc = look(pid)
            self._pid, self._ticks = pid, proc.ticks if proc is not None else 0
            return
        try:
            os.setsid()
            # Neither the keeper's lock nor those of cards may live on here.
            handles.close_all_but(())
            become_subreaper()
            _supervise(self._order, program, Word(keeper))
        except Exception as error:  # noqa: BLE001  the edge of this process
            sys.excepthook(type(error), error, error.__traceback__)
        finally:
            os._exit(0)


class Word(Wishes):
    """What the process beside is told: to go on, until its keeper says otherwise or is gone."""

    def __init__(self, keeper: int) -> None:
        self._keeper = keeper
        self._ends: Optional[StopIntent] = None
        children.heed(self._end)

    def stop(self) -> Optional[StopIntent]:
        """A stop, once it is to end."""
        if os.getppid() != self._keeper:
            self._end(self._keeper)
        return self._ends

    def any_stop(self) -> Optional[StopIntent]:
        """The same."""
        return self.stop()

    def served(self, intent: StopIntent) -> None:
        """Nothing comes after it."""

    def limits(self) -> Limits:
        """Its grace is its own, however long the command's is."""
        return Limits(grace_s=GRACE_S)

    def retry(self) -> Retry:
        """None: see `_supervise`."""
        return Retry()

    def _end(self, sender: int) -> None:
        # What others want of it is nothing to a run that goes on: it ends with its command, or with its keeper.
        if sender != self._keeper:
            return
        self._ends = self._ends or StopIntent("keeper", GRACE_S, time.time())


def order_of(order: step_run.Order) -> step_run.Order:
    """The order of the step beside a job's command: its history is its own, and it is no part of the job's tree."""
    return lean.replace(order, job_id="beside " + order.job_id, job_dir=order.folder, has_group=False)


def own(program: Program) -> Program:
    """The same without the job's mark, by which the command's tree is found."""
    return lean.replace(program, env={name: value for name, value in program.env.items() if name != names.JOB_ID})


def _supervise(order: step_run.Order, program: Program, word: Word) -> None:
    failed = 0
    while word.stop() is None:
        if os.path.exists(order.folder):
            set_aside(order.folder)
        try:
            step_run.run_step(order, program, word)
        except step_run.NotStarted as error:
            sys.stderr.write("%s\n" % error)
        until = time.monotonic() + PAUSES_S[min(failed, len(PAUSES_S) - 1)]
        failed += 1
        while word.stop() is None and time.monotonic() < until:
            children.wait(1.0)
