"""A person removes the checkpoints of a run: only that run's, only once it is over, and only what was shown."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from agent_rig import Refusal, Rig
from support import until

from aicrun.wire.jobs import Limits

RUN_ID = "5" * 16


def saved(folder: Path, name: str, age_s: float = 0.0) -> Path:
    place = folder / name
    place.mkdir(parents=True)
    (place / "model.bin").write_text("weights")
    then = time.time() - age_s
    os.utime(place / "model.bin", (then, then))
    return place


def doomed(rig: Rig, job: str) -> dict[str, Any]:
    found: dict[str, Any] = rig.call("delete_checkpoints", job_id=job, by="ana")["removed"]
    return found


def deleted(rig: Rig, job: str, **body: Any) -> None:
    body = {"names": doomed(rig, job)["names"], **body}
    rig.call("delete_checkpoints", job_id=job, by="ana", dry=False, **body)


def run(rig: Rig, folder: Path, command: str = "true", name: str = "del-run", **fields: Any) -> str:
    """A job that saves `checkpoint-2` into `folder`, then does `command`."""
    save = 'mkdir -p "$OUT/checkpoint-2"; echo w >"$OUT/checkpoint-2/model.bin"; echo log >"$OUT/train.log"; '
    variables = {"OUT": str(folder), "HOME": str(rig.home)}
    return rig.start(name, save + command, variables=variables, checkpoints=str(folder), **fields)


def test_a_folder_of_its_own_goes_whole_and_nothing_beside_it(rig: Rig, tmp_path: Path) -> None:
    above = rig.home / "work/checkpoints"
    other = saved(above / ("6" * 16), "checkpoint-1")
    outside = saved(tmp_path / "elsewhere", "checkpoint-9")
    job = run(rig, above / RUN_ID, run_id=RUN_ID)
    rig.ended(job)
    (above / RUN_ID / "latest").symlink_to(outside)
    told = doomed(rig, job)
    assert told["own"] and sorted(told["names"]) == ["checkpoint-2", "latest", "train.log"] and told["bytes"] > 0
    assert (above / RUN_ID).exists(), "looking removes nothing"
    deleted(rig, job)
    assert os.listdir(above) == ["6" * 16]
    assert (other / "model.bin").exists() and (outside / "model.bin").exists()
    # Its records are there, and nothing is left to remove.
    assert doomed(rig, job)["names"] == []


def test_of_a_shared_folder_only_what_was_written_while_the_run_lasted_goes(rig: Rig, tmp_path: Path) -> None:
    folder = rig.home / "out"
    saved(folder, "checkpoint-1", 3600)
    outside = saved(tmp_path / "elsewhere", "checkpoint-9")
    (folder / "checkpoint-3").symlink_to(outside)
    job = run(rig, folder)
    rig.ended(job)
    saved(folder, "checkpoint-4", -3600)
    mixed = saved(folder, "checkpoint-5", 3600)
    (mixed / "more.bin").write_text("x")
    told = doomed(rig, job)
    assert not told["own"] and told["names"] == ["checkpoint-2"]
    why = dict(line.split(": ", 1) for line in told["left"])
    assert why["checkpoint-1"] == why["checkpoint-5"] == "it holds files from before the run began"
    assert why["checkpoint-4"] == "it was written to after the run ended"
    deleted(rig, job)
    assert sorted(os.listdir(folder)) == ["checkpoint-1", "checkpoint-3", "checkpoint-4", "checkpoint-5", "train.log"]
    assert (outside / "model.bin").exists()


def test_of_two_runs_at_once_in_one_folder_neither_takes_what_may_be_the_other_s(rig: Rig) -> None:
    folder = rig.home / "out"
    wait = 'touch "$HOME/begun"; until [ -e "$HOME/go" ]; do sleep 0.1; done'
    job = run(rig, folder, wait)
    until((rig.home / "begun").exists)
    saves = f"mkdir {folder}/checkpoint-8; echo w >{folder}/checkpoint-8/model.bin"
    rig.ended(rig.start("second-run", saves, checkpoints=str(folder)))
    then = time.time() - 0.5
    os.utime(folder / "checkpoint-2/model.bin", (then, then))
    (rig.home / "go").touch()
    rig.ended(job)
    told = doomed(rig, job)
    assert "checkpoint-8: another run, second-run, used the folder then" in told["left"] and told["names"] == []


def test_a_run_that_is_not_over_keeps_its_checkpoints(rig: Rig) -> None:
    folder = rig.home / "out"
    job = run(rig, folder, "sleep 600", limits=Limits(grace_s=1))
    until(lambda: (folder / "train.log").exists())
    with pytest.raises(Refusal, match="not_finished"):
        doomed(rig, job)
    rig.call("stop", job_id=job, by="ana", grace_s=1)
    rig.ended(job)
    # Another that goes on in the same folder, or below or above it, is in the way too.
    below = run(rig, folder / "below", "sleep 600", name="other-run", limits=Limits(grace_s=1))
    rig.running(below)
    with pytest.raises(Refusal, match="not_finished") as refused:
        deleted(rig, job)
    assert below in str(refused.value)
    rig.call("stop", job_id=below, by="ana", grace_s=1)
    rig.ended(below)
    deleted(rig, job)
    assert not (folder / "checkpoint-2").exists()


def test_what_came_since_it_was_shown_is_not_removed(rig: Rig) -> None:
    folder = rig.home / RUN_ID
    job = run(rig, folder, run_id=RUN_ID)
    rig.ended(job)
    shown = doomed(rig, job)["names"]
    saved(folder, "checkpoint-7")
    with pytest.raises(Refusal, match="not those any more"):
        deleted(rig, job, names=shown)
    assert (folder / "checkpoint-7/model.bin").exists() and (folder / "checkpoint-2/model.bin").exists()


@pytest.mark.parametrize("own", [True, False])
def test_a_kill_in_between_leaves_what_the_next_one_removes(rig: Rig, own: bool) -> None:
    folder = rig.home / (RUN_ID if own else "out")
    job = run(rig, folder, run_id=RUN_ID)
    rig.ended(job)
    names = doomed(rig, job)["names"]
    with rig.link(AICRUN_TEST_HOOK="delete.aside:kill") as link:
        link.send("delete_checkpoints", job_id=job, by="ana", dry=False, names=names)
        assert until(lambda: link.process.poll()) == -signal.SIGKILL
    assert not (folder / "checkpoint-2").exists()
    deleted(rig, job)
    left = sorted(path.name for path in (rig.home if own else folder).iterdir() if path.name.startswith(".aicrun-"))
    assert left == []
    shutil.rmtree(folder, ignore_errors=True)


def test_what_was_left_half_removed_does_not_stand_in_the_way_of_the_same_name(rig: Rig) -> None:
    folder = rig.home / "out"
    job = run(rig, folder, run_id=RUN_ID)
    rig.ended(job)
    names = doomed(rig, job)["names"]
    with rig.link(AICRUN_TEST_HOOK="delete.aside:kill") as link:
        link.send("delete_checkpoints", job_id=job, by="ana", dry=False, names=names)
        assert until(lambda: link.process.poll()) == -signal.SIGKILL
    # The run goes on and saves a checkpoint of the same name.
    again = run(rig, folder, run_id=RUN_ID, named=(job,))
    rig.ended(again)
    deleted(rig, again)
    assert [path.name for path in folder.iterdir()] == ["train.log"]
