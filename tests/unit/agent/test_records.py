"""Records: whole or absent, write-once where that matters, room for what must be written on a full disk."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from aicrun.agent.home import place_once, read_record, write_record
from aicrun.agent.records import NewerRecord, Reserved, Unreadable
from aicrun.wire.jobs import Decision, StopIntent

INTENT = StopIntent("ana@laptop", 30, 5.0)


def test_a_record_is_private_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "stop.json"
    write_record(str(path), INTENT)
    write_record(str(path), StopIntent("bo@laptop", 3, 6.0))
    assert read_record(str(path), StopIntent) == StopIntent("bo@laptop", 3, 6.0)
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["stop.json"]


def test_write_once_has_one_winner_among_many(tmp_path: Path) -> None:
    path, won = str(tmp_path / "decision.json"), []
    gate = threading.Barrier(12)

    def decide(number: int) -> None:
        gate.wait()
        if place_once(path, Decision("go", by=str(number))):
            won.append(str(number))

    threads = [threading.Thread(target=decide, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = read_record(path, Decision)
    assert found is not None
    assert won == [found.by]
    assert os.listdir(tmp_path) == ["decision.json"]


@pytest.mark.parametrize(
    "raw",
    [b"", b"\0" * 100, b"{", b"[]", b"null", b'"x"', b'{"by": 3}', b'{"schema": "1"}', b"\xff\xfe", b"{" * 9000],
    ids=["empty", "zeros", "torn", "list", "null", "text", "wrong type", "odd schema", "not utf-8", "deep"],
)
def test_garbage_is_unreadable_never_a_record(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "stop.json"
    path.write_bytes(raw)
    with pytest.raises(Unreadable) as caught:
        read_record(str(path), StopIntent)
    assert caught.value.path == str(path)


def test_absent_is_none_and_a_link_is_not_followed(tmp_path: Path) -> None:
    assert read_record(str(tmp_path / "no"), StopIntent) is None
    write_record(str(tmp_path / "real"), INTENT)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(Unreadable):
        read_record(str(tmp_path / "link"), StopIntent)


def test_a_newer_record_is_told_apart_and_unknown_keys_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "stop.json"
    path.write_text(json.dumps({"schema": 2, "who": "a shape of the future"}))
    with pytest.raises(NewerRecord):
        read_record(str(path), StopIntent)
    path.write_text(json.dumps({"schema": 1, "by": "a", "grace_s": 1, "at": 2, "why": "later word"}))
    found = read_record(str(path), StopIntent)
    assert found is not None
    write_record(str(path), found)
    assert json.loads(path.read_text())["why"] == "later word"


def test_reserved_room_becomes_the_record_and_respects_one_that_stands(tmp_path: Path) -> None:
    path = str(tmp_path / "end.json")
    room = Reserved(path, 4096)
    assert not os.path.exists(path)
    assert sum(os.stat(tmp_path / name).st_blocks for name in os.listdir(tmp_path)) * 512 >= 4096
    room.commit(INTENT)
    assert read_record(path, StopIntent) == INTENT
    Reserved(path, 4096).commit(StopIntent("bo", 1, 1.0), once=True)
    assert read_record(path, StopIntent) == INTENT
    assert os.listdir(tmp_path) == ["end.json"]
