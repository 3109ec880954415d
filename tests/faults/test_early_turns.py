"""Uploads that somebody hinders at one moment: a checkpoint that goes away, a second upload, a stop of a single one."""

from __future__ import annotations

import json
import os
import shutil
import signal

from agent_rig import Rig, children, lives, state_of
from faults.test_early_uploads import beside, events, has, started
from support import until

from aicrun.wire import names
from aicrun.wire.status import Status, status_of


def test_a_checkpoint_that_goes_away_while_another_is_uploaded_is_not_verified(rig: Rig) -> None:
    waits = "save 1; save 2; await go"
    job = started(rig, waits, variables={"AICRUN_TEST_HOOK": "early.begin:pause"})
    pid = until(lambda: beside(rig, job), 60)
    until(lambda: state_of(pid) == "T", 60)
    # The newest is first; the trainer rotates the other one away meanwhile.
    shutil.rmtree(rig.home / "out/checkpoint-1")
    os.kill(pid, signal.SIGCONT)
    until(lambda: b"checkpoint-1 was changed or removed before it was uploaded" in rig.log(job, "early"), 60)
    assert has(rig, 2) and not has(rig, 1)
    until(lambda: (early := rig.report(job).early) is not None and early.verified == 1)
    assert events(rig, job).count("checkpoint_uploaded") == 1
    (rig.home / "go").touch()
    report = rig.ended(job)
    assert status_of(report).status is Status.SUCCEEDED and report.early is not None and report.early.verified == 1


def test_a_single_upload_that_is_stopped_leaves_the_run_as_it_ended(rig: Rig) -> None:
    job = started(rig, "save 1; save 2", "success", variables={"AICRUN_TEST_HOOK": "early.sent:pause"})
    assert status_of(rig.ended(job)).status is Status.SUCCEEDED
    until(lambda: not lives(rig.keeper(job)), 60)
    first = rig.keeper(job)
    rig.call("upload", job_id=job, by="ana", checkpoint="checkpoint-1")
    # It pauses once its files are sent, and stays so.
    again = until(lambda: (pid := rig.keeper(job)) != first and pid, 60)
    until(lambda: any(state_of(pid) == "T" for pid in children(again)), 60)
    rig.call("stop", job_id=job, by="ana", grace_s=1)
    until(lambda: not lives(again), 60)
    report = rig.report(job)
    assert status_of(report).status is Status.SUCCEEDED, report.steps
    assert report.upload is not None and report.upload.verified


def test_a_single_upload_of_what_goes_away_meanwhile_has_failed(rig: Rig) -> None:
    job = started(rig, "save 1; save 2", "success", variables={"AICRUN_TEST_HOOK": "early.begin:pause"})
    assert status_of(rig.ended(job)).status is Status.SUCCEEDED
    until(lambda: not lives(rig.keeper(job)), 60)
    first, place = rig.keeper(job), rig.home / "out/checkpoint-1"
    (place / "model.bin").write_text("other weights")
    rig.call("upload", job_id=job, by="ana", checkpoint="checkpoint-1")
    again = until(lambda: (pid := rig.keeper(job)) != first and pid, 60)
    paused = until(lambda: next((pid for pid in children(again) if state_of(pid) == "T"), 0), 60)
    shutil.rmtree(place)
    os.kill(paused, signal.SIGCONT)
    until(lambda: not lives(again), 60)
    assert json.loads((rig.step(job, "upload") / names.STEP_EXIT).read_text())["code"] == 1
    assert status_of(rig.report(job)).status is Status.SUCCEEDED
