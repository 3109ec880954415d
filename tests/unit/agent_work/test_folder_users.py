"""What is told, and left alone, where a checkpoint folder or an upload's record is not one run's or target's alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.agent_work.test_pruning import left, rounds, saved

from aicrun.agent import retarget, uploaded
from aicrun.agent.deleting import delete_checkpoints
from aicrun.agent.home import Home
from aicrun.agent.records import write_record
from aicrun.agent.refused import Refused
from aicrun.agent.report import report_of
from aicrun.agent.uploaded import SentCheckpoint, SentFile, Uploaded
from aicrun.wire import names
from aicrun.wire.jobs import Decision, End, JobRequest, RunRecord, StepExit, Upload

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
        ran = StepExit("command", 1, age_s - ended_s, now - ended_s, code=0)
        write_record(os.path.join(folder, names.END), End(1, now - ended_s, (ran,)))


def end_of(folder: str) -> subprocess.CompletedProcess[str]:
    """The upload of a job in a process of its own, which takes signals."""
    code = "import sys; from aicrun.agent.upload import main; sys.exit(main(sys.argv[1]))"
    return subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=False)


def test_what_is_verified_at_another_target_than_the_one_that_counts_is_not_told(
    home: Home, job: Job, account: Path
) -> None:
    first = Upload("file:~/a", "file", f"file:{account}/a", "exact", "each")
    request = job(upload=first)
    recorded(home, request, ended_s=5)
    (saved(Path(request.checkpoints), 1) / "m").write_text("x")
    sent = SentCheckpoint("checkpoint-1", (SentFile("checkpoint-1/m", 1, 1, "0" * 64),), 1.0, 1.0)
    uploaded.write(home, request, Uploaded(first.destination, (sent,)))
    report = report_of(home, request.run, request.job_id)
    assert report.early is not None and report.early.verified == 1
    goal = Upload("file:~/b", "file", f"file:{account}/b")
    retarget.write(home, report, goal, "ana")
    assert report_of(home, request.run, request.job_id).early is None


def test_nothing_is_pruned_where_another_run_wrote_since_this_one_began(home: Home, job: Job, account: Path) -> None:
    target = Upload("file:~/kept", "file", f"file:{account}/kept", "exact", "each")
    out = account / "out"
    mine = job(upload=target, keep=1, checkpoints=str(out))
    recorded(home, mine, age_s=5000)
    for step in (1, 2, 3):
        saved(out, step)
    # Below a link.
    (account / "link").symlink_to(out)
    rival = job(job_id="0" * 14 + "cc", run="rival", run_id="0" * 14 + "dd", checkpoints=str(account / "link"))
    recorded(home, rival, age_s=3000, ended_s=2000)
    rounds(home, mine).look()
    assert left(mine) == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
    assert len(uploaded.read(home, mine.run, mine.job_id).checkpoints) == 3
    # One that was over before counts no more.
    recorded(home, rival, age_s=9000, ended_s=8000)
    rounds(home, mine).look()
    assert left(mine) == ["checkpoint-3"]


def test_what_the_disk_does_not_let_go_is_told_and_not_counted_as_removed(
    home: Home, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = job()
    recorded(home, request, ended_s=1)
    for step in (1, 2):
        saved(Path(request.checkpoints), step)
    body = {"job_id": request.job_id, "by": "ana"}
    shown = delete_checkpoints(home, body, b"")[0]["removed"]["names"]
    real = os.unlink

    def stuck(path: Any, **more: Any) -> None:
        if str(path).endswith("model.safetensors"):
            raise PermissionError(1, "Operation not permitted", path)
        real(path, **more)

    monkeypatch.setattr(os, "unlink", stuck)
    with pytest.raises(Refused, match=r"model.safetensors cannot be removed: Operation not permitted") as refused:
        delete_checkpoints(home, {**body, "dry": False, "names": shown}, b"")
    assert refused.value.token == "unwritable"
    # It is still told as long as it is there, and what is left goes once it can.
    with pytest.raises(Refused, match="cannot be removed"):
        delete_checkpoints(home, {**body, "dry": False, "names": []}, b"")
    monkeypatch.undo()
    delete_checkpoints(home, {**body, "dry": False, "names": []}, b"")
    assert os.listdir(os.path.dirname(request.checkpoints)) == []


def test_what_lies_at_the_first_target_alone_is_not_forgotten_for_another_one(
    home: Home, job: Job, account: Path
) -> None:
    first = Upload("file:~/a", "file", f"file:{account}/a", "exact", "each")
    earlier, request = job(upload=first, job_id="0" * 14 + "cc"), job(upload=first)
    for one, age_s in ((earlier, 90.0), (request, 60.0)):
        recorded(home, one, age_s, ended_s=5)
    saved(Path(request.checkpoints), 2)
    # The trainer removed the first by itself; an earlier job of the run had uploaded it.
    (file,) = (SentFile("checkpoint-1/model.safetensors", 1, 1, "0" * 64),)
    uploaded.write(home, earlier, Uploaded(first.destination, (SentCheckpoint("checkpoint-1", (file,), 1.0, 1.0),)))
    goal = Upload("file:~/b", "file", f"file:{account}/b")
    with pytest.raises(Refused, match=r"checkpoint-1 lies at its first target, .*/a, alone"):
        retarget.write(home, report_of(home, request.run, request.job_id), goal, "ana")
    saved(Path(request.checkpoints), 1)
    retarget.write(home, report_of(home, request.run, request.job_id), goal, "ana")


def test_an_upload_elsewhere_that_fails_forgets_nothing_of_the_first_target(
    home: Home, job: Job, account: Path
) -> None:
    first = Upload("file:~/a", "file", f"file:{account}/a", "exact", "each")
    request = job(upload=first)
    recorded(home, request, ended_s=5)
    saved(Path(request.checkpoints), 1)
    rounds(home, request).look()
    assert uploaded.read(home, request.run, request.job_id).named("checkpoint-1") is not None
    (account / "b").write_text("a file where the folder shall be")
    goal = Upload("file:~/b", "file", f"file:{account}/b")
    retarget.write(home, report_of(home, request.run, request.job_id), goal, "ana")
    write_record(os.path.join(home.job_dir(request.job_id), names.REQUEST), request)
    done = end_of(home.job_dir(request.job_id))
    assert done.returncode == 1 and "/b" in done.stdout, done
    kept = uploaded.read(home, request.run, request.job_id)
    assert kept.destination == first.destination and kept.named("checkpoint-1") is not None


def test_what_one_job_took_back_does_not_return_out_of_an_earlier_jobs_record(
    home: Home, job: Job, account: Path
) -> None:
    goal = Upload("file:~/a", "file", f"file:{account}/a", "exact", "each")
    earlier = job(upload=goal)
    later = job(upload=goal, job_id="feed" * 4)
    for request in (earlier, later):
        recorded(home, request)
    files = (SentFile("last.pt", 1, 1, "0" * 64),)
    uploaded.write(home, earlier, Uploaded(goal.destination, (SentCheckpoint("last.pt", files, 1.0, 1.0),)))
    taken = uploaded.of_run(home, later)
    assert [one.name for one in taken.checkpoints] == ["last.pt"]
    for without in (taken.without("last.pt"), taken.but(["last.pt"])):
        uploaded.write(home, later, without)
        assert uploaded.of_run(home, later).checkpoints == uploaded.of_run(home, earlier).checkpoints == ()
    # Verified anew, it counts again, also once it was taken over and written down once more.
    again = uploaded.of_run(home, later).adding(SentCheckpoint("last.pt", files, 2.0, 2.0))
    uploaded.write(home, later, again)
    uploaded.write(home, later, uploaded.of_run(home, later))
    assert [one.at for one in uploaded.of_run(home, earlier).checkpoints] == [2.0]
