"""The keeper of one job: waits for the decision, runs the steps of its attempts, writes the end. One process per job.

Everything is imported before anything that is not ours is started. It is the only one who records how a step ended; it
never makes up a number, and while the disk refuses a record it stays alive and tries again. Nothing of the job may
depend on a connection.
"""

import os
import sys
import time
from typing import TYPE_CHECKING, Callable, Dict, Optional

from aicrun.agent import (
    brought,
    card_hold,
    children,
    disk_room,
    ending_tree,
    handles,
    hidden_names,
    hooks,
    keepers,
    last_upload,
    later,
    programs,
    spawn,
    stall,
    step_run,
    telemetry,
    vault,
)
from aicrun.agent.attempts import Attempts
from aicrun.agent.decide import expire, standing
from aicrun.agent.dismissal import Dismissal
from aicrun.agent.history import note
from aicrun.agent.home import Home, open_home
from aicrun.agent.kept import Launch
from aicrun.agent.log_files import Caps
from aicrun.agent.process import become_subreaper, boot_identity, has_pidfd, start_ticks
from aicrun.agent.records import Reserved, Unreadable, insist, read_record, set_aside, write_record
from aicrun.agent.redact import Redactor
from aicrun.agent.refused import Refused
from aicrun.agent.wishes import Wishes
from aicrun.wire import lean, names
from aicrun.wire.jobs import SCHEMA, End, JobRequest, StepExit
from aicrun.wire.upload import EARLY_STEP, is_early

if TYPE_CHECKING:
    from aicrun.agent import beside

END_ROOM_BYTES = 32 * 1024
GATE_TICK_S = 0.1
# Importing torch from a cold network disk takes minutes.
PREFLIGHT_S = 600.0
# More than the probe of an upload target takes by its own limit.
PROBE_S = 330.0
# Why no card is held yet: a data set may take hours, and no card shall idle for it.
NOT_FETCHED = "its inputs are fetched first"
# A setup ends itself when its time is over, and says at what; so much later its keeper does.
SETUP_GRACE_S = float(hooks.number("SETUP_GRACE_S", 5))
ON_CARDS = ("preflight", "command")


def main(job_dir: str, role: str) -> int:
    """Keep the job in `job_dir`; `role` is `keeper` (the whole job) or `again` (its upload once more)."""
    children.prepare()
    try:
        return _keep(job_dir, role)
    except children.Leave as word:
        # Without an end of ours: what is durable by now decides.
        sys.stderr.write("%s\n" % word)
        return 0
    except (OSError, Refused, Unreadable) as error:
        sys.stderr.write("%s\n" % error)
        return 1
    except Exception as error:  # noqa: BLE001  the edge of this process
        # The edge of this process: what it cannot answer must stand where the agent looks for its words.
        sys.excepthook(type(error), error, error.__traceback__)
        return 1


def _keep(job_dir: str, role: str) -> int:
    home = open_home(os.environ)
    request = read_record(os.path.join(job_dir, names.REQUEST), JobRequest)
    if request is None or os.path.realpath(home.job_dir(request.job_id)) != os.path.realpath(job_dir):
        raise Unreadable(job_dir, "it is no job of this account")
    if handles.hold(os.path.join(job_dir, names.KEEPER_LOCK), 10.0) is None:
        raise Unreadable(job_dir, "it has a keeper already")
    try:
        return _kept(Keeper(home, _wanted(home, request, role)), role)
    finally:
        # However it ended: who wants to upload again, or to go on after a restart, brings the values again.
        hidden_names.let_go(home, job_dir)


def _wanted(home: Home, request: JobRequest, role: str) -> JobRequest:
    if role != "again":
        return request
    # Imported here: only a job that has ended can have got another target.
    from aicrun.agent import retarget

    return retarget.retargeted(home, request)


