"""What the files of a checkpoint say, by the layouts that trainers write; whole, half written, and hostile."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from aicrun.agent import checkpoint_files
from aicrun.agent.checkpoint_files import of_file, of_folder, step_of

STATE = {
    "global_step": 1500,
    "log_history": [
        {"step": 500, "loss": 2.5},
        {"step": 1000, "loss": 2.25, "eval_loss": 2.75},
        {"step": 1500, "learning_rate": 1e-5},
    ],
}


def safetensors(size: int, more: dict[str, Any] | None = None) -> bytes:
    header = {"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}, **(more or {})}
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + bytes(size)


def archive() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as opened:
        opened.writestr("archive/data.pkl", b"cos\nsystem\n(S'touch /tmp/x'\ntR.")
    return stream.getvalue()


def folder(place: Path, **files: bytes | dict[str, Any]) -> checkpoint_files.Said:
    place.mkdir(exist_ok=True)
    for name, content in files.items():
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        (place / name.replace("__", ".")).write_bytes(raw)
    return of_folder(str(place), sorted(os.listdir(place)))


def test_a_trainers_folder_tells_step_losses_model_and_version(tmp_path: Path) -> None:
    config = {"model_type": "gpt2", "_name_or_path": "openai-community/gpt2", "transformers_version": "4.46.1"}
    said = folder(tmp_path, trainer_state__json=STATE, config__json=config, model__safetensors=safetensors(64))
    assert (said.step, said.train_loss, said.eval_loss) == (1500, 2.25, 2.75)
    assert (said.model, said.version) == ("openai-community/gpt2", "4.46.1")
    assert said.is_known and said.inference_ready and not said.faults


def test_an_adapter_tells_what_it_was_made_on(tmp_path: Path) -> None:
    config = {"base_model_name_or_path": "meta/base", "peft_version": "0.13.0"}
    said = folder(tmp_path, adapter_config__json=config, adapter_model__safetensors=safetensors(8))
    assert (said.model, said.version, said.inference_ready) == ("meta/base", "0.13.0", True)


def test_the_state_of_an_optimizer_is_no_model(tmp_path: Path) -> None:
    said = folder(tmp_path, config__json={"model_type": "gpt2"}, optimizer__pt=archive(), rng_state__pth=archive())
    assert not said.is_known and not said.inference_ready and not said.faults


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (safetensors(64)[:-1], "model.safetensors has "),
        (safetensors(64)[:20], "model.safetensors has 20 bytes, and its header alone is longer"),
        (b"", "model.safetensors has no whole header"),
        (b"\x05", "model.safetensors has no whole header"),
        (struct.pack("<Q", 1 << 60) + b"{}" * 40, "model.safetensors is no safetensors file"),
        (struct.pack("<Q", 4) + b"nope", "model.safetensors has a header that cannot be read"),
        (struct.pack("<Q", 2) + b"[]", "model.safetensors has a header that cannot be read"),
        (struct.pack("<Q", 10) + b'{"a": 100}', "model.safetensors has a header that cannot be read"),
        (safetensors(64) + b"x", "model.safetensors has "),
    ],
)
def test_a_safetensors_file_is_as_long_as_its_header_says(tmp_path: Path, raw: bytes, words: str) -> None:
    said = folder(tmp_path, config__json={"model_type": "x"}, model__safetensors=raw)
    assert said.faults and " ".join(said.faults[0]).startswith(words)
    assert not said.is_known and not said.inference_ready


def test_a_safetensors_file_may_hold_words_and_no_tensor(tmp_path: Path) -> None:
    raw = json.dumps({"__metadata__": {"format": "pt"}}).encode()
    said = folder(tmp_path, model__safetensors=struct.pack("<Q", len(raw)) + raw, config__json={})
    assert not said.faults


def test_every_part_that_an_index_names_must_be_there(tmp_path: Path) -> None:
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-3.safetensors"}}
    (tmp_path / "model-1.safetensors").write_bytes(safetensors(8))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    said = folder(tmp_path, config__json={"model_type": "x"})
    assert said.faults == (("model.safetensors.index.json", "names 3 files, and 2 of them are missing"),)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {')
    assert folder(tmp_path).faults == (("model.safetensors.index.json", "cannot be read whole"),)


def test_an_archive_without_its_end_is_not_whole(tmp_path: Path) -> None:
    (tmp_path / "last.pt").write_bytes(archive())
    assert of_file(str(tmp_path / "last.pt")).is_known
    (tmp_path / "last.pt").write_bytes(archive()[:-30])
    assert of_file(str(tmp_path / "last.pt")).faults == (("last.pt", "is an archive without its end"),)
    (tmp_path / "last.pt").write_bytes(b"")
    assert of_file(str(tmp_path / "last.pt")).faults == (("last.pt", "is empty"),)


def test_what_no_reader_knows_is_not_judged(tmp_path: Path) -> None:
    (tmp_path / "step=500.ckpt").write_bytes(b"\x80\x02cos\nsystem\n(S'false'\ntR.")
    said = of_file(str(tmp_path / "step=500.ckpt"))
    assert (said.step, said.is_known, said.faults) == (500, False, ())


@pytest.mark.parametrize(
    "state",
    [
        {"global_step": True, "log_history": "no"},
        {"global_step": -1, "log_history": [7, None, {"loss": float("nan")}, {"eval_loss": "2"}]},
        {"global_step": "12", "log_history": [{"loss": float("inf")}]},
    ],
)
def test_what_is_no_figure_is_told_as_none(tmp_path: Path, state: dict[str, Any]) -> None:
    said = folder(tmp_path, trainer_state__json=state)
    assert (said.step, said.train_loss, said.eval_loss) == (None, None, None)


@pytest.mark.parametrize("raw", [b"{", b"[" * 100_000, b"\xff\xfe", b"[]", b""])
def test_a_state_that_cannot_be_read_is_not_whole(tmp_path: Path, raw: bytes) -> None:
    said = folder(tmp_path, trainer_state__json=raw)
    assert said.faults == (("trainer_state.json", "cannot be read whole"),)


def test_a_pipe_does_not_hold_up_who_looks(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    os.mkfifo(tmp_path / "trainer_state.json")
    said = of_folder(str(tmp_path), ["model.safetensors", "trainer_state.json"])
    assert said.faults == (("model.safetensors", "is no regular file"), ("trainer_state.json", "cannot be read whole"))


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("checkpoint-500", 500),
        ("global_step1000", 1000),
        ("epoch=3-step=250.ckpt", 250),
        ("model_iter_0042.pth", 42),
        ("ckpt-7", 7),
        ("step_12.safetensors", 12),
        ("iteration-3", 3),
        ("epoch=3.ckpt", None),
        ("best.pt", None),
        ("footstep9.pt", None),
        ("checkpoint-" + "9" * 40, None),
    ],
)
def test_the_step_that_a_name_tells(name: str, step: int | None) -> None:
    assert step_of(name) == step
