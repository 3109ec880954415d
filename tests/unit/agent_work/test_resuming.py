"""What a run goes on from: the newest checkpoint of its own that is whole; a newer one is named with why not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from unit.agent_work.test_checkpoint_files import STATE, safetensors

from aicrun.agent import resuming
from aicrun.agent.home import Home
from aicrun.agent.programs import Program
from aicrun.agent.records import write_record
from aicrun.agent.refused import Refused
from aicrun.wire.checkpoint import Resume
from aicrun.wire.jobs import Client, JobRequest, RunRecord

RUN = ("sft-run", "5" * 16)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(str(tmp_path / "state"), str(tmp_path / "jobs"), "1" * 32)


def saved(folder: Path, name: str, age_s: float, *, state: bool = True, whole: bool = True) -> Path:
    place = folder / name
    place.mkdir(parents=True)
    (place / "model.safetensors").write_bytes(safetensors(8)[: None if whole else -1])
    (place / "config.json").write_text('{"model_type": "x"}')
    if state:
        (place / "trainer_state.json").write_text(str(STATE).replace("'", '"'))
    then = time.time() - age_s
    for file in place.iterdir():
        os.utime(file, (then, then))
    return place


def start(home: Home, folder: Path, wanted: Resume | None = None) -> resuming.Start:
    return resuming.start(home, RUN, str(folder), wanted or Resume(), os.path.basename)


def test_logs_that_are_newer_are_not_gone_on_from(home: Home, tmp_path: Path) -> None:
    saved(tmp_path / "out", "checkpoint-500", 300)
    (tmp_path / "out/runs").mkdir()
    (tmp_path / "out/runs/events.out.tfevents").write_bytes(b"x")
    (tmp_path / "out/best").mkdir()
    (tmp_path / "out/best/weights.dat").write_bytes(b"x")
    # Of two that may be whole the one that a reader knows.
    assert start(home, tmp_path / "out").name == "checkpoint-500"
    (tmp_path / "out/checkpoint-500/trainer_state.json").unlink()
    (tmp_path / "out/checkpoint-500/model.safetensors").unlink()
    assert start(home, tmp_path / "out").name == "best"


def test_a_checkpoint_that_was_half_written_over_an_older_one_is_a_mix_of_two_runs(home: Home, tmp_path: Path) -> None:
    place = saved(tmp_path / "out", "checkpoint-1000", 3600)
    record(home, "b" * 16, RUN[1], 600)
    os.utime(place / "model.safetensors")
    found = start(home, tmp_path / "out")
    assert (found.name, found.skipped) == (
        "",
        ("checkpoint-1000 skipped: it holds files from before the run began",),
    )
    # In a folder that is the run's own nothing is of another's, whatever the clocks say.
    own = tmp_path / RUN[1]
    (tmp_path / "out").rename(own)
    assert start(home, own).name == "checkpoint-1000"


def test_a_folder_that_cannot_be_read_is_not_taken_for_an_empty_one(home: Home, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("no folder")
    with pytest.raises(OSError, match="Not a directory"):
        start(home, tmp_path / "out")


def record(home: Home, job_id: str, run_id: str, age_s: float) -> None:
    place = Path(home.record_dir(RUN[0], job_id))
    place.mkdir(parents=True)
    made = RunRecord(job_id, RUN[0], run_id, "0" * 16, "d" * 64, Client("a", "b", "0"), time.time() - age_s)
    write_record(str(place / "record.json"), made)


def test_the_newest_that_is_whole(home: Home, tmp_path: Path) -> None:
    saved(tmp_path / "out", "checkpoint-500", 300)
    saved(tmp_path / "out", "checkpoint-1000", 200)
    saved(tmp_path / "out", "checkpoint-1500", 100, state=False)
    saved(tmp_path / "out", "checkpoint-2000", 50, whole=False)
    found = start(home, tmp_path / "out")
    assert (found.name, found.path) == ("checkpoint-1000", str(tmp_path / "out/checkpoint-1000"))
    assert 199 <= found.age_s <= 260
    assert found.skipped[0].startswith("checkpoint-2000 skipped: model.safetensors has ")
    assert found.skipped[1:] == ("checkpoint-1500 skipped: trainer_state.json is missing",)
    assert found.words.startswith("from checkpoint-1000; checkpoint-2000 skipped: ")


def asks(folder: Path, resume: Resume) -> JobRequest:
    words = ("c" * 16, *RUN, "0" * 16, "d" * 64, Client("a", "b", "0"), {}, "/w", ("train",))
    return JobRequest(*words, is_argv=True, checkpoints=str(folder), resume=resume)


def test_a_command_is_not_begun_over_what_cannot_be_read(home: Home, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("no folder")
    with pytest.raises(Refused, match=r"the checkpoints in .*/out cannot be read: Not a directory"):
        resuming.with_start(home, asks(tmp_path / "out", Resume()), Program(("train",), {}, "/"))


def test_a_command_finds_its_start_in_its_environment_and_its_arguments(home: Home, tmp_path: Path) -> None:
    rule = Resume(args=(("--resume",), ("", ""), ("--state=", "/trainer_state.json")))
    program = Program(("train",), {"A": "1"}, "/")
    bare = resuming.with_start(home, asks(tmp_path / "out", rule), program)
    assert (bare.argv, bare.env) == (("train",), {"A": "1", "AICRUN_RESUME_FROM": ""})
    place = str(saved(tmp_path / "out", "checkpoint-5", 100))
    found = resuming.with_start(home, asks(tmp_path / "out", rule), program)
    assert found.argv == ("train", "--resume", place, f"--state={place}/trainer_state.json")
    assert found.env["AICRUN_RESUME_FROM"] == place


def test_a_file_that_the_rule_wants_must_be_there(home: Home, tmp_path: Path) -> None:
    (saved(tmp_path / "out", "checkpoint-500", 300) / "done").touch()
    os.utime(tmp_path / "out/checkpoint-500/done", (0, 0))
    saved(tmp_path / "out", "checkpoint-1000", 200)
    found = start(home, tmp_path / "out", Resume(complete_when="done"))
    assert (found.name, found.skipped) == ("checkpoint-500", ("checkpoint-1000 skipped: done is missing",))


def test_one_that_the_rule_names(home: Home, tmp_path: Path) -> None:
    saved(tmp_path / "out", "checkpoint-500", 300)
    saved(tmp_path / "out", "checkpoint-1000", 200)
    saved(tmp_path / "out/best", "model", 100)
    assert start(home, tmp_path / "out", Resume("checkpoint-500")).name == "checkpoint-500"
    assert start(home, tmp_path / "out", Resume("best/model")).path == str(tmp_path / "out/best/model")
    assert start(home, tmp_path / "out", Resume("nothing")).skipped == ("nothing is not there",)
    (tmp_path / "out/last").symlink_to("checkpoint-500")
    assert start(home, tmp_path / "out", Resume("last")).path == str(tmp_path / "out/checkpoint-500")
    saved(tmp_path, "elsewhere", 100)
    (tmp_path / "out/away").symlink_to(tmp_path / "elsewhere")
    assert start(home, tmp_path / "out", Resume("away")).skipped == ("away is not there",)


def test_what_another_run_left_in_the_folder_is_not_gone_on_from(home: Home, tmp_path: Path) -> None:
    saved(tmp_path / "out", "checkpoint-9000", 3600)
    record(home, "a" * 16, "9" * 16, 7200)
    record(home, "b" * 16, RUN[1], 600)
    record(home, "c" * 16, RUN[1], 60)
    assert start(home, tmp_path / "out").skipped == ("checkpoint-9000 skipped: it was there before the run began",)
    # Its own earlier job's is.
    saved(tmp_path / "out", "checkpoint-100", 300)
    assert start(home, tmp_path / "out").name == "checkpoint-100"


def test_the_model_at_the_top_comes_last(home: Home, tmp_path: Path) -> None:
    saved(tmp_path / "out", "checkpoint-500", 300)
    saved(tmp_path, "final", 10)
    for file in (tmp_path / "final").iterdir():
        file.rename(tmp_path / "out" / file.name)
    assert start(home, tmp_path / "out").name == "checkpoint-500"
    for file in (tmp_path / "out/checkpoint-500").iterdir():
        file.unlink()
    assert start(home, tmp_path / "out").path == str(tmp_path / "out")


def test_nothing_there_is_nothing_to_go_on_from(home: Home, tmp_path: Path) -> None:
    found = start(home, tmp_path / "out")
    assert (found, found.words) == (resuming.Start(), "from nothing")
