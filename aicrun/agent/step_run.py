"""One step of an attempt from its fork to its durable end: the order of writes is what makes endings honest.

room for the exit record, pump, gated child, `start.json`, gate, wait without reaping, `exit.json`, reap, leftovers,
end of the log (W3 to W9 of the supervision design). It must never write an exit that the kernel did not tell.
"""

import os
import signal
import time
from typing import Callable, Optional, Tuple

from aicrun.agent import cgroups, children, history, hooks, later, pump, spawn
from aicrun.agent.ending_tree import BUSY_TICK_S, TICK_S, Ending, Tree
from aicrun.agent.log_files import Caps
from aicrun.agent.programs import Program
from aicrun.agent.records import Reserved, insist, make_private, write_record
from aicrun.agent.redact import Redactor
from aicrun.agent.wishes import Wishes
from aicrun.wire import lean, names
from aicrun.wire.facts import BootIdentity
from aicrun.wire.jobs import StepExit, StepStart

EXIT_ROOM_BYTES = 4096
DRAIN_S = 5.0
PUMP_STALL_S = 5.0
PUMP_PAUSE_S = 0.02
TERM_COMES_S = 0.1


@lean.dataclass(frozen=True)
class Order:
    """What to run and for whom; `limit_s` is a fixed deadline (the setup's), None: the wishes' `max_duration_s`.

    `held` are descriptors of locks that pump and program inherit; `secrets` are values that the log must not hold.
    `meanwhile` is called while the step runs and says after how many seconds it wants to be called again. Without
    `has_group` its tree stays in the control group of the process that runs it.
    """

    job_id: str
    step: str
    attempt: int
    job_dir: str
    folder: str
    boot: BootIdentity
    oom_score: int
    caps: Caps
    limit_s: Optional[float] = None
    has_deadline: bool = False
    held: Tuple[int, ...] = ()
    secrets: Tuple[str, ...] = lean.field(default=(), repr=False)
    meanwhile: Optional[Callable[[], float]] = None
    has_group: bool = True


class NotStarted(Exception):
    """The step could not even be prepared; nothing of its program ran."""


def run_step(order: Order, program: Program, wishes: Wishes) -> StepExit:
    """Run one step to its end and return its exit record, which is durable by then.

    Raises `NotStarted` when its program was surely never executed, `children.Lost` when the kernel cannot tell how
    it ended (nothing is recorded then).
    """
    return _Step(order, program, wishes).run()


def write_spawn_error(order: Order, message: str, token: str = "") -> StepExit:
    """The exit of a step whose program could not be had at all, kept in its folder where that is possible."""
    record = StepExit(order.step, order.attempt, 0.0, time.time(), spawn_error=message[:1000], refused=token)
    try:
        make_private(order.folder)
        write_record(os.path.join(order.folder, names.STEP_EXIT), record)
    except OSError:
        # The disk may be what failed; the same exit goes into the job's end, whose room is reserved.
        pass
    return record


def _words(record: StepExit) -> str:
    if record.spawn_error:
        return "could not be started"
    return "code %d" % record.code if record.code is not None else "signal %d" % (record.signal or 0)


