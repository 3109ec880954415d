"""What is told, and left alone, where a checkpoint folder or an upload's record is not one run's or target's alone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from aicrun.agent import retarget, uploaded
from aicrun.agent.home import Home
from aicrun.agent.records import write_record
from aicrun.agent.report import report_of
from aicrun.agent.uploaded import SentCheckpoint, SentFile, Uploaded
from aicrun.wire import names
from aicrun.wire.jobs import Decision, End, JobRequest, RunRecord, Upload

Job = Callable[..., JobRequest]


def recorded(home: Home, request: JobRequest, age_s: float = 60.0, ended_s: float | None = None) -> None:
    """The records of a job that was made so long ago, and ended so long ago or not at all."""
    os.makedirs(home.job_dir(request.job_id), exist_ok=True)
    folder = home.record_dir(request.run, request.job_id)
    os.makedirs(folder, exist_ok=True)
    now = time.time()
    made = RunRecord(
        request.job_id,
        request.run,
        request.run_id,
        "",
        request.digest,
        request.client,
        now - age_s,
        checkpoints=request.checkpoints,
        upload=request.upload,
    )
    write_record(os.path.join(folder, names.RECORD), made)
    write_record(os.path.join(folder, names.DECISION), Decision("go", at=now - age_s))
    if ended_s is not None:
        write_record(os.path.join(folder, names.END), End(1, now - ended_s))


def test_what_is_verified_at_another_target_than_the_one_that_counts_is_not_told(
    home: Home, job: Job, account: Path
) -> None:
    first = Upload("file:~/a", "file", f"file:{account}/a", "exact", "each")
    request = job(upload=first)
    recorded(home, request, ended_s=5)
    sent = SentCheckpoint("checkpoint-1", (SentFile("checkpoint-1/m", 1, 1, "0" * 64),), 1.0, 1.0)
    uploaded.write(home, request, Uploaded(first.destination, (sent,)))
    report = report_of(home, request.run, request.job_id)
    assert report.early is not None and report.early.verified == 1
    goal = Upload("file:~/b", "file", f"file:{account}/b")
    retarget.write(home, report, goal, "ana")
    assert report_of(home, request.run, request.job_id).early is None
