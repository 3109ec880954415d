"""What goes from a machine once it is verified uploaded, and everything that must stay."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support import REPOSITORY
from unit.agent_work.test_checkpoint_files import STATE, safetensors

from aicrun.agent import handles, uploaded
from aicrun.agent.early_upload import Rounds
from aicrun.agent.home import Home
from aicrun.agent.records import write_record
from aicrun.wire import lean, names
from aicrun.wire.checkpoint import Resume
from aicrun.wire.jobs import JobRequest, Upload

Job = Callable[..., JobRequest]


def saved(folder: Path, step: int, **state: object) -> Path:
    """A whole checkpoint, older than those of higher steps."""
    place = folder / f"checkpoint-{step}"
    place.mkdir(parents=True)
    (place / "model.safetensors").write_bytes(safetensors(8))
    (place / "trainer_state.json").write_text(json.dumps({**STATE, "global_step": step, **state}))
    aged(place, 1000 - step)
    return place


def aged(place: Path, age_s: float) -> None:
    then = time.time() - age_s
    for file in place.iterdir():
        if not file.is_symlink():
            os.utime(file, (then, then))


@pytest.fixture
def made(home: Home, job: Job, account: Path) -> JobRequest:
    """A job that keeps two, with four checkpoints saved."""
    upload = Upload("file:~/kept", "file", f"file:{account}/kept", "exact", "each")
    request = job(upload=upload, keep=2)
    os.makedirs(home.job_dir(request.job_id))
    os.makedirs(home.record_dir(request.run, request.job_id))
    for step in (1, 2, 3, 4):
        saved(Path(request.checkpoints), step)
    return request


def rounds(home: Home, request: JobRequest) -> Rounds:
    assert request.upload is not None
    return Rounds(home, request, request.upload)


def left(request: JobRequest) -> list[str]:
    return sorted(os.listdir(request.checkpoints))


def test_the_newest_stay_and_the_others_go_once_they_are_verified(home: Home, made: JobRequest, account: Path) -> None:
    rounds(home, made).look()
    assert left(made) == ["checkpoint-3", "checkpoint-4"]
    kept = uploaded.read(home, made.run, made.job_id)
    assert {one.name: one.pruned_at > 0 for one in kept.checkpoints} == {
        "checkpoint-1": True,
        "checkpoint-2": True,
        "checkpoint-3": False,
        "checkpoint-4": False,
    }
    assert (account / "kept/checkpoint-1/model.safetensors").read_bytes() == safetensors(8)
    manifest = json.loads((account / "kept/aicrun-manifest.json").read_text())
    assert len({file["path"].partition("/")[0] for file in manifest["files"]}) == 4


def test_without_a_number_nothing_goes(home: Home, job: Job, made: JobRequest) -> None:
    request = job(upload=made.upload)
    rounds(home, request).look()
    assert len(left(request)) == 4


def test_what_is_being_written_counts_for_nothing(home: Home, made: JobRequest) -> None:
    half = Path(made.checkpoints) / "checkpoint-5"
    half.mkdir()
    (half / "model.safetensors").write_bytes(safetensors(8)[:-1])
    rounds(home, made).look()
    assert left(made) == ["checkpoint-3", "checkpoint-4", "checkpoint-5"]


def test_what_changed_since_stays(home: Home, made: JobRequest) -> None:
    changed = Path(made.checkpoints) / "checkpoint-1/model.safetensors"
    # The same size and time: only its bytes tell.
    state = changed.stat()
    rounds(home, without_keep(made)).look()
    changed.write_bytes(safetensors(8)[:-1] + b"\xff")
    os.utime(changed, ns=(state.st_atime_ns, state.st_mtime_ns))
    rounds(home, made).look()
    assert left(made) == ["checkpoint-1", "checkpoint-3", "checkpoint-4"]


def without_keep(request: JobRequest) -> JobRequest:
    return lean.replace(request, keep=0)


@pytest.mark.parametrize("what", ["truncated", "gone"])
def test_what_the_target_lost_stays(home: Home, made: JobRequest, account: Path, what: str) -> None:
    rounds(home, without_keep(made)).look()
    there = account / "kept/checkpoint-1/model.safetensors"
    there.unlink()
    if what == "truncated":
        there.write_bytes(b"x")
    rounds(home, made).look()
    assert left(made) == ["checkpoint-1", "checkpoint-3", "checkpoint-4"]


def test_what_a_resume_would_pick_stays(home: Home, job: Job, made: JobRequest) -> None:
    request = job(upload=made.upload, keep=1, resume=Resume("checkpoint-2"))
    rounds(home, request).look()
    assert left(request) == ["checkpoint-2", "checkpoint-4"]


def test_what_the_newest_state_calls_the_best_stays(home: Home, made: JobRequest) -> None:
    saved(Path(made.checkpoints), 5, best_model_checkpoint=f"{made.checkpoints}/checkpoint-2")
    rounds(home, made).look()
    assert left(made) == ["checkpoint-2", "checkpoint-4", "checkpoint-5"]


def test_nothing_is_removed_through_a_link_nor_from_below_one(home: Home, made: JobRequest, tmp_path: Path) -> None:
    outside = saved(tmp_path / "elsewhere", 9)
    folder = Path(made.checkpoints)
    (folder / "checkpoint-0").symlink_to(outside)
    (folder / "best").symlink_to("checkpoint-1")
    (folder / "checkpoint-2/base").symlink_to(outside)
    rounds(home, made).look()
    assert {"checkpoint-0", "checkpoint-1", "checkpoint-2", "best"} <= set(left(made))
    assert sorted(path.name for path in outside.iterdir()) == ["model.safetensors", "trainer_state.json"]


def test_what_holds_more_than_was_uploaded_stays(home: Home, made: JobRequest) -> None:
    os.mkfifo(Path(made.checkpoints) / "checkpoint-1/pipe")
    rounds(home, made).look()
    assert "checkpoint-1" in left(made) and "checkpoint-2" not in left(made)


@pytest.mark.parametrize("written", [False, True])
def test_what_a_kill_left_aside_is_removed_or_comes_back(home: Home, made: JobRequest, written: bool) -> None:
    rounds(home, without_keep(made)).look()
    folder = Path(made.checkpoints)
    aside = folder / f".aicrun-pruned-{made.run_id}-checkpoint-1"
    (folder / "checkpoint-1").rename(aside)
    shutil.rmtree(folder / "checkpoint-2")
    if written:
        (aside / "model.safetensors").write_bytes(b"somebody wrote on")
    rounds(home, made).look()
    assert left(made) == (["checkpoint-1"] if written else []) + ["checkpoint-3", "checkpoint-4"]


def test_what_is_about_to_be_written_over_is_verified_no_more(home: Home, made: JobRequest, account: Path) -> None:
    rounds(home, without_keep(made)).look()
    place = Path(made.checkpoints) / "checkpoint-1"
    (place / "trainer_state.json").write_text(json.dumps({**STATE, "global_step": 1, "epoch": 7.0}))
    aged(place, 100)
    # Half of it arrives: something is in the way of the file that is sent last.
    (account / "kept/checkpoint-1/trainer_state.json").unlink()
    (account / "kept/checkpoint-1/trainer_state.json").mkdir()
    rounds(home, without_keep(made)).look()
    kept = uploaded.read(home, made.run, made.job_id)
    manifest = json.loads((account / "kept/aicrun-manifest.json").read_text())
    assert kept.trouble and {one.name for one in kept.checkpoints} == {"checkpoint-2", "checkpoint-3", "checkpoint-4"}
    assert "checkpoint-1/trainer_state.json" not in {file["path"] for file in manifest["files"]}


@pytest.mark.parametrize("name", ["best.pt", "model_best.pt", "last", "epoch-final"])
def test_what_a_program_looks_for_by_its_name_stays(home: Home, made: JobRequest, name: str) -> None:
    place = Path(made.checkpoints) / name
    (Path(made.checkpoints) / "checkpoint-1").rename(place)
    if name.endswith(".pt"):
        raw = (place / "model.safetensors").read_bytes()
        shutil.rmtree(place)
        place.write_bytes(raw)
        os.utime(place, (time.time() - 999, time.time() - 999))
    rounds(home, made).look()
    assert left(made) == sorted(["checkpoint-3", "checkpoint-4", name])
    assert uploaded.read(home, made.run, made.job_id).named(name) is not None


def test_the_pause_between_two_uploads_outlives_who_made_the_first(home: Home, job: Job, made: JobRequest) -> None:
    assert made.upload is not None
    request = job(upload=lean.replace(made.upload, when="every:1h", every_s=3600))
    rounds(home, request).look()
    saved(Path(request.checkpoints), 5)
    rounds(home, request).look()
    assert [one.name for one in uploaded.read(home, request.run, request.job_id).checkpoints] == ["checkpoint-4"]


def test_beside_another_upload_of_the_job_nothing_is_sent(home: Home, made: JobRequest, account: Path) -> None:
    folder = home.job_dir(made.job_id)
    write_record(os.path.join(folder, names.REQUEST), made)
    handle = handles.hold(os.path.join(folder, names.UPLOAD_LOCK), 0.0)
    assert handle is not None
    argv = [sys.executable, "-I", "-S", str(REPOSITORY / "aicrun/agent/boot.py"), "early", folder]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    finally:
        os.close(handle)
    assert (done.returncode, (account / "kept").exists()) == (1, False)
    assert "another upload of this job has not ended" in done.stdout


def test_a_record_without_files_counts_for_nothing(home: Home, made: JobRequest) -> None:
    rounds(home, without_keep(made)).look()
    kept = uploaded.read(home, made.run, made.job_id)
    uploaded.write(home, made, kept.adding(uploaded.SentCheckpoint("checkpoint-9", (), 1.0, 1.0)))
    assert uploaded.read(home, made.run, made.job_id) == kept


def test_the_last_upload_drops_what_it_writes_over_before_it_does(home: Home, made: JobRequest, account: Path) -> None:
    request = without_keep(made)
    rounds(home, request).look()
    place = Path(made.checkpoints) / "checkpoint-1"
    (place / "trainer_state.json").write_text(json.dumps({**STATE, "global_step": 1, "epoch": 7.0}))
    # Half of it arrives: something is in the way of the file that is sent last.
    (account / "kept/checkpoint-1/trainer_state.json").unlink()
    (account / "kept/checkpoint-1/trainer_state.json").mkdir()
    folder = home.job_dir(request.job_id)
    write_record(os.path.join(folder, names.REQUEST), request)
    argv = [sys.executable, "-I", "-S", str(REPOSITORY / "aicrun/agent/boot.py"), "upload", folder]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1, done.stdout
    kept = uploaded.read(home, made.run, made.job_id)
    assert {one.name for one in kept.checkpoints} == {"checkpoint-2", "checkpoint-3", "checkpoint-4"}


def test_a_name_that_is_no_text_is_told_in_text(
    home: Home, made: JobRequest, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    odd = os.path.join(os.fsencode(made.checkpoints), b"checkpoint-1/odd-\xff.bin")
    Path(os.fsdecode(odd)).write_bytes(b"then")
    aged(Path(made.checkpoints) / "checkpoint-1", 999)
    state = os.stat(odd)
    rounds(home, without_keep(made)).look()
    Path(os.fsdecode(odd)).write_bytes(b"now!")
    os.utime(odd, ns=(state.st_atime_ns, state.st_mtime_ns))
    rounds(home, made).look()
    assert b"checkpoint-1/odd-\\xff.bin is not what was uploaded" in capfdbinary.readouterr().out
    assert left(made) == ["checkpoint-1", "checkpoint-3", "checkpoint-4"]
