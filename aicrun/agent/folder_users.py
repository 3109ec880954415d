"""Which other jobs write, or wrote, in the folder of a run's checkpoints. It must not change anything.

A folder inside another one, and a link to either, count as the same place.
"""

import os
from typing import Iterator, Tuple

from aicrun.agent import jobs
from aicrun.agent.home import Home
from aicrun.agent.records import Unreadable, read_record
from aicrun.agent.refused import Refused
from aicrun.wire import names
from aicrun.wire.jobs import JobReport, RunRecord
from aicrun.wire.status import status_of


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
