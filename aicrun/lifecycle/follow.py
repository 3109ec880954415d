"""Watches a job: until it started, until it ended, its log as it grows. Leaving it never touches the run.

What it sees goes out through `Tell`; a silent machine is waited for, not judged.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from aicrun.errors import HostRefused, HostUnreachable
from aicrun.lifecycle.events import LogBytes, Remark, StepBegan, StepDone, Tell
from aicrun.lifecycle.find import Found
from aicrun.lifecycle.patience import Patience
from aicrun.lifecycle.session import Session
from aicrun.plan.records import attempt_words
from aicrun.plan.words import counted, size
from aicrun.wire.codec import replace
from aicrun.wire.jobs import JobReport, StepReport
from aicrun.wire.status import Standing, Status, silence_words, status_of

_POLL_S = 1.0
_LONG_POLL_S = 50.0
_LOG_SLICE_BYTES = 64 * 1024
_LAST_LINE_BYTES = 2048

_BEFORE_START = frozenset((Status.SCHEDULING, Status.BUILDING))


def settled(standing: Standing) -> bool:
    """True when watching can end: the status stays, or only a person can go on."""
    return standing.status.terminal or standing.status is Status.STOP_FAILED


@dataclass(frozen=True, slots=True)
class Watch:
    """One job being watched; `give_up_s` is how long a silent machine is waited for (None: for ever)."""

    session: Session
    machine: str
    run: str
    tell: Tell
    give_up_s: float | None = None

    @property
    def patience(self) -> Patience:
        """Patience with this job's machine."""
        return Patience(self.session, self.machine, self.run, self.tell, self.give_up_s)


def until_decided(watch: Watch, report: JobReport, at_most_s: float) -> JobReport:
    """The report of another client's reservation once it was decided, or as it is after `at_most_s`."""
    patience, end = watch.patience, time.monotonic() + at_most_s
    while report.decision == "undecided" and time.monotonic() < end:
        watch.tell(StepBegan(watch.run, "await", f"{report.client.user} from {report.client.host} is starting it"))
        known, job_id = status_of(report).status.value, report.job_id
        report = patience.ask(lambda backend: backend.wait(job_id, known, 5.0))  # noqa: B023  # used at once
    return report


def until_started(watch: Watch, report: JobReport) -> JobReport:
    """The report once the command runs, waits in line, or the job ended; tells `building` and `started`."""
    began = time.monotonic()
    patience = watch.patience
    built = False
    while status_of(report).status in _BEFORE_START:
        built = True
        watch.tell(StepBegan(watch.run, "building", _building_words(patience, report)))
        known, job_id = status_of(report).status.value, report.job_id
        report = patience.ask(lambda backend: backend.wait(job_id, known, _POLL_S))  # noqa: B023  # used at once
    setup = _step(report, "setup")
    setup_failed = setup is not None and setup.exit is not None and setup.exit.code != 0
    if built and not setup_failed:
        ends = [step.exit for step in (setup, _step(report, "preflight")) if step is not None]
        took = sum(end.duration_s for end in ends if end is not None) if all(ends) else time.monotonic() - began
        watch.tell(StepDone(watch.run, "building", _built_words(report), took))
    if _has_started(report):
        watch.tell(StepDone(watch.run, "started", f"the command, on {watch.machine}", 0.0))
    return report


def _building_words(patience: Patience, report: JobReport) -> str:
    setup = _step(report, "setup")
    if setup is None or setup.state != "running" or not setup.log_bytes:
        return status_of(report).phase or "waiting for its keeper"
    try:
        last = patience.ask(lambda backend: backend.log(report.job_id, "setup", None, _LAST_LINE_BYTES, 1))
    except HostRefused:
        return "setup"
    return last.data.decode("utf-8", "replace").strip().rpartition("\n")[2] or "setup"


def _built_words(report: JobReport) -> str:
    setup = report.facts.get("setup")
    env = str(setup.get("env", "")).rpartition("/")[2] if isinstance(setup, dict) else ""
    tree = "the working tree is ready"
    if isinstance(setup, dict) and env:
        tree = f"env {env[:8]} {'built' if setup.get('built') else 'reused'}"
    looked = _step(report, "preflight")
    if looked is None or looked.exit is None or looked.exit.code != 0:
        return tree
    written = report.execution.get("setup")
    kind = written.get("preflight", "cuda") if isinstance(written, dict) else ""
    return f"{tree}, preflight {f'{kind} ' if kind in ('cuda', 'rocm') else ''}passed"


def _has_started(report: JobReport) -> bool:
    command = _step(report, "command")
    return command is not None and command.state != "waiting"


def _step(report: JobReport, name: str) -> StepReport | None:
    return next((step for step in report.steps if step.step == name), None)


def to_the_end(watch: Watch, report: JobReport, offset: int | None = 0) -> JobReport:
    """The report of the ended job, after telling all of its command's log from `offset` on (None: its last lines).

    From an offset on means from the first attempt on. A silent machine is waited for as `watch.give_up_s` says; the log
    goes on at the byte where it stopped.
    """
    report = _until_command(watch, report)
    if _has_started(report):
        attempt = report.attempt if offset is None else report.first_attempt
        report = follow_attempts(watch, report, offset, attempt)
    return until_ended(watch, report)


def follow_attempts(watch: Watch, report: JobReport, offset: int | None, attempt: int) -> JobReport:
    """Tell the command's log of `attempt`, from `offset` on, and of each that follows; the report after the last.

    The pause between is told as a step that counts down.
    """
    while True:
        follow_log(watch, report, "command", offset, attempt)
        began = time.monotonic()
        report = _until_next(watch, report.job_id, attempt)
        if report.attempt <= attempt:
            return report
        attempt, offset = attempt + 1, 0
        words = f"{attempt_words(replace(report, attempt=attempt))}, on {watch.machine}"
        watch.tell(StepDone(watch.run, "retry", words, time.monotonic() - began))


