"""Which other jobs write, or wrote, in the folder of a run's checkpoints. It must not change anything.

A folder inside another one, and a link to either, count as the same place.
"""

import os
import time
from typing import Iterator, NamedTuple, Optional, Tuple

from aicrun.agent import jobs
from aicrun.agent.home import Home
from aicrun.agent.records import Unreadable, read_record
from aicrun.agent.refused import Refused
from aicrun.agent.report import report_of
from aicrun.wire import names
from aicrun.wire.jobs import JobReport, RunRecord
from aicrun.wire.status import status_of

# Clocks of disks are coarse, and a file may be closed a moment after the process that wrote it.
SLACK_S = 2.0


class Life(NamedTuple):
    """When a job of another run could write there, by this host's clock; `ended` is infinite while it may go on."""

    run: str
    began: float
    ended: float

    def holds(self, at: float) -> bool:
        """Whether a file of that time may be the other run's."""
        return self.began - SLACK_S <= at <= self.ended + SLACK_S


def folder_of(report: JobReport) -> str:
    """The run's checkpoint folder, where it is one, as it really lies; empty for none."""
    path = report.checkpoints.path if report.checkpoints is not None else ""
    return os.path.realpath(path) if path else ""


def check_free(home: Home, report: JobReport) -> None:
    """Raise `Refused` (not_finished) while another job that writes in the folder of `report` is not over."""
    folder = folder_of(report)
    for run, job_id in others(home, folder, report.job_id):
        if not status_of(jobs.seen(home, run, job_id)).status.terminal:
            message = "job %s of %s uses %s and is not over" % (job_id, run, folder)
            raise Refused("not_finished", message, {"job": job_id, "folder": folder})


def others(home: Home, folder: str, own_id: str) -> Iterator[Tuple[str, str]]:
    """Run and id of each job but `own_id` that was made to write in `folder`, a real path, or in one below or above."""
    for run in home.run_names() if folder else ():
        for job_id in home.job_ids(run):
            try:
                record = read_record(os.path.join(home.record_dir(run, job_id), names.RECORD), RunRecord)
            except Unreadable:
                continue
            if record is None or job_id == own_id or not record.checkpoints:
                continue
            other = os.path.realpath(record.checkpoints)
            if (other + "/").startswith(folder + "/") or (folder + "/").startswith(other + "/"):
                yield run, job_id


def lives(home: Home, whose: Tuple[str, str], folder: str) -> Tuple[Life, ...]:
    """Of each job of another run id than that of `whose`, a run id and one of its jobs, that wrote in `folder`."""
    run_id, own_id = whose
    found = (_life(home, run, job_id, run_id) for run, job_id in others(home, os.path.realpath(folder), own_id))
    return tuple(life for life in found if life is not None)


def _life(home: Home, run: str, job_id: str, own_run_id: str) -> Optional[Life]:
    try:
        report = report_of(home, run, job_id)
    except Unreadable:
        # It may have been there at any time.
        return Life(run, 0.0, float("inf"))
    if report.run_id == own_run_id or report.phase == "never_started" or report.decision == "no":
        return None
    now = time.time()
    began, command = now - report.age_s, next(step for step in report.steps if step.step == "command")
    if not report.lost and report.attempt <= 1:
        if command.exit is None and command.state == "waiting":
            # It stands in line, or was stopped there: nothing of it has run.
            return None
        # While it stood in line it wrote nothing.
        began = command.exit.ended_at - command.exit.duration_s if command.exit is not None else began
    return Life(run, began, now - report.ended_age_s if report.ended_age_s is not None else float("inf"))
