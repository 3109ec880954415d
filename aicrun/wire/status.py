"""The user's words for what a job is: statuses, reasons, and the one function that computes them.

Computed from the host's report, never stored. It must not read anything or know a clock.
"""

import enum
from typing import Optional

from aicrun.wire import lean
from aicrun.wire.jobs import JobReport, NextAttempt, StepExit, StepReport
from aicrun.wire.upload import Early


class Status(enum.Enum):
    """The statuses of design section 6; `.terminal` tells which of them stay."""

    PENDING = "pending"
    SCHEDULING = "scheduling"
    REJECTED = "rejected"
    BUILDING = "building"
    ENQUEUED = "enqueued"
    IN_PROGRESS = "in progress"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOP_IN_PROGRESS = "stop in progress"
    STOPPED = "stopped"
    STOP_FAILED = "stop failed"
    UNKNOWN = "unknown"

    @property
    def terminal(self) -> bool:
        """True when the job will not change any more by itself."""
        return self in TERMINAL


TERMINAL = frozenset((Status.REJECTED, Status.SUCCEEDED, Status.FAILED, Status.STOPPED, Status.UNKNOWN))

_ENDS = frozenset((Status.SUCCEEDED, Status.FAILED, Status.STOPPED, Status.UNKNOWN))
_STOPS = frozenset((Status.STOP_IN_PROGRESS, Status.STOP_FAILED))

# Every legal edge, as an observer may see it (statuses in between may be missed). A test proves that no other occurs.
TRANSITIONS = {
    Status.PENDING: frozenset((Status.SCHEDULING, Status.REJECTED)),
    Status.SCHEDULING: frozenset((Status.REJECTED, Status.BUILDING, Status.ENQUEUED, Status.IN_PROGRESS))
    | _STOPS
    | _ENDS,
    Status.BUILDING: frozenset((Status.ENQUEUED, Status.IN_PROGRESS, Status.REJECTED)) | _STOPS | _ENDS,
    Status.ENQUEUED: frozenset((Status.BUILDING, Status.IN_PROGRESS, Status.REJECTED)) | _STOPS | _ENDS,
    Status.IN_PROGRESS: frozenset((Status.BUILDING, Status.ENQUEUED)) | _STOPS | _ENDS,
    Status.STOP_IN_PROGRESS: frozenset((Status.STOP_FAILED,)) | _ENDS,
    Status.STOP_FAILED: frozenset((Status.STOP_IN_PROGRESS, Status.STOPPED, Status.UNKNOWN)),
    # `^` uploads again what failed or was stopped while uploading; the job itself is not run again.
    Status.FAILED: frozenset((Status.IN_PROGRESS, Status.SUCCEEDED, Status.STOPPED)) | _STOPS,
    Status.STOPPED: frozenset((Status.IN_PROGRESS, Status.SUCCEEDED, Status.FAILED)) | _STOPS,
    Status.SUCCEEDED: frozenset((Status.IN_PROGRESS,)),
    Status.UNKNOWN: frozenset(),
    Status.REJECTED: frozenset(),
}

REASONS = (
    "exit_code",
    "signal",
    "oom_kill",
    "timeout",
    "setup_failed",
    "preflight_failed",
    "revision_missing",
    "requirements_missing",
    "upload_failed",
    "disk_full",
)

# Codes that the setup step, a program of ours, ends with beside 0 and 1.
SETUP_CODES = {3: "revision_missing", 4: "disk_full"}

UNKNOWN_REASONS = ("reboot", "supervisor_lost", "record_lost", "never_recorded")

# Why an attempt that was due was not made, and endings that are no number or name, as people say them.
NOT_MADE = {
    "stopped": "it was stopped",
    "reboot": "the machine was restarted",
    "supervisor_lost": "its keeper is gone",
    "changed": "its retry rule was changed",
    "card": "its cards could not be had",
}
_CAUSES = {
    "oom_kill": "an out-of-memory kill",
    "timeout": "its max_duration",
    "reboot": "a reboot",
    "unknown": "an end that nobody recorded",
}

