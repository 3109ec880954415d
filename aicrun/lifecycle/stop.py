"""Stops a run: the wish is durable on the host before any signal, and the whole tree ends with it."""

from __future__ import annotations

import time

from aicrun.lifecycle.events import StepBegan, StepDone, Tell
from aicrun.lifecycle.find import Found
from aicrun.lifecycle.follow import settled
from aicrun.lifecycle.patience import Patience
from aicrun.lifecycle.session import Session
from aicrun.wire.jobs import JobReport
from aicrun.wire.status import status_of

# Told again once a second, so that the time on the line counts up.
_POLL_S = 1.0


def stop(session: Session, found: Found, grace_s: int | None, tell: Tell) -> Found:
    """The job after it ended, or as it stands when its tree could not be ended. A finished job is left as it is.

    Raises `HostUnreachable` when the machine is silent for long: the wish may have arrived, asking again is safe.
    """
    patience = Patience(session, found.machine, found.report.run, tell, 60.0)
    report = patience.ask(lambda backend: backend.stop(found.report.job_id, session.by, grace_s))
    return found.as_it_is(until_stopped(patience, report))


def until_stopped(patience: Patience, report: JobReport) -> JobReport:
    """Wait for the end of a job that was asked to stop."""
    began = time.monotonic()
    while not settled(status_of(report)):
        grace = f", {report.stop.grace_s}s grace" if report.stop is not None else ""
        patience.tell(StepBegan(report.run, "stop", f"job {report.job_id}: asked to end{grace}"))
        known, job_id = status_of(report).status.value, report.job_id
        report = patience.ask(lambda backend: backend.wait(job_id, known, _POLL_S))  # noqa: B023  # used at once
    words = f"job {report.job_id}: {status_of(report).status.value}"
    patience.tell(StepDone(report.run, "stop", words, time.monotonic() - began))
    return report
