"""Pieces of a person's file on a host: hashed as they pass by, and never believed where somebody else had a hand in."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from aicrun.agent import file_moving
from aicrun.agent.home import Home
from aicrun.agent.refused import Refused

KEY = "k" * 64
MIB = 1024 * 1024
CONTENT = bytes(range(256)) * 4096 * 3


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def begun(home: Home, to: Path, **more: Any) -> dict[str, Any]:
    return file_moving.begin(home, {"path": str(to), "bytes": len(CONTENT), "key": KEY, **more}, b"")[0]


def sent(home: Home, to: Path, offset: int, until: int) -> None:
    for at in range(offset, until, MIB):
        body = {"path": str(to), "key": KEY, "offset": at}
        file_moving.write(home, body, CONTENT[at : min(at + MIB, until)])


def finished(home: Home, to: Path) -> dict[str, Any]:
    body = {"path": str(to), "key": KEY, "bytes": len(CONTENT), "sha256": sha256(CONTENT), "mode": 0o640}
    return file_moving.finish(home, body, b"")[0]


def part(to: Path) -> Path:
    return next(to.parent.glob(".*.aicrun-part"))


def test_a_file_arrives_whole_and_is_the_same_the_next_time(home: Home, tmp_path: Path) -> None:
    to = tmp_path / "x"
    assert begun(home, to)["offset"] == 0
    sent(home, to, 0, len(CONTENT))
    finished(home, to)
    assert (to.read_bytes() == CONTENT, to.stat().st_mode & 0o777) == (True, 0o640)
    assert begun(home, to)["asks"]
    assert begun(home, to, sha256=sha256(CONTENT))["same"]
    with pytest.raises(Refused, match="is there already and differs"):
        begun(home, to, sha256="0" * 64)


def test_a_part_goes_on_where_it_stopped_in_another_process(home: Home, tmp_path: Path) -> None:
    to = tmp_path / "x"
    begun(home, to)
    sent(home, to, 0, MIB)
    file_moving._forget(file_moving._writing)
    assert begun(home, to)["offset"] == MIB
    sent(home, to, MIB, len(CONTENT))
    finished(home, to)
    assert to.read_bytes() == CONTENT


def test_a_part_that_another_connection_wrote_to_is_read_before_it_counts(home: Home, tmp_path: Path) -> None:
    to = tmp_path / "x"
    begun(home, to)
    sent(home, to, 0, MIB)
    handle = os.open(part(to), os.O_WRONLY)
    os.pwrite(handle, b"else", 0)
    # A clock that has moved on, whatever this machine's granularity is.
    os.utime(part(to), ns=(1, 1))
    os.close(handle)
    sent(home, to, MIB, len(CONTENT))
    with pytest.raises(Refused, match="is not what was sent"):
        finished(home, to)
    assert not list(tmp_path.glob(".*.aicrun-part"))
    assert not to.exists()


def test_a_file_is_hashed_as_it_passes_by_and_again_when_it_changed(home: Home, tmp_path: Path) -> None:
    source = tmp_path / "y"
    source.write_bytes(CONTENT)
    body = {"path": str(source)}
    pieces = [file_moving.read(home, {**body, "offset": at, "size": MIB}, b"")[1] for at in range(0, len(CONTENT), MIB)]
    assert b"".join(pieces) == CONTENT
    os.utime(source, ns=(1, 1))
    source.write_bytes(b"other")
    assert file_moving.digest(home, body, b"")[0] == {"sha256": sha256(b"other"), "bytes": 5}
    rest = file_moving.read(home, {**body, "offset": 2, "size": MIB}, b"")[1]
    assert rest == b"her"
    assert file_moving.digest(home, body, b"")[0] == {"sha256": sha256(b"other"), "bytes": 5}


def test_what_passed_by_whole_is_not_read_again(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "y"
    source.write_bytes(CONTENT)
    for at in range(0, len(CONTENT), MIB):
        file_moving.read(home, {"path": str(source), "offset": at, "size": MIB}, b"")
    monkeypatch.delattr(file_moving, "hashed")
    assert file_moving.digest(home, {"path": str(source)}, b"")[0]["sha256"] == sha256(CONTENT)
