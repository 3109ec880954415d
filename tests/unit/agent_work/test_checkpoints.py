"""The checkpoints of a folder: which there are, which are whole, which were uploaded; nothing is changed by looking."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest
from unit.agent_work.test_checkpoint_files import STATE, archive, safetensors

from aicrun.agent.checkpoint_folder import SETTLED_S, Moment, in_folder
from aicrun.wire.checkpoint import Checkpoint
from aicrun.wire.jobs import UploadResult

THEN = 1_750_000_000.0


def made(place: Path, age_s: float, **files: bytes) -> Path:
    """A folder whose files are `age_s` old."""
    place.mkdir(parents=True, exist_ok=True)
    for name, raw in files.items():
        (place / name.replace("__", ".")).write_bytes(raw)
        os.utime(place / name.replace("__", "."), (THEN - age_s, THEN - age_s))
    return place


def whole(place: Path, age_s: float, step: int) -> Path:
    state = json.dumps({**STATE, "global_step": step}).encode()
    return made(
        place, age_s, trainer_state__json=state, config__json=b'{"model_type": "x"}', model__safetensors=safetensors(8)
    )


def seen(folder: Path, moment: Moment | None = None) -> dict[str, Checkpoint]:
    return {one.name: one for one in in_folder(str(folder), moment or Moment(THEN))}


def test_the_newest_comes_first_with_what_its_files_say(tmp_path: Path) -> None:
    whole(tmp_path / "checkpoint-500", 600, 500)
    whole(tmp_path / "checkpoint-1000", 30, 1000)
    found = in_folder(str(tmp_path), Moment(THEN))
    assert [(one.name, one.step, one.age_s) for one in found] == [
        ("checkpoint-1000", 1000, 30.0),
        ("checkpoint-500", 500, 600.0),
    ]
    assert all((one.complete, one.inference_ready, one.files) == ("yes", True, 3) for one in found)
    assert found[0].bytes == sum(path.stat().st_size for path in (tmp_path / "checkpoint-1000").iterdir())


def test_a_folder_that_a_kill_cut_short_is_not_whole(tmp_path: Path) -> None:
    whole(tmp_path / "checkpoint-1000", 600, 1000)
    made(tmp_path / "checkpoint-2000", 300, config__json=b'{"model_type": "x"}', model__safetensors=safetensors(8))
    cut = seen(tmp_path)["checkpoint-2000"]
    assert (cut.complete, cut.why, cut.step) == ("no", "trainer_state.json is missing", 2000)
    assert not cut.inference_ready


def test_where_no_trainer_keeps_a_state_its_lack_says_little(tmp_path: Path) -> None:
    """It may be the first of one who keeps a state, cut short: whole by time, not by what lies in it."""
    made(tmp_path / "checkpoint-2000", 300, config__json=b'{"model_type": "x"}', model__safetensors=safetensors(8))
    made(tmp_path / "export", 300, config__json=b'{"model_type": "x"}', model__safetensors=safetensors(8))
    found = seen(tmp_path)
    assert (found["checkpoint-2000"].complete, found["export"].complete) == ("settled", "yes")
    assert not found["checkpoint-2000"].inference_ready


def test_folders_of_logs_and_samples_are_no_checkpoints(tmp_path: Path) -> None:
    made(tmp_path / "runs/Nov30", 1, events__out__tfevents=b"x")
    made(tmp_path / "wandb/run-1", 1, output__log=b"x")
    made(tmp_path / "samples", 1, a__png=b"x", b__npy=b"x")
    made(tmp_path / "orbax/checkpoint_500", 100, _METADATA=b"x")
    whole(tmp_path / "checkpoint-500", 600, 500)
    assert set(seen(tmp_path)) == {"checkpoint-500"}
    assert set(seen(tmp_path / "orbax")) == {"checkpoint_500"}


def test_a_configuration_beside_single_files_makes_no_model_of_them(tmp_path: Path) -> None:
    made(tmp_path / "out", 100, config__json=b"{}", epoch_1__pt=archive(), epoch_2__pt=archive()[:-30])
    assert {name: one.complete for name, one in seen(tmp_path / "out").items()} == {
        "epoch_1.pt": "yes",
        "epoch_2.pt": "no",
    }


def test_a_folder_that_cannot_be_listed_is_a_fault_and_no_empty_one(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("no folder")
    with pytest.raises(OSError, match="Not a directory"):
        seen(tmp_path / "out")


def test_bytes_that_no_number_can_hold_take_nobody_down(tmp_path: Path) -> None:
    header = b'{"w": {"data_offsets": [0, 1e999]}}'
    made(tmp_path / "checkpoint-1", 100, model__safetensors=struct.pack("<Q", len(header)) + header)
    made(tmp_path / "checkpoint-2", 100, trainer_state__json=b'{"log_history": [{"loss": %s}]}' % (b"9" * 400))
    found = seen(tmp_path)
    assert found["checkpoint-1"].complete == "no" and found["checkpoint-2"].train_loss is None


def test_what_is_rotated_away_meanwhile_hides_nothing_else(tmp_path: Path) -> None:
    whole(tmp_path / "checkpoint-1", 600, 1)
    (tmp_path / "gone.pt").symlink_to("nowhere")
    assert set(seen(tmp_path)) == {"checkpoint-1"}


def test_what_a_reader_finds_torn_is_not_whole_however_old(tmp_path: Path) -> None:
    made(tmp_path / "last", 10**6, config__json=b"{}", model__safetensors=safetensors(8)[:-1])
    (tmp_path / "tmp-checkpoint-3").mkdir()
    (tmp_path / "tmp-checkpoint-3/w").write_bytes(b"x")
    (tmp_path / "best.pt.tmp").write_bytes(b"x")
    found = seen(tmp_path)
    assert found["last"].why.startswith("model.safetensors has ")
    assert {found[name].why for name in ("tmp-checkpoint-3", "best.pt.tmp")} == {
        "its name says that it is being written"
    }


def test_what_no_reader_knows_has_settled_after_a_while_or_once_the_run_is_over(tmp_path: Path) -> None:
    made(tmp_path / "ckpt-1", SETTLED_S, weights__dat=b"x")
    made(tmp_path / "ckpt-2", SETTLED_S - 1, weights__dat=b"x")
    assert {name: one.complete for name, one in seen(tmp_path).items()} == {"ckpt-1": "settled", "ckpt-2": "writing"}
    assert {one.complete for one in seen(tmp_path, Moment(THEN, is_over=True)).values()} == {"settled"}


def test_a_deeper_file_that_changes_makes_the_whole_folder_new(tmp_path: Path) -> None:
    made(tmp_path / "state", 600, a__dat=b"x")
    made(tmp_path / "state/shards", 5, b__distcp=b"xy")
    found = seen(tmp_path)["state"]
    assert (found.complete, found.age_s, found.files, found.bytes) == ("writing", 5.0, 2, 3)


def test_single_files_are_checkpoints_by_their_names(tmp_path: Path) -> None:
    made(tmp_path / "out", 600, best__pt=archive(), log__txt=b"no", metrics__csv=b"no")
    assert [(name, one.complete, one.files) for name, one in seen(tmp_path / "out").items()] == [("best.pt", "yes", 1)]


def test_a_model_at_the_top_is_one_checkpoint_beside_the_folders(tmp_path: Path) -> None:
    top = made(tmp_path / "out", 100, config__json=b'{"model_type": "x"}', model__safetensors=safetensors(8))
    whole(top / "checkpoint-5", 200, 5)
    found = seen(top)
    assert set(found) == {".", "checkpoint-5"}
    assert (found["."].files, found["."].complete, found["."].step, found["."].inference_ready) == (
        2,
        "yes",
        None,
        True,
    )


def test_only_what_did_not_change_since_was_uploaded(tmp_path: Path) -> None:
    whole(tmp_path / "checkpoint-1", 600, 1)
    whole(tmp_path / "checkpoint-2", 100, 2)
    upload = UploadResult("file:/x", verified=True, at=THEN - 300)
    found = seen(tmp_path, Moment(THEN, upload=upload))
    assert (found["checkpoint-1"].uploaded_age_s, found["checkpoint-2"].uploaded_age_s) == (300.0, None)


def test_what_an_upload_left_out_was_not_uploaded(tmp_path: Path) -> None:
    """Else it would be pruned as if another copy of it were there."""
    whole(tmp_path / "checkpoint-1", 600, 1)
    whole(tmp_path / "checkpoint-11", 600, 11)
    made(tmp_path, 600, config__json=b'{"model_type": "x"}', model__safetensors=safetensors(8))
    skipped = ("checkpoint-1: it was there before the run began", "config.json: it was there before the run began")
    found = seen(tmp_path, Moment(THEN, upload=UploadResult("file:/x", verified=True, at=THEN - 300, skipped=skipped)))
    assert [name for name, one in found.items() if one.uploaded_age_s is not None] == ["checkpoint-11"]


def test_links_lead_nowhere_and_an_empty_folder_is_none(tmp_path: Path) -> None:
    outside = whole(tmp_path / "elsewhere/checkpoint-9", 600, 9)
    folder = tmp_path / "out"
    (folder / "empty").mkdir(parents=True)
    (folder / "latest").symlink_to(outside)
    (folder / "latest.pt").symlink_to(outside / "config.json")
    assert seen(folder) == {}
    assert seen(tmp_path / "not there") == {}


def test_nothing_is_changed_by_looking(tmp_path: Path) -> None:
    whole(tmp_path / "checkpoint-1", 600, 1)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path, *tmp_path.rglob("*"))}
    in_folder(str(tmp_path), Moment(THEN))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path, *tmp_path.rglob("*"))} == before