EVENTS = (
    "reserved",
    "go",
    "no",
    "keeper_started",
    "step_started",
    "step_ended",
    "retry",
    "stop_asked",
    "stop_sent",
    "kill_sent",
    "leftovers_killed",
    "queued",
    "card_taken",
    "card_released",
    "card_busy",
    "changed",
    "upload_asked",
    "upload_verified",
    "upload_failed",
    "ended",
    "notes_failed",
    "pin_violated",
    "card_unverified",
    "card_unused",
    "stalled",
    "stall_over",
    "resumes",
    "checkpoint_uploaded",
    "uploads_failing",
    "uploads_recovered",
    "pruned",
    "checkpoints_deleted",
)


@lean.dataclass(frozen=True)
class Standing:
    """A status with all that belongs to it: the reason token, the sub-phase of `in progress`, and one line of why.

    `step` is the step that decided an ending (empty otherwise); `code` and `signal` are that step's, never made up.
    `card_allocated` tells, for `stopped`, whether a card had been held.
    """

    status: Status
    reason: str = ""
    phase: str = ""
    step: str = ""
    code: Optional[int] = None
    signal: Optional[int] = None
    why: str = ""
    card_allocated: bool = False


def status_of(report: JobReport) -> Standing:
    """What to call `report` in the user's words; total: every report has exactly one standing."""
    if report.decision == "no" or report.phase == "never_started":
        words = report.lost_detail if report.phase == "never_started" else ""
        why = "it never started: " + words if words else "it never started"
        return Standing(Status.REJECTED, report.decision_reason or "never_started", why=why)
    if report.leftover_pids:
        pids = ", ".join(str(pid) for pid in report.leftover_pids)
        return Standing(Status.STOP_FAILED, why="these processes could not be ended: pid " + pids)
    if report.phase == "ended":
        return _ending(report)
    if report.stop is not None:
        return Standing(Status.STOP_IN_PROGRESS, phase=report.phase)
    if report.decision == "undecided":
        return Standing(Status.SCHEDULING)
    if report.phase == "waiting":
        return Standing(Status.ENQUEUED, why=_waiting(report))
    if report.phase in ("command", "upload"):
        phase = "training" if report.phase == "command" else "uploading"
        why = "" if report.supervised else "its keeper is gone: the exit code will not be known"
        if report.stalled_s is not None:
            why = "; ".join(filter(None, (silence_words(report.stalled_s, report.stall_limit_s), why)))
        if report.phase == "command" and report.early is not None and report.early.trouble:
            why = "; ".join(filter(None, (why, trouble_words(report.early))))
        return Standing(Status.IN_PROGRESS, phase=phase, why=why)
    return Standing(Status.BUILDING, phase="setup" if report.phase == "between" else report.phase)


def next_words(due: NextAttempt) -> str:
    """`attempt 2 of 4 in 40s, after exit code 75`; with why it was not made, once it was not."""
    left = int(due.in_s + 0.999)
    when = " was not made (%s)" % NOT_MADE.get(due.not_made, due.not_made) if due.not_made else ""
    pause = " in %s" % ("%ds" % left if left < 120 else "%dm" % round(left / 60)) if left and not when else ""
    return "attempt %d of %d%s%s, after %s" % (due.attempt, due.most, pause, when, cause_words(due.cause))


def silence_words(silent_s: float, limit_s: Optional[int]) -> str:
    """`no output for 32m (limits.stall 30m)`."""
    limit = " (limits.stall %s)" % _span(limit_s) if limit_s is not None else ""
    return "no output for %s%s" % (_span(silent_s), limit)


