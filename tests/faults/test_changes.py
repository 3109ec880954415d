"""What a person does to a job that exists: upload again, change, delete, forget, wait, and what is refused."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from agent_rig import Refusal, Rig, lives
from support import until

from aicrun.wire import names
from aicrun.wire.codec import from_json, to_json
from aicrun.wire.jobs import JobReport, Limits, Upload
from aicrun.wire.status import Status, status_of


def uploading(rig: Rig, run: str, command: str, probe: bool = True, **fields: Any) -> str:
    """A job whose checkpoints go to a folder of the home."""
    target = rig.home / "target" / run
    upload = Upload(to=f"file:{target}", scheme="file", destination=str(target), probe=probe)
    checkpoints = rig.home / "work" / run / "checkpoints"
    full = f'mkdir -p "{checkpoints}" && echo weights > "{checkpoints}/model.bin" && {command}'
    return rig.start(run, full, checkpoints=str(checkpoints), upload=upload, **fields)


def test_an_upload_is_the_runs_own_last_step(rig: Rig) -> None:
    job = uploading(rig, "up-run", "exit 0")
    report = rig.ended(job)
    assert status_of(report).status is Status.SUCCEEDED
    assert report.upload is not None
    assert report.upload.verified
    assert [step.step for step in report.steps] == ["setup", "command", "upload"]
    # What is verified is looked at anew, as often as somebody asks.
    shutil.rmtree(rig.home / "target/up-run")
    rig.call("upload", job_id=job, by="ana")
    until(lambda: not lives(rig.keeper(job)))
    assert rig.standing(job).status is Status.SUCCEEDED
    assert (rig.home / "target/up-run/model.bin").read_text() == "weights\n"
    failed = uploading(rig, "fail-run", "exit 3")
    assert status_of(rig.ended(failed)).code == 3
    assert not list((rig.home / "target/fail-run").iterdir())


def test_a_folder_that_cannot_be_written_to_is_told_before_anything_trains(rig: Rig) -> None:
    (rig.home / "target").mkdir()
    (rig.home / "target/tried-run").write_text("a file stands where the folder should be")
    job = uploading(rig, "tried-run", "echo trained >> count")
    standing = status_of(rig.ended(job))
    assert (standing.status, standing.reason) == (Status.FAILED, "setup_failed")
    assert f"the upload target {rig.home}/target/tried-run cannot be used: ".encode() in rig.log(job, "setup")
    assert not (rig.home / "work/tried-run/count").exists()


def test_what_failed_to_upload_is_uploaded_again_and_the_training_is_not_repeated(rig: Rig) -> None:
    (rig.home / "target").mkdir()
    (rig.home / "target/again-run").write_text("a file stands where the folder should be")
    job = uploading(rig, "again-run", "echo trained >> count", probe=False)
    standing = status_of(rig.ended(job))
    assert (standing.status, standing.reason) == (Status.FAILED, "upload_failed")
    rig.call("upload", job_id=job, by="ana@laptop")
    until(lambda: not lives(rig.keeper(job)))
    assert rig.standing(job).reason == "upload_failed"
    # What is learned of it is the run's end: the upload's own keeper, which tells it, is no progress of the run.
    assert rig.report(job).facts["status"] == "failed"
    (rig.home / "target/again-run").unlink()
    rig.call("upload", job_id=job, by="ana@laptop")
    report = until(
        lambda: (lambda found: found if status_of(found).status is Status.SUCCEEDED else None)(rig.report(job))
    )
    assert (rig.home / "work/again-run/count").read_text() == "trained\n"
    assert [event.by for event in report.events if event.event == "upload_asked"] == ["ana@laptop"] * 2
    keeper = rig.keeper(job)
    until(lambda: not lives(keeper))
    assert rig.report(job).facts["status"] == "succeeded"
    with rig.link() as link:
        assert b"in progress" not in link.call("notes")[1]
    shutil.rmtree(rig.folder(job))
    swept = rig.report(job)
    assert swept.swept
    assert status_of(swept).status is Status.SUCCEEDED


def test_a_job_without_a_target_has_nothing_to_upload(rig: Rig) -> None:
    job = rig.start("plain-run", "sleep 600")
    with pytest.raises(Refusal, match="nothing_to_upload"):
        rig.call("upload", job_id=job, by="ana")
    running = uploading(rig, "busy-run", "sleep 600")
    with pytest.raises(Refusal, match="not_finished"):
        rig.call("upload", job_id=running, by="ana")


def test_nothing_is_uploaded_out_of_a_folder_that_a_newer_job_writes_in(rig: Rig) -> None:
    out = rig.home / "work/out"
    job = rig.start("shared-run", f"mkdir -p {out}; echo w >{out}/model.bin", checkpoints=str(out), run_id="5" * 16)
    rig.ended(job)
    newer = rig.start("newer-run", "sleep 600", checkpoints=str(out), run_id="5" * 16)
    rig.running(newer)
    goal = {"to": "file:~/kept", "scheme": "file", "destination": f"file:{rig.home}/kept"}
    with pytest.raises(Refusal, match="not_finished") as refused:
        rig.call("upload", job_id=job, by="ana", upload=goal)
    assert newer in str(refused.value)
    rig.call("stop", job_id=newer, by="ana", grace_s=1)
    rig.ended(newer)
    rig.call("upload", job_id=job, by="ana", upload=goal)
    until(lambda: (rig.home / "kept/aicrun-manifest.json").exists())


def test_only_a_job_that_is_over_is_deleted_and_only_what_is_ours(rig: Rig) -> None:
    job = rig.start("delete-run", "touch mine; sleep 600")
    rig.running(job)
    with pytest.raises(Refusal, match="not_finished"):
        rig.call("delete", job_id=job, by="ana")
    rig.call("stop", job_id=job, by="ana", grace_s=1)
    rig.ended(job)
    assert from_json(JobReport, rig.call("delete", job_id=job, by="ana")["report"]).job_id == job
    assert not rig.folder(job).exists()
    assert not (rig.root / "runs/delete-run").exists()
    assert list((rig.root / "trash").iterdir()) == []
    assert (rig.home / "work/delete-run/mine").exists()
    with pytest.raises(Refusal, match="not_found"):
        rig.call("delete", job_id=job, by="ana")
    rig.ended(rig.start("delete-run", "true"))


def test_an_unknown_job_is_forgotten_by_a_person_only(rig: Rig) -> None:
    job = rig.start("forget-run", "sleep 600")
    main, keeper = rig.running(job), rig.keeper(job)
    with pytest.raises(Refusal, match="not_finished"):
        rig.call("forget", job_id=job, by="ana")
    for pid in (keeper, main):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not lives(main) and not lives(keeper))
    assert status_of(rig.ended(job)).status is Status.UNKNOWN
    assert [one["job_id"] for one in rig.call("look", run="forget-run")["reports"]] == [job]
    report = from_json(JobReport, rig.call("forget", job_id=job, by="ana")["report"])
    assert report.forgotten
    assert status_of(report).status is Status.UNKNOWN
    assert rig.call("look", run="forget-run")["reports"] == []
    rig.ended(rig.start("forget-run", "true"))


def test_changed_limits_reach_a_living_keeper(rig: Rig) -> None:
    job = rig.start("change-run", "sleep 600", limits=Limits(grace_s=600))
    rig.running(job)
    supervision = {"limits": {"max_duration": "1s"}}
    answer = rig.call(
        "supervise", job_id=job, supervision=supervision, limits={"grace_s": 1, "max_duration_s": 1}, by="ana"
    )
    assert answer["report"]["supervision"] == supervision
    report = rig.ended(job)
    assert status_of(report).reason == "timeout"
    assert [event.by for event in report.events if event.event == "changed"] == ["ana"]


def test_wait_returns_when_the_status_changes_and_not_before(rig: Rig) -> None:
    job = rig.start("wait-run", "while [ ! -e go ]; do sleep 0.05; done; exit 3")
    until(lambda: rig.standing(job).status is Status.IN_PROGRESS)
    with rig.link() as link:
        answer, _ = link.call("wait", job_id=job, known="in progress", timeout_s=0.2)
        assert status_of(from_json(JobReport, answer["report"])).status is Status.IN_PROGRESS
        until(lambda: (rig.home / "work/wait-run").exists())
        (rig.home / "work/wait-run/go").touch()
        answer, _ = link.call("wait", job_id=job, known="in progress", timeout_s=30)
        assert status_of(from_json(JobReport, answer["report"])).status is Status.FAILED


def test_progress_and_checkpoints_are_seen_while_it_runs(rig: Rig) -> None:
    out = rig.home / "out"
    command = f'mkdir -p "{out}/step-2"; echo x > "{out}/step-2/model"; echo "step 2/9 loss=0.5"; sleep 600'
    progress = {"step": {"pattern": r"step (\d+)/(\d+)"}, "loss": {"pattern": r"loss=([0-9.]+)"}}
    job = rig.start("seen-run", command, progress=progress, checkpoints=str(out))
    report = until(lambda: (lambda found: found if found.progress else None)(rig.report(job)))
    assert report.progress == {"step": "2/9", "loss": "0.5"}
    assert report.checkpoints.newest == "step-2"
    assert report.supervised
    assert report.steps[1].pid == rig.running(job)


def test_a_wrong_call_is_data_and_the_connection_lives_on(rig: Rig) -> None:
    with rig.link() as link:
        for name, body, token in (
            ("nonsense", {}, "invalid_request"),
            ("job", {}, "invalid_request"),
            ("stop", {"job_id": 3}, "invalid_request"),
            ("jobs", {"limit": -1}, "invalid_request"),
            ("log", {"job_id": "0" * 16, "offset": "x"}, "invalid_request"),
            ("wait", {"job_id": "0" * 16, "timeout_s": True}, "invalid_request"),
            ("reserve", {"request": None}, "invalid_request"),
            ("reserve", {"request": {"schema": 9}}, "newer_record"),
        ):
            with pytest.raises(Refusal) as caught:
                link.call(name, **body)
            assert caught.value.token == token, name
        assert link.call("jobs")[0] == {"reports": [], "omitted": 0}
    assert link.process.returncode == 0


def test_a_fault_of_ours_tells_its_place_and_nothing_private(rig: Rig) -> None:
    jobs = rig.agent / "aicrun/agent/jobs.py"
    jobs.write_text(jobs.read_text() + "\n\ndef jobs(home, body, payload):\n    raise KeyError('hunter2')\n")
    with rig.link() as link:
        with pytest.raises(Refusal) as caught:
            link.call("jobs")
        assert caught.value.token == "internal"
        assert "KeyError in jobs.py:" in caught.value.message
        assert "hunter2" not in caught.value.message
        link.call("look", run="any-run")


def test_everything_of_ours_is_private(rig: Rig) -> None:
    job = rig.start("private-run", "true", env={**rig.env})
    rig.ended(job)
    for path in [rig.root, *rig.root.rglob("*")]:
        mode = path.lstat().st_mode & 0o777
        assert mode == (0o700 if path.is_dir() else 0o600), path
    assert names.REQUEST in os.listdir(rig.folder(job))
    assert Path(rig.home / "work/private-run").stat().st_mode & 0o777 in (0o700, 0o755)


def test_a_start_that_came_to_nothing_does_not_stand_before_the_job_that_goes_on(rig: Rig) -> None:
    first = rig.start("sft", "exec sleep 600")
    rig.running(first)
    second = rig.request("sft", "true", named=(first,))
    assert rig.call("reserve", request=to_json(second), confirm=False)["answer"] == "ok"
    rig.call("withdraw", job_id=second.job_id, reason="expired", by="ana@laptop")
    assert rig.report("sft").job_id == first
    rig.call("stop", job_id=first, by="ana", grace_s=1)
    rig.ended(first)
    # What ended is no reason to hide how the last start went.
    assert rig.report("sft").job_id == second.job_id