def follow_onward(watch: Watch, report: JobReport, step: str, offset: int, attempt: int) -> JobReport:
    """Tell the log of `step`, which comes before the command or is it, and then all that `follow_attempts` tells."""
    if step != "command":
        follow_log(watch, report, step, offset, attempt)
        report = _until_command(watch, watch.patience.ask(lambda backend: backend.job(report.job_id)))
        if not _has_started(report):
            return report
        offset, attempt = 0, report.attempt
    return follow_attempts(watch, report, offset, attempt)


def _until_next(watch: Watch, job_id: str, attempt: int) -> JobReport:
    """The report once an attempt after `attempt` runs, or when none is to come."""
    patience = watch.patience
    report = patience.ask(lambda backend: backend.job(job_id))
    while report.attempt <= attempt and _may_follow(report):
        if report.next_attempt is not None:
            watch.tell(StepBegan(watch.run, "retry", status_of(report).why))
        known = status_of(report).status.value
        report = patience.ask(lambda backend: backend.wait(job_id, known, _POLL_S))  # noqa: B023  # used at once
    return report


def _may_follow(report: JobReport) -> bool:
    """Whether another attempt may come by itself: one is due, or a failed one is being tidied up."""
    standing, command = status_of(report), _step(report, "command")
    if settled(standing) or standing.status is Status.STOP_IN_PROGRESS or standing.phase == "uploading":
        return False
    failed = command is not None and command.exit is not None and command.exit.code != 0
    return report.next_attempt is not None or (failed and report.attempt < report.attempts_most)


def _until_command(watch: Watch, report: JobReport) -> JobReport:
    patience = watch.patience
    while status_of(report).status in (Status.ENQUEUED, *_BEFORE_START) and not _has_started(report):
        report = until_started(watch, report)
        known, job_id = status_of(report).status.value, report.job_id
        if known == Status.ENQUEUED.value:
            report = patience.ask(lambda backend: backend.wait(job_id, known, _LONG_POLL_S))  # noqa: B023  # used at once
    return report


def follow_log(watch: Watch, report: JobReport, step: str, offset: int | None, attempt: int = 0) -> None:
    """Tell a step's log from `offset` on (None: its last lines) until the step has ended and all was read.

    `attempt` 0 is the newest that has the step.
    """
    patience, job_id = watch.patience, report.job_id
    if offset is None:
        tail = patience.ask(lambda backend: backend.log(job_id, step, None, _LOG_SLICE_BYTES, 20, attempt))
        watch.tell(LogBytes(watch.run, step, tail.data))
        offset = tail.next_offset
    stalled = False
    while True:
        try:
            for part in watch.session.backend(watch.machine).follow(job_id, step, offset, attempt):
                patience.answered()
                offset = part.next_offset
                if part.data:
                    stalled = False
                    watch.tell(LogBytes(watch.run, step, part.data))
                elif not stalled:
                    stalled = _tell_stall(watch, job_id)
        except HostUnreachable:
            watch.session.drop(watch.machine)
            patience.silent()
            time.sleep(_POLL_S)
        else:
            return


def _tell_stall(watch: Watch, job_id: str) -> bool:
    """Say that the run has been silent for longer than its limit; False when it has not, or the host says no."""
    try:
        report = watch.session.backend(watch.machine).job(job_id)
    except HostRefused:
        return False
    if report.stalled_s is None:
        return False
    words = silence_words(report.stalled_s, report.stall_limit_s)
    watch.tell(Remark(watch.run, f"{watch.run}: {words}; it goes on"))
    return True


def until_ended(watch: Watch, report: JobReport) -> JobReport:
    """The report once the job's status stays; tells the upload as a step."""
    patience = watch.patience
    uploading = False
    while not settled(status_of(report)):
        standing = status_of(report)
        if standing.phase == "uploading":
            uploading = True
            target = report.upload_request.destination if report.upload_request is not None else "its target"
            watch.tell(StepBegan(watch.run, "upload", f"to {target}"))
        # In progress goes from training to uploading without another status: looked at again at a human interval.
        poll_s = _POLL_S if standing.status is Status.IN_PROGRESS else _LONG_POLL_S
        known, job_id = standing.status.value, report.job_id
        report = patience.ask(lambda backend: backend.wait(job_id, known, poll_s))  # noqa: B023  # used at once
    _tell_upload(watch, report, uploading)
    return report


def wait(watch: Watch, report: JobReport, timeout_s: float | None) -> JobReport:
    """The report once the job's status stays, or the last one when `timeout_s` passed; long polls, tells nothing."""
    patience = watch.patience
    end = None if timeout_s is None else time.monotonic() + timeout_s
    while not settled(status_of(report)):
        left = _LONG_POLL_S if end is None else min(_LONG_POLL_S, end - time.monotonic())
        if left <= 0:
            break
        known, job_id = status_of(report).status.value, report.job_id
        report = patience.ask(lambda backend: backend.wait(job_id, known, left))  # noqa: B023  # used at once
    return report


def _tell_upload(watch: Watch, report: JobReport, seen: bool) -> None:
    upload, step = report.upload, _step(report, "upload")
    if upload is None or not upload.verified or not (seen or step is not None):
        return
    took = step.exit.duration_s if step is not None and step.exit is not None else 0.0
    words = f"{counted(upload.files, 'file')}, {size(upload.bytes)} to {upload.destination}, verified"
    watch.tell(StepDone(watch.run, "upload", words, took))


def look_again(session: Session, found: Found) -> Found:
    """The same job as its host reports it now."""
    return found.as_it_is(session.backend(found.machine).job(found.report.job_id))