def trouble_words(early: Early) -> str:
    """`uploads fail since 5m: connection refused; tried again in 2m`."""
    again = "; tried again in %s" % _span(early.again_s) if early.again_s else ""
    return "uploads fail since %s: %s%s" % (_span(early.trouble_age_s or 0.0), early.trouble, again)


def _span(seconds: float) -> str:
    whole = int(seconds)
    if whole < 120:
        return "%ds" % whole
    if whole < 7200:
        return "%dm" % (whole // 60)
    hours, minutes = divmod(whole // 60, 60)
    return "%dh %02dm" % (hours, minutes) if minutes else "%dh" % hours


def cause_words(cause: str) -> str:
    """An ending as people say it: `exit code 75`, `signal KILL`."""
    head, _, tail = cause.partition(":")
    if tail:
        return "%s %s" % ("exit code" if head == "exit" else head, tail)
    return _CAUSES.get(cause, cause)


def reason_of(step: str, end: StepExit) -> str:
    """The token of `REASONS` for a step that did not end well."""
    if step == "preflight":
        return "preflight_failed"
    if end.refused == "disk_full":
        return end.refused
    if step == "setup" or end.spawn_error:
        return SETUP_CODES.get(end.code or 0, "setup_failed")
    if end.timed_out:
        return "timeout"
    if end.signal is not None:
        return "oom_kill" if end.oom_kill else "signal"
    return "exit_code"


def _waiting(report: JobReport) -> str:
    line = report.line.why if report.line is not None else ""
    if report.next_attempt is None:
        return line
    due = next_words(report.next_attempt)
    return "%s; %s" % (due, line) if line and not report.next_attempt.in_s else due


def _ending(report: JobReport) -> Standing:
    allocated = report.card_allocated
    for step in report.steps:
        stopped = step.exit is not None and step.exit.stop_sent
        if stopped and step.exit is not None:
            # Also a stop during the upload: the training's own end stays in its step, `^` finishes the upload.
            end = step.exit
            return Standing(Status.STOPPED, "", "", step.step, end.code, end.signal, card_allocated=allocated)
    if report.lost:
        return Standing(Status.UNKNOWN, report.lost, why=report.lost_detail)
    command = _step(report, "command")
    if report.stop is not None and (command is None or command.exit is None):
        return Standing(Status.STOPPED, why="it was stopped before its command started", card_allocated=allocated)
    due = report.next_attempt
    if due is not None and due.not_made == "stopped" and command is not None and command.exit is not None:
        # The last attempt ended by itself; what the stop ended is the pause before the next one.
        how = (command.exit.code, command.exit.signal)
        return Standing(Status.STOPPED, "", "", "command", *how, next_words(due), allocated)
    for step in report.steps:
        failure = _failure(step)
        if failure is not None and due is not None:
            more = ": " + report.lost_detail if due.not_made == "card" and report.lost_detail else ""
            return lean.replace(failure, why=next_words(due) + more)
        if failure is not None:
            return failure
    if command is None or command.exit is None:
        return Standing(Status.UNKNOWN, "never_recorded", why="no record of the command's end")
    needs_upload = report.upload_request is not None and report.upload_request.required
    if needs_upload and not (report.upload is not None and report.upload.verified):
        why = report.upload.error if report.upload is not None else "no upload was recorded"
        return Standing(Status.FAILED, "upload_failed", step="upload", code=0, why=why)
    return Standing(Status.SUCCEEDED, step="command", code=0)


def _failure(step: StepReport) -> Optional[Standing]:
    end = step.exit
    if end is None or step.step == "upload":
        return None
    if end.code == 0 and not (step.step == "command" and end.timed_out):
        # A command that our deadline ended was not done, also where it saved what it had and left in peace.
        return None
    reason = reason_of(step.step, end)
    return Standing(Status.FAILED, reason, "", step.step, end.code, end.signal, end.spawn_error)


def _step(report: JobReport, name: str) -> Optional[StepReport]:
    return next((step for step in report.steps if step.step == name), None)
