"""Asks a job to end: the intent is durable before any signal, then whoever can end the tree is woken.

It returns at once. It must not signal the job itself, and must not touch a job that has ended.
"""

import os
import time
from typing import Any, Dict, Optional, Tuple

from aicrun.agent import bodies, decide, jobs, launch
from aicrun.agent.history import note
from aicrun.agent.home import Home
from aicrun.agent.kept import Supervision
from aicrun.agent.records import Unreadable, read_record, write_kept
from aicrun.wire import names
from aicrun.wire.jobs import JobReport, JobRequest, Limits, StopIntent

Answer = Tuple[Dict[str, Any], bytes]

GRACE_MOST_S = 24 * 3600


def stop(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{job_id, by, grace_s | null} -> {report}: TERM, grace, KILL begin; an ended job is left as it is.

    Without `grace_s` the job's own limit counts. A second stop may only shorten the grace. Raises `Refused`
    (not_found).
    """
    job_id, by = bodies.job_id(body), bodies.by(body)
    wanted = body.get("grace_s")
    grace_s = None if wanted is None else bodies.number(body, "grace_s", 0, GRACE_MOST_S)
    run = decide.run_of(home, job_id)
    with home.host_lock():
        decision = decide.settle(home, run, job_id)
        if decision is None:
            decide.decide(home, run, job_id, decide.no("stopped by %s" % by if by else "stopped", by))
            launch.poke(home.job_dir(job_id))
            return jobs.told(jobs.seen(home, run, job_id))
        report = jobs.seen(home, run, job_id)
        if report.decision == "go" and report.phase not in ("ended", "never_started"):
            _ask(home, report, by, grace_s)
    return jobs.told(jobs.one(home, run, job_id))


def _ask(home: Home, report: JobReport, by: str, grace_s: Optional[int]) -> None:
    job_dir = home.job_dir(report.job_id)
    # Where somebody took the job's folder away, the intent stands beside the record.
    folder = job_dir if os.path.isdir(job_dir) else home.record_dir(report.run, report.job_id)
    path = os.path.join(folder, names.STOP)
    before = read_record(path, StopIntent) if os.path.exists(path) else None
    intent = _intent(before, _runs_since(report), by, grace_s if grace_s is not None else _grace_s(home, report))
    if intent != before:
        write_kept(path, intent)
    if before is None or intent.at != before.at:
        note(folder, "stop_asked", by=by)
    if not launch.poke(job_dir):
        launch.detach("stopper", folder)


def _intent(before: Optional[StopIntent], runs_since: float, by: str, grace_s: int) -> StopIntent:
    # A stop that has ended its step does not stop the upload which runs after it; a second one does.
    if before is None or before.at < runs_since:
        return StopIntent(by, grace_s, time.time())
    if grace_s < before.grace_s:
        return StopIntent(before.by, grace_s, before.at)
    return before


def _runs_since(report: JobReport) -> float:
    ages = [step.age_s for step in report.steps if step.state == "running" and step.age_s is not None]
    return time.time() - min(ages) if ages else 0.0


def _grace_s(home: Home, report: JobReport) -> int:
    """The grace of now: as it was changed last, else as the request says, else the standard one."""
    job_dir = home.job_dir(report.job_id)
    try:
        request = read_record(os.path.join(job_dir, names.REQUEST), JobRequest)
    except Unreadable:
        request = None
    limits = request.limits if request is not None else Limits()
    try:
        changed = read_record(os.path.join(home.record_dir(report.run, report.job_id), names.SUPERVISION), Supervision)
    except Unreadable:
        changed = None
    return (changed.limits if changed is not None else limits).grace_s