class _Step:
    def __init__(self, order: Order, program: Program, wishes: Wishes) -> None:
        self._order = order
        self._program = program
        self._wishes = wishes
        redactor = Redactor(order.secrets)
        self._journal = pump.Journal(redactor.longest)
        self._sink = pump.Sink(order.folder, order.caps, self._journal, redactor, order.held)
        self._pump = 0
        self._pump_done = False
        self._pump_started = 0.0
        self._pump_beats = (-1, 0.0)
        self._started = time.monotonic()

    def run(self) -> StepExit:
        order = self._order
        try:
            room = self._prepare()
        except OSError as fault:
            raise NotStarted("%s could not be started: %s" % (order.step, fault)) from fault
        child = self._child
        self._at("W5")
        self._started = time.monotonic()
        child.open()
        self._at("W6")
        history.note(order.job_dir, "step_started", detail=order.step)
        # What waits for the child anyway loads what it lacks, before anything that is not ours was begun.
        later.load()
        ended = self._wait()
        self._at("ended")
        record = self._exit(ended, child.failure())
        insist(lambda: room.commit(record), order.folder)
        self._at("W7")
        children.reap(child.pid)
        if not self._program.is_alone:
            self._ending.sweep(self._tend)
        cgroups.discard(self._group)
        self._at("W8")
        self._drain()
        self._at("W9")
        history.note(order.job_dir, "step_ended", detail="%s %s" % (order.step, _words(record)))
        return record

    def _prepare(self) -> Reserved:
        """Everything up to a child at its gate whose identity is durable; raises `OSError`, then nothing will run."""
        order, program = self._order, self._program
        make_private(order.folder)
        room = Reserved(os.path.join(order.folder, names.STEP_EXIT), EXIT_ROOM_BYTES)
        self._pipe, write_end = pump.make_pipe()
        try:
            self._start_pump()
            self._at("W3")
            self._fork_child(program, write_end)
            self._record_start(self._child)
        except OSError:
            room.give_up()
            os.close(self._pipe)
            raise
        finally:
            os.close(write_end)
        return room

    def _at(self, place: str) -> None:
        hooks.reached("%s.%s" % (self._order.step, place))

    def _fork_child(self, program: Program, write_end: int) -> None:
        """The child, in a control group of its own for all that it will start; the step runs without one as well."""
        order = self._order
        group = cgroups.Group()
        if order.has_group and not program.is_alone:
            group = cgroups.make(cgroups.name(order.job_id, order.attempt), cgroups.here())
        self._killed_before = cgroups.kills(group.memory)
        try:
            self._child = child = spawn.fork_gated(program, write_end, order.oom_score, order.held, group)
        except OSError:
            cgroups.discard(group)
            raise
        self._at("W4")
        if not program.is_alone:
            # Meanwhile the kernel lets the child into its group; its gate is closed for longer.
            later.load()
        outside = child.outside()
        if outside:
            cgroups.discard(group)
            group = cgroups.Group(why=outside)
        self._group = group
        whose = (order.job_id, order.step, order.job_dir, order.boot, child.pid, child.ticks)
        self._ending = Ending(Tree(*whose, self._group.tree), self._wishes, lambda: self._pump)

    def _record_start(self, child: spawn.Gated) -> None:
        order, boot, group = self._order, self._order.boot, self._group
        identity = (boot.boot_id, boot.pid_namespace, boot.init_ticks)
        start = StepStart(
            *(order.step, order.attempt, child.pid, child.ticks, child.pid, *identity, time.time()),
            cgroup=group.tree,
            cgroup_memory=group.memory,
            cgroup_why=group.why,
        )
        try:
            write_record(os.path.join(order.folder, names.STEP_START), start)
        except OSError:
            child.abandon()
            children.reap(child.pid)
            cgroups.discard(group)
            raise

    def _exit(self, ended: children.Ended, error: str) -> StepExit:
        order = self._order
        common = StepExit(order.step, order.attempt, time.monotonic() - self._started, time.time())
        if error:
            return lean.replace(common, spawn_error=error[:1000])
        ending = self._ending
        memory = cgroups.verdict(self._group, self._killed_before, ended.code, ended.signal, ending.kill_sent)
        return lean.replace(
            common,
            code=ended.code,
            signal=ended.signal,
            stop_sent=ending.stop_sent,
            timed_out=ending.timed_out,
            oom_kill=memory.killed,
            oom_suspected=memory.suspected,
            oom_shared=memory.shared,
        )

    # Waiting and obeying.

    def _wait(self) -> children.Ended:
        while True:
            ended = children.ended(self._child.pid)
            if ended is not None:
                return self._ended_alone(ended)
            deadline = self._deadline()
            self._ending.obey(deadline)
            self._tend()
            again_s = self._order.meanwhile() if self._order.meanwhile is not None else TICK_S
            try:
                children.wait(min(again_s, self._ending.next_look_s(deadline)))
            except children.Leave as word:
                return self._leave(word)

    def _leave(self, word: children.Leave) -> children.Ended:
        """The service manager ends us: pass it on and see the step out. How it ends now is no end of its own.

        Raises `children.Lost` for a command, which has run and whose end must be told; else, and while the reason is
        not known, `Leave` again: who asks next sees whether it is another boot. Only what a stop was sent to before is
        an end as every other.
        """
        self._ending.begin(float(self._wishes.limits().grace_s))
        ended = children.ended(self._child.pid)
        while ended is None:
            self._ending.insist()
            self._tend()
            children.wait(self._ending.next_look_s(None))
            ended = children.ended(self._child.pid)
        if self._ending.stop_sent:
            return ended
        self._drain()
        if self._order.step != "command" or not word.reason:
            raise word
        how = "code %d" % ended.code if ended.code is not None else "signal %d" % (ended.signal or 0)
        raise children.Lost("%s; told to end, its command ended with %s" % (word, how), word.reason)

    def _ended_alone(self, ended: children.Ended) -> children.Ended:
        """How it ended, unless all around us is being ended: then our own SIGTERM is here, or on its way."""
        may_come = ended.signal in (signal.SIGTERM, signal.SIGHUP) and not self._ending.begun
        until = time.monotonic() + (TERM_COMES_S if may_come else 0.0)
        while time.monotonic() < until or signal.SIGTERM in signal.sigpending():
            try:
                children.wait(until - time.monotonic())
            except children.Leave as word:
                return self._leave(word)
        return ended

    def _deadline(self) -> Optional[float]:
        limit_s = self._order.limit_s
        if limit_s is None and self._order.has_deadline:
            limit_s = self._wishes.limits().max_duration_s
        return self._started + limit_s if limit_s is not None else None

    # The log.

    def _tend(self) -> None:
        """Reap orphans; replace a pump that died or that stands still although output waits."""
        ended = children.ended(self._pump) if self._pump else None
        if ended is not None:
            children.reap(self._pump)
            self._pump = 0
            self._pump_done = ended.code == 0
        if not self._pump and not self._pump_done and time.monotonic() > self._pump_started + PUMP_PAUSE_S:
            try:
                self._start_pump()
            except OSError:
                # No process can be had now: the pipe holds what comes, and the next look tries again.
                self._pump_started = time.monotonic()
        children.reap_orphans(frozenset((self._child.pid, self._pump)))
        self._watch_pump()

    def _watch_pump(self) -> None:
        now = time.monotonic()
        beats = self._journal.beats()
        if not self._pump or beats != self._pump_beats[0] or not pump.waiting_bytes(self._pipe):
            self._pump_beats = (beats, now)
        elif now - self._pump_beats[1] > PUMP_STALL_S:
            # The next one is forked when this one is surely gone: two would both read.
            os.kill(self._pump, signal.SIGKILL)

    def _start_pump(self) -> None:
        self._pump = spawn.fork_pump(self._pipe, self._sink)
        self._pump_started = time.monotonic()
        self._pump_beats = (-1, self._pump_started)

    def _drain(self) -> None:
        """Let the pump reach the end of the pipe; what still holds the pipe open after `DRAIN_S` is not waited for."""
        until = time.monotonic() + DRAIN_S
        while not self._pump_done and time.monotonic() < until:
            self._tend()
            if not self._pump_done:
                children.wait(BUSY_TICK_S)
        if self._pump:
            self._dismiss_pump()
        os.close(self._pipe)

    def _dismiss_pump(self) -> None:
        self._journal.tell_last()
        for number in (signal.SIGTERM, signal.SIGKILL):
            os.kill(self._pump, number)
            until = time.monotonic() + DRAIN_S
            while time.monotonic() < until:
                if children.ended(self._pump) is not None:
                    children.reap(self._pump)
                    return
                children.wait(BUSY_TICK_S)
