"""The codec: a wrong shape is named by its place, a missing value stays missing, nothing is guessed."""

from __future__ import annotations

import math

import pytest

from aicrun.wire import codec
from aicrun.wire.codec import WireError
from aicrun.wire.facts import Card, Cards
from aicrun.wire.jobs import JobReport, StepExit, UploadResult

EXIT = {"step": "command", "attempt": 1, "duration_s": 2, "ended_at": 3.5, "code": 0}


def test_a_whole_number_is_a_float_where_a_float_is_meant() -> None:
    ended = codec.from_json(StepExit, EXIT)
    assert ended.duration_s == 2.0
    assert isinstance(ended.duration_s, float)


def test_a_value_that_is_not_there_stays_away() -> None:
    ended = codec.from_json(StepExit, EXIT)
    assert ended.signal is None
    assert "signal" not in codec.to_json(ended)


def test_an_exit_code_of_null_is_no_exit_code() -> None:
    assert codec.from_json(StepExit, dict(EXIT, code=None)).code is None


@pytest.mark.parametrize(
    ("change", "words"),
    (
        ({"attempt": "1"}, "StepExit.attempt: int is expected, here it is str"),
        ({"attempt": True}, "StepExit.attempt: int is expected, here it is bool"),
        ({"attempt": 1.0}, "StepExit.attempt: int is expected, here it is float"),
        ({"code": "0"}, "StepExit.code: int is expected"),
        ({"duration_s": True}, "StepExit.duration_s: float is expected"),
        ({"stop_sent": 1}, "StepExit.stop_sent: bool is expected"),
        ({"step": None}, "StepExit.step: str is expected"),
    ),
)
def test_a_wrong_type_is_named_by_its_place(change: dict[str, object], words: str) -> None:
    with pytest.raises(WireError, match=words):
        codec.from_json(StepExit, {**EXIT, **change})


def test_the_place_of_a_fault_deep_inside_is_told() -> None:
    card = {"index": 0, "uuid": "GPU-1", "model": "A100", "vram_free_mib": "many"}
    with pytest.raises(WireError, match=r"Cards\.cards\[0\]\.vram_free_mib"):
        codec.from_json(Cards, {"state": "devices", "cards": [card]})


def test_a_missing_field_is_named() -> None:
    with pytest.raises(WireError, match=r"UploadResult\.verified is missing"):
        codec.from_json(UploadResult, {"destination": "file:/x"})


@pytest.mark.parametrize("data", (None, [], "text", 7))
def test_a_record_is_an_object(data: object) -> None:
    with pytest.raises(WireError, match="an object is expected"):
        codec.from_json(JobReport, data)


def test_a_card_without_readable_memory_is_not_a_card_with_none() -> None:
    card = codec.from_json(Card, {"index": 0, "uuid": "GPU-1", "model": "GB10"})
    assert card.vram_free_mib is None
    assert codec.from_json(Card, codec.to_json(codec.replace(card, vram_free_mib=0))).vram_free_mib == 0


@pytest.mark.parametrize("raw", (b"", b"{", b"\xff", b"nul", b"[" * 100_000))
def test_bytes_that_are_no_json_are_refused(raw: bytes) -> None:
    with pytest.raises(WireError, match="not JSON"):
        codec.load(raw)


def test_numbers_that_json_does_not_know_are_refused() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        codec.dump({"loss": math.nan})
