"""Statuses: every report has one, none of them lies, and a job moves along the legal edges alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from aicrun.wire.codec import replace
from aicrun.wire.jobs import Client, JobReport, NextAttempt, StepExit, StepReport, StopIntent, Upload, UploadResult
from aicrun.wire.seen import InLine
from aicrun.wire.status import REASONS, TERMINAL, TRANSITIONS, UNKNOWN_REASONS, Standing, Status, status_of

ME = Client("ana", "desk", "1")
STOP = StopIntent(by="ana@desk", grace_s=30, at=0.0)
REQUIRED = Upload(to="file:/u", scheme="file", destination="/u")
OPTIONAL = replace(REQUIRED, required=False)
DUE = NextAttempt(2, 4, "exit:7", 39.2)
NOT_MADE = replace(DUE, in_s=0.0, not_made="stopped")
VERIFIED = UploadResult(destination="/u", verified=True)
UNVERIFIED = UploadResult(destination="/u", verified=False, error="no space")

DECISIONS = ("undecided", "go", "no")
PHASES = ("reserved", "waiting", "setup", "preflight", "command", "upload", "between", "ended", "never_started")


def _exit(step: str, **how: object) -> StepExit:
    return StepExit(step, 1, 1.0, 0.0, **how)  # type: ignore[arg-type]


def _ended(step: str, **how: object) -> StepReport:
    return StepReport(step, "ended", exit=_exit(step, **how))


COMMANDS = (
    None,
    StepReport("command", "running", pid=7),
    StepReport("command", "lost"),
    _ended("command", code=0),
    _ended("command", code=7),
    _ended("command", signal=9),
    _ended("command", signal=9, oom_kill=True),
    _ended("command", signal=15, timed_out=True),
    _ended("command", code=0, timed_out=True),
    _ended("command", code=0, stop_sent=True),
    _ended("command", signal=15, stop_sent=True),
    _ended("command", spawn_error="no such shell"),
)
SETUPS = (None, _ended("setup", code=0), _ended("setup", code=1))
UPLOADS = (None, _ended("upload", code=0), _ended("upload", code=1), _ended("upload", signal=15, stop_sent=True))


def _reports() -> Iterator[JobReport]:
    for decision, phase, leftovers, stop, (lost, due) in itertools.product(
        DECISIONS, PHASES, ((), (9,)), (None, STOP), (("", None), ("reboot", None), ("", NOT_MADE))
    ):
        for setup, command, upload, asked, result in itertools.product(
            SETUPS, COMMANDS, UPLOADS, (None, REQUIRED, OPTIONAL), (None, VERIFIED, UNVERIFIED)
        ):
            yield JobReport(
                "0" * 16,
                "digits",
                "1" * 16,
                "d",
                ME,
                1.0,
                decision,
                phase,
                steps=tuple(step for step in (setup, command, upload) if step is not None),
                stop=stop,
                leftover_pids=leftovers,
                lost=lost,
                upload_request=asked,
                upload=result,
                next_attempt=due,
            )


def _command(report: JobReport) -> StepExit | None:
    return next((step.exit for step in report.steps if step.step == "command"), None)


def _lies(report: JobReport, standing: Standing) -> str:
    """What is wrong with calling `report` so; empty: nothing."""
    exits = {step.step: step.exit for step in report.steps if step.exit is not None}
    status, command = standing.status, exits.get("command")
    over = report.phase in ("ended", "never_started") or report.decision == "no"
    if status in TERMINAL and not over:
        return "over before it ended"
    if status is Status.SUCCEEDED:
        if report.lost or command is None or command.code != 0 or command.signal is not None:
            return "success without an exit code of 0"
        if any(end.stop_sent for end in exits.values()) or any(
            end.code for end in exits.values() if end.step == "setup"
        ):
            return "success of a job that was stopped or never set up"
        asked = report.upload_request
        if asked is not None and asked.required and not (report.upload and report.upload.verified):
            return "success without the verified upload that it requires"
    if status is Status.FAILED and standing.reason not in REASONS:
        return "a failure without a known reason"
    if status is Status.FAILED and report.lost:
        return "failed, though nobody saw the end"
    if status is Status.UNKNOWN and standing.reason not in UNKNOWN_REASONS:
        return "unknown without a known reason"
    # An upload fails behind a command that ended well: that code is the command's.
    told = exits.get("command" if standing.reason == "upload_failed" else standing.step)
    for word in ("code", "signal"):
        value = getattr(standing, word)
        if value is not None and (told is None or getattr(told, word) != value):
            return f"a {word} that nobody recorded"
    return ""


def test_no_report_is_called_what_it_is_not() -> None:
    count = 0
    for report in _reports():
        count += 1
        standing = status_of(report)
        assert isinstance(standing.status, Status)
        lie = _lies(report, standing)
        assert not lie, f"{lie}: {standing} of {report}"
    assert count > 100_000


def test_a_silence_is_a_word_beside_the_status_and_never_one_itself() -> None:
    runs = {"phase": "command", "supervised": True}
    standing = _told(**runs, stalled_s=1925.0, stall_limit_s=1800)
    assert (standing.status, standing.phase) == (Status.IN_PROGRESS, "training")
    assert standing.why == "no output for 32m (limits.stall 30m)"
    alone = _told(phase="command", stalled_s=1925.0, stall_limit_s=1800)
    assert alone.why == "no output for 32m (limits.stall 30m); its keeper is gone: the exit code will not be known"
    assert _told(**runs).why == ""


def _told(**fields: object) -> Standing:
    plain = JobReport("0" * 16, "digits", "1" * 16, "d", ME, 1.0, "go", "ended", upload_request=REQUIRED)
    return status_of(replace(plain, **fields))


GOOD, BAD = _ended("command", code=0), _ended("command", code=7)


@pytest.mark.parametrize(
    ("fields", "status", "reason"),
    (
        ({"steps": (GOOD,), "upload": VERIFIED}, Status.SUCCEEDED, ""),
        ({"steps": (GOOD,), "upload": UNVERIFIED}, Status.FAILED, "upload_failed"),
        ({"steps": (GOOD,)}, Status.FAILED, "upload_failed"),
        ({"steps": (GOOD,), "upload_request": OPTIONAL}, Status.SUCCEEDED, ""),
        ({"steps": (BAD,)}, Status.FAILED, "exit_code"),
        ({"steps": (_ended("command", signal=9),)}, Status.FAILED, "signal"),
        ({"steps": (_ended("command", signal=9, oom_kill=True),)}, Status.FAILED, "oom_kill"),
        ({"steps": (_ended("command", signal=15, timed_out=True),)}, Status.FAILED, "timeout"),
        ({"steps": (_ended("setup", code=1),)}, Status.FAILED, "setup_failed"),
        ({"steps": (_ended("preflight", code=1),)}, Status.FAILED, "preflight_failed"),
        ({"steps": (_ended("command", signal=15, stop_sent=True),), "stop": STOP}, Status.STOPPED, ""),
        ({"steps": (_ended("command", code=0, stop_sent=True),), "stop": STOP}, Status.STOPPED, ""),
        ({"steps": (), "stop": STOP}, Status.STOPPED, ""),
        ({"steps": (GOOD, _ended("upload", signal=15, stop_sent=True)), "stop": STOP}, Status.STOPPED, ""),
        ({"steps": (BAD,), "stop": STOP}, Status.FAILED, "exit_code"),
        ({"steps": (), "lost": "reboot"}, Status.UNKNOWN, "reboot"),
        ({"steps": (GOOD,), "lost": "supervisor_lost"}, Status.UNKNOWN, "supervisor_lost"),
        ({"steps": ()}, Status.UNKNOWN, "never_recorded"),
        ({"decision": "no", "decision_reason": "withdrawn"}, Status.REJECTED, "withdrawn"),
        ({"phase": "never_started"}, Status.REJECTED, "never_started"),
        ({"steps": (BAD,), "leftover_pids": (9,)}, Status.STOP_FAILED, ""),
        ({"phase": "command", "stop": STOP}, Status.STOP_IN_PROGRESS, ""),
        ({"phase": "waiting"}, Status.ENQUEUED, ""),
        ({"phase": "waiting", "steps": (BAD,), "next_attempt": DUE}, Status.ENQUEUED, ""),
        ({"phase": "waiting", "steps": (BAD,), "next_attempt": DUE, "stop": STOP}, Status.STOP_IN_PROGRESS, ""),
        ({"steps": (BAD,), "next_attempt": NOT_MADE, "stop": STOP}, Status.STOPPED, ""),
        ({"steps": (BAD,), "next_attempt": replace(NOT_MADE, not_made="reboot")}, Status.FAILED, "exit_code"),
        ({"steps": (BAD,), "next_attempt": replace(NOT_MADE, not_made="card")}, Status.FAILED, "exit_code"),
        ({"phase": "setup"}, Status.BUILDING, ""),
        ({"phase": "reserved", "decision": "undecided"}, Status.SCHEDULING, ""),
    ),
)
def test_what_a_job_is_called(fields: dict[str, object], status: Status, reason: str) -> None:
    standing = _told(**fields)
    assert (standing.status, standing.reason) == (status, reason)


def test_a_pause_counts_down_and_then_the_line_is_told() -> None:
    line = InLine(("GPU-a",), 1, "run x of bo holds it")
    waits = {"phase": "waiting", "steps": (BAD,), "line": line}
    assert _told(**waits, next_attempt=DUE).why == "attempt 2 of 4 in 40s, after exit code 7"
    assert _told(**waits, next_attempt=replace(DUE, in_s=600.0)).why == "attempt 2 of 4 in 10m, after exit code 7"
    over = replace(DUE, in_s=0.0, cause="signal:KILL")
    assert _told(**waits, next_attempt=over).why == "attempt 2 of 4, after signal KILL; run x of bo holds it"
    assert _told(phase="waiting", next_attempt=over).why == "attempt 2 of 4, after signal KILL"


def test_what_was_due_and_was_not_made_is_told_beside_the_exit_of_the_last_attempt() -> None:
    stopped = _told(steps=(BAD,), next_attempt=NOT_MADE, stop=STOP)
    assert (stopped.code, stopped.step, stopped.why) == (
        7,
        "command",
        "attempt 2 of 4 was not made (it was stopped), after exit code 7",
    )
    lost = _told(steps=(BAD,), next_attempt=replace(NOT_MADE, not_made="reboot", cause="oom_kill"))
    assert lost.why == "attempt 2 of 4 was not made (the machine was restarted), after an out-of-memory kill"
    # Where nobody saw how the attempt itself ended, that comes first.
    assert _told(steps=(), lost="reboot", next_attempt=NOT_MADE).status is Status.UNKNOWN


def test_training_and_uploading_are_told_apart() -> None:
    assert _told(phase="command", supervised=True).phase == "training"
    assert _told(phase="upload", supervised=True).phase == "uploading"
    assert "will not be known" in _told(phase="command", supervised=False).why


# One life of a job, step by step; each is lived whole, stopped at each point, and lost at each point.
LIFE = (
    {"decision": "undecided", "phase": "reserved"},
    {"decision": "go", "phase": "between"},
    {"phase": "setup"},
    {"phase": "waiting"},
    {"phase": "preflight"},
    {"phase": "command"},
    {"phase": "waiting", "steps": (BAD,), "next_attempt": DUE},
    {"phase": "between", "steps": (BAD,), "next_attempt": None},
    {"phase": "setup", "steps": ()},
    {"phase": "command"},
    {"phase": "between", "steps": (GOOD,)},
    {"phase": "upload"},
)
ENDINGS = (
    {"phase": "ended", "steps": (GOOD,), "upload": VERIFIED},
    {"phase": "ended", "steps": (GOOD,), "upload": UNVERIFIED},
    {"phase": "ended", "steps": (BAD,)},
    {"phase": "ended", "lost": "reboot", "steps": ()},
    {"phase": "ended", "steps": (BAD,), "next_attempt": NOT_MADE},
    {"phase": "ended", "steps": (BAD,), "next_attempt": replace(NOT_MADE, not_made="reboot")},
)
STOPPED = {"phase": "ended", "steps": (_ended("command", signal=15, stop_sent=True),), "leftover_pids": ()}


def _lived(changes: tuple[dict[str, object], ...]) -> list[Status]:
    report = JobReport("0" * 16, "digits", "1" * 16, "d", ME, 1.0, "go", "between", supervised=True)
    report = replace(report, upload_request=REQUIRED)
    seen = []
    for change in changes:
        report = replace(report, **change)
        seen.append(status_of(report).status)
    return seen


def _lives() -> Iterator[tuple[dict[str, object], ...]]:
    for length in range(1, len(LIFE) + 1):
        begun = LIFE[:length]
        for ending in ENDINGS:
            yield (*begun, ending)
            yield (*begun, {"stop": STOP}, ending)
        yield (*begun, {"stop": STOP}, STOPPED)
        yield (*begun, {"stop": STOP}, {"leftover_pids": (9,)}, STOPPED)
    yield ({"decision": "undecided", "phase": "reserved"}, {"decision": "no"})
    yield ({"decision": "undecided", "phase": "reserved"}, {"decision": "go", "phase": "never_started"})


def test_a_job_moves_along_legal_edges_however_seldom_it_is_looked_at() -> None:
    for life in _lives():
        for earlier, later in itertools.combinations(_lived(life), 2):
            assert earlier is later or later in TRANSITIONS[earlier], f"{earlier} -> {later} in {life}"


def test_an_upload_again_moves_along_legal_edges() -> None:
    again = {"phase": "upload", "stop": None, "steps": (GOOD,), "upload": None}
    for ending in (ENDINGS[0], ENDINGS[1], STOPPED):
        for outcome in ENDINGS[:2]:
            seen = _lived((*LIFE, ending, again, outcome))
            for earlier, later in itertools.pairwise(seen):
                assert earlier is later or later in TRANSITIONS[earlier], f"{earlier} -> {later} in {seen}"


def test_what_is_over_for_good_has_no_way_on() -> None:
    for status in (Status.UNKNOWN, Status.REJECTED):
        assert not TRANSITIONS[status]
    assert all(status.terminal is (status in TERMINAL) for status in Status)
    assert set(TRANSITIONS) == set(Status)
