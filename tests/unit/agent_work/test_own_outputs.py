"""What is uploaded of a checkpoint folder: the run's own, whole ones; the rest is left out by name, and stays."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from unit.agent_work.test_checkpoint_files import STATE, safetensors

from aicrun.agent.outputs import Outputs
from aicrun.agent.own_outputs import EVERYTHING, Rule, check_any, chosen
from aicrun.agent.targets import CannotUpload

BEGAN = time.time() - 1000.0


def made(place: Path, age_s: float, **files: bytes) -> Path:
    """A folder whose files are `age_s` old."""
    place.mkdir(parents=True, exist_ok=True)
    for name, raw in files.items():
        path = place / name.replace("__", ".")
        path.write_bytes(raw)
        os.utime(path, (time.time() - age_s, time.time() - age_s))
    return place


def whole(place: Path, age_s: float = 10.0) -> Path:
    state = json.dumps(STATE).encode()
    return made(
        place, age_s, trainer_state__json=state, config__json=b'{"model_type": "x"}', model__safetensors=safetensors(8)
    )


def paths(found: Outputs) -> list[str]:
    return [output.path for output in found.files]


def test_a_checkpoint_that_a_kill_cut_short_is_left_out_and_named(tmp_path: Path) -> None:
    whole(tmp_path / "checkpoint-10")
    made(tmp_path / "checkpoint-20", 5, model__safetensors=safetensors(8), config__json=b"{}")
    made(tmp_path / "checkpoint-30", 4, trainer_state__json=b"{}", model__safetensors=safetensors(8)[:-3])
    whole(tmp_path / "tmp-checkpoint-40")
    made(tmp_path / "runs", 3, events=b"loss")
    found = chosen(str(tmp_path), EVERYTHING)
    assert paths(found) == [
        "checkpoint-10/config.json",
        "checkpoint-10/model.safetensors",
        "checkpoint-10/trainer_state.json",
        "runs/events",
    ]
    size = len(safetensors(8))
    assert found.skipped == (
        "checkpoint-20: it is not whole: trainer_state.json is missing",
        f"checkpoint-30: it is not whole: model.safetensors has {size - 3} of {size} bytes",
        "tmp-checkpoint-40: it is not whole: its name says that it is being written",
    )


def test_a_link_is_as_good_as_what_it_leads_to(tmp_path: Path) -> None:
    whole(tmp_path / "checkpoint-10")
    made(tmp_path / "checkpoint-20", 5, model__safetensors=b"short")
    (tmp_path / "best").symlink_to("checkpoint-10")
    (tmp_path / "latest").symlink_to("checkpoint-20")
    found = chosen(str(tmp_path), EVERYTHING)
    assert {path.partition("/")[0] for path in paths(found)} == {"best", "checkpoint-10"}
    assert [line.partition(":")[0] for line in found.skipped] == ["checkpoint-20"]


def test_what_a_run_of_before_left_in_the_same_folder_is_not_uploaded_as_this_ones(tmp_path: Path) -> None:
    whole(tmp_path / "checkpoint-10", age_s=2000)
    (tmp_path / "checkpoint-10" / "gone").symlink_to("nothing")
    os.utime(tmp_path / "checkpoint-10" / "gone", (BEGAN - 9, BEGAN - 9), follow_symlinks=False)
    whole(tmp_path / "checkpoint-20")
    # Written over in part: what is left in it is another run's.
    made(whole(tmp_path / "checkpoint-30", age_s=2000), 10, model__safetensors=safetensors(8))
    # Copied with its time, beside weights that are the run's own.
    made(whole(tmp_path / "checkpoint-40"), 2000, config__json=b"{}")
    made(tmp_path, 2000, old__log=b"x")
    made(tmp_path, 10, new__log=b"x")
    found = chosen(str(tmp_path), Rule(began=BEGAN))
    assert {path.partition("/")[0] for path in paths(found)} == {"checkpoint-20", "checkpoint-40", "new.log"}
    assert found.skipped == (
        "checkpoint-10: it was there before the run began",
        "checkpoint-30: it holds files from before the run began",
        "old.log: it was there before the run began",
    )
    assert found.missing == ()


def test_a_model_at_the_top_goes_whole_or_not_at_all(tmp_path: Path) -> None:
    made(tmp_path, 10, config__json=b'{"model_type": "x"}', model__safetensors=safetensors(8), run__log=b"x")
    made(tmp_path, 2000, older__bin=b"x")
    assert paths(chosen(str(tmp_path), Rule(began=BEGAN))) == ["config.json", "model.safetensors", "run.log"]
    made(tmp_path, 5, model__safetensors=safetensors(8)[:-1])
    found = chosen(str(tmp_path), EVERYTHING)
    assert paths(found) == []
    with pytest.raises(CannotUpload, match=r"no file in .* is of a whole checkpoint of this run; config.json: it is "):
        check_any(str(tmp_path), found)


def test_a_mark_that_the_spec_names_makes_a_checkpoint_whole(tmp_path: Path) -> None:
    made(tmp_path / "step-10", 5, weights__dat=b"x", DONE=b"")
    made(tmp_path / "step-20", 5, weights__dat=b"x")
    made(tmp_path / "final", 5, weights__dat=b"x")
    found = chosen(str(tmp_path), Rule(complete_when="DONE"))
    assert paths(found) == ["final/weights.dat", "step-10/DONE", "step-10/weights.dat"]
    assert found.skipped == ("step-20: it is not whole: DONE is missing",)


def test_files_without_a_time_are_the_runs_own_where_nobody_else_writes(tmp_path: Path) -> None:
    os.utime(made(tmp_path / "checkpoint-1", 0, weights__dat=b"x") / "weights.dat", (0, 0))
    assert paths(chosen(str(tmp_path), EVERYTHING)) == ["checkpoint-1/weights.dat"]


def test_an_empty_folder_is_told_as_empty(tmp_path: Path) -> None:
    with pytest.raises(CannotUpload, match="is empty"):
        check_any(str(tmp_path), chosen(str(tmp_path), EVERYTHING))