def _kept(keeper: "Keeper", role: str) -> int:
    if role == "again":
        keeper.announce(role)
        keeper.load()
        later.load()
        keeper.upload_again()
        return 0
    keeper.join_line()
    spawn.fork_usher()
    keeper.announce(role)
    # The agent decides meanwhile; nothing of the job has started yet.
    keeper.load()
    if keeper.gate():
        keeper.run()
    else:
        keeper.leave_line()
    return 0


class Keeper:
    """One job in the hands of this process."""

    def __init__(self, home: Home, request: JobRequest) -> None:
        self._home = home
        self._request = request
        self._job_dir = home.job_dir(request.job_id)
        self._record_dir = home.record_dir(request.run, request.job_id)
        self._boot = boot_identity()
        self._wishes = Wishes(self._job_dir, self._record_dir, request)
        self._cards = card_hold.CardHold(home, request)
        self._secrets = vault.read(self._job_dir)
        self._never_started = self._reason = ""
        self._beside: Optional["beside.Beside"] = None
        self._oom_score = spawn.protect_keeper()
        self._subreaper = become_subreaper()
        whole, ring = hooks.number("LOG_CAP", names.LOG_CAP_BYTES), hooks.number("LOG_TAIL", names.LOG_TAIL_BYTES)
        self._caps = Caps(whole - ring, ring)

    def join_line(self) -> None:
        """A place in line, or the cards at once; what refuses it is kept for the agent, whole. Raises `Refused`."""
        try:
            self._cards.stand(NOT_FETCHED if brought.waits_for(self._request) else "")
        except Refused as error:
            told = {"schema": SCHEMA, "token": error.token, "message": error.message, "facts": error.facts}
            write_record(os.path.join(self._job_dir, names.REFUSED), told)
            raise

    def leave_line(self) -> None:
        """Whatever was held is free for others."""
        self._cards.release()

    def announce(self, role: str) -> None:
        """Write who keeps the job now; the agent that launched us waits for it (W1)."""
        ticks = start_ticks(os.getpid()) or 0
        agent = os.path.dirname(programs.boot_argv()[-1])
        token, launched = keepers.told(os.environ)
        who = (role, os.getpid(), ticks, self._boot, agent, sys.executable, launched.mode if launched else "")
        record = Launch(*who, self._subreaper, has_pidfd(), time.time(), token=token, launched=launched)
        write_record(os.path.join(self._job_dir, names.LAUNCH), record)
        keepers.drop_order(self._job_dir)
        children.heed(Dismissal(self._job_dir, self._wishes, launched))
        note(self._job_dir, "keeper_started", detail=role)
        hooks.reached("W1")

    def load(self) -> None:
        """Load the rest of what this process runs: nobody who starts a job waits for it to be announced."""
        from aicrun.agent import learn

        self._learn = learn.learn

    def gate(self) -> bool:
        """Wait for the decision: True when it is `go`. Without a touch for `GATE_S` it becomes `no`."""
        while True:
            decision = standing(self._home, self._request.run, self._request.job_id)
            if decision is None:
                decision = expire(self._home, self._request.run, self._request.job_id)
            if decision is not None:
                hooks.reached("W2")
                return decision.decision == "go"
            self._cards.take()
            children.wait(GATE_TICK_S)

    def run(self) -> None:
        """The attempts, the job's end, and what is learned from it."""
        room = Reserved(os.path.join(self._record_dir, names.END), END_ROOM_BYTES)
        made = Attempts(self._job_dir, self._request.first_attempt, self._wishes)
        lost = reason = ""
        try:
            self._attempts(made)
        except children.Lost as error:
            lost, reason = str(error), error.reason
        end = End(
            attempts=made.number,
            at=time.time(),
            exits=tuple(made.exits),
            upload=last_upload.result(self._record_dir) or last_upload.missed(self._request.upload, made.exits),
            stop=self._wishes.any_stop(),
            lost=reason or ("never_started" if self._never_started and not made.is_due else ""),
            detail=lost or self._never_started,
            next_attempt=made.missed(),
            reason=self._reason if not made.is_due else "",
        )
        insist(lambda: room.commit(end, once=True))
        if not lost:
            # A tree that nobody could wait for may live: then the cards stay held by what lives of it.
            self.leave_line()
        hooks.reached("W10")
        note(self._job_dir, "ended")
        self._learn(self._home, self._request)

    def upload_again(self) -> None:
        """The upload step once more, for a job that has ended; its exit goes beside the end, but of one checkpoint."""
        attempt = self._newest_attempt()
        folder = self._home.step_dir(self._request.job_id, attempt, "upload")
        if os.path.exists(folder):
            set_aside(folder)
        result = self._step("upload", attempt)
        if not os.path.exists(os.path.join(self._job_dir, names.UPLOAD_ONLY)):
            insist(lambda: write_record(os.path.join(self._record_dir, names.UPLOAD_EXIT), result))
            last_upload.tell(self._job_dir, self._record_dir)
        self._learn(self._home, self._request)

    def _attempts(self, made: Attempts) -> None:
        """setup; preflight and command, again as the retry rule says; upload. An exit is kept once it is durable."""
        if self._wishes.stop() is not None:
            return
        made.exits.append(self._step("setup", made.number))
        if made.exits[-1].code != 0 or made.exits[-1].stop_sent or self._wishes.stop() is not None:
            return
        if self._cards.is_paused:
            self._cards.go_on()
        while self._at_turn():
            telemetry.set_aside(self._job_dir, made.number)
            made.begin()
            if not self._may_start(made):
                break
            made.exits.append(self._step("command", made.number))
            self._cards.drain()
            if not made.follows():
                break
            self._cards.pause(made.words)
            if not made.wait():
                break
            self._cards.go_on()
        else:
            if not made.is_due:
                return
            made.give_up("stopped" if self._wishes.stop() is not None else "card")
        self.leave_line()
        if last_upload.follows(self._request.upload, made.exits[-1], self._wishes):
            made.exits.append(self._step("upload", made.number))
            last_upload.tell(self._job_dir, self._record_dir)

    def _may_start(self, made: Attempts) -> bool:
        """The preflight, where there is one: True when the command may follow it."""
        if not self._request.preflight:
            return True
        made.exits.append(self._step("preflight", made.number))
        return made.exits[-1].code == 0 and not made.exits[-1].stop_sent and self._wishes.stop() is None

    def _at_turn(self) -> bool:
        """Wait until the cards are this job's and free; False when it was stopped, left the line or came too late."""
        try:
            while self._wishes.stop() is None:
                if self._cards.left():
                    self._never_started = self._cards.why_left()
                    return False
                if self._cards.take() and self._cards.check():
                    return True
                self._never_started = self._cards.waited_out()
                if self._never_started:
                    self._reason = card_hold.TOO_LATE
                    return False
                children.wait(self._cards.tick_s)
        except Refused as error:
            self._never_started, self._reason = error.message, error.token
        return False

    def _meanwhile(self, step: str, attempt: int) -> Optional[Callable[[], float]]:
        if step == "command":
            folder = self._home.step_dir(self._request.job_id, attempt, step)
            watch = stall.Watch(self._job_dir, folder, self._request.checkpoints, self._wishes.limits)
            sampled = telemetry.Start(self._job_dir, watch.look).look
            return self._with_uploads(attempt, sampled) if is_early(self._request.upload) else sampled
        return self._try_cards if step == "setup" else None

    def _with_uploads(self, attempt: int, more: Callable[[], float]) -> Callable[[], float]:
        # Imported here: few runs upload before their end.
        from aicrun.agent import beside

        order = beside.order_of(self._order(EARLY_STEP, attempt))
        variables = self._secrets.variables("upload")
        self._beside = beside.Beside(
            order,
            lambda: beside.own(programs.program(self._home, self._request, EARLY_STEP, attempt)).given(variables),
            self._wishes,
            more,
        )
        return self._beside.look

    def _try_cards(self) -> float:
        """Take the cards if they come free while the job builds, or nobody could use them meanwhile."""
        try:
            if self._cards.is_paused and not brought.waits_for(self._request):
                self._cards.go_on()
            if self._cards.left():
                # It builds to no end, and nobody shall wait for cards that it will never use.
                self.leave_line()
            if self._cards.take():
                return ending_tree.TICK_S
        except (OSError, Refused):
            # It is met again, and told, when the job is built and its turn is waited for.
            return ending_tree.TICK_S
        return self._cards.tick_s

    def _newest_attempt(self) -> int:
        try:
            end = read_record(os.path.join(self._record_dir, names.END), End)
        except Unreadable:
            end = None
        return end.attempts if end is not None else self._request.first_attempt

    def _step(self, step: str, attempt: int) -> StepExit:
        order = self._order(step, attempt)
        try:
            return step_run.run_step(order, self._program(step, attempt), self._wishes)
        except Refused as error:
            return step_run.write_spawn_error(order, error.message, error.token)
        except step_run.NotStarted as error:
            return step_run.write_spawn_error(order, str(error))
        finally:
            if self._beside is not None:
                self._beside.end()

    def _order(self, step: str, attempt: int) -> step_run.Order:
        request = self._request
        return step_run.Order(
            request.job_id,
            step,
            attempt,
            self._job_dir,
            self._home.step_dir(request.job_id, attempt, step),
            self._boot,
            self._oom_score,
            self._caps,
            limit_s={"setup": _setup_s(request), "preflight": PREFLIGHT_S}.get(step),
            has_deadline=step == "command",
            # While anything of the job is on the cards, they are held by it too.
            held=self._cards.handles if step in ON_CARDS else (),
            meanwhile=self._meanwhile(step, attempt),
            secrets=self._secrets.values(),
        )

    def _program(self, step: str, attempt: int) -> programs.Program:
        """What the step runs, as it can be run now. Raises `Refused`."""
        request = self._request
        program = programs.program(self._home, request, step, attempt).given(self._secrets.variables(step))
        if step == "setup" and not request.setup.run and not (request.source and request.source.git):
            program = lean.replace(program, here=self._set_up)
        if step in ON_CARDS:
            more = self._cards.seen.variable() if program.is_own else {}
            program = lean.replace(program, env=dict(program.env, **self._cards.env, **more))
        if step == "command":
            # It may have stood in line for a day: a disk that filled meanwhile is told before anything is lost.
            disk_room.check_full((program.cwd, request.checkpoints))
            if request.resume is not None:
                # Imported here: few runs resume, and every start waits for what its keeper loads.
                from aicrun.agent import resuming

                program = resuming.with_start(self._home, request, program)
            self._show_environment(program.env)
        return program

    def _set_up(self) -> Optional[int]:
        """The setup in the process that calls it, its exit code; None when it has an environment to build."""
        # Imported here: only the setup's process needs it, and not for every job.
        from aicrun.agent import envs

        return envs.main(self._job_dir) if envs.is_ready(self._request) else None

    def _show_environment(self, env: Dict[str, str]) -> None:
        """The environment for `inspect --env`: a secret's name is shown, its value nowhere."""
        redactor, secret = Redactor(self._secrets.values()), self._secrets.variables("command")
        shown = {name: vault.HIDDEN if name in secret else redactor.text(value) for name, value in env.items()}
        try:
            write_record(os.path.join(self._job_dir, names.ENVIRONMENT), {"schema": SCHEMA, "env": shown})
        except OSError:
            # It is kept for people to look at; a disk that refuses it refuses the start record next, and says so.
            pass


def _setup_s(request: JobRequest) -> float:
    """How long the setup may take: its own time, that of everything that is brought before, and of the probe."""
    fetches_s = sum(one.timeout_s for one in request.fetches)
    return request.setup.timeout_s + SETUP_GRACE_S + fetches_s + (PROBE_S if programs.probes_upload(request) else 0)
