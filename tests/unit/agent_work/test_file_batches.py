"""Many small files in one message: each whole or not at all, none over another one, nothing left beside them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from aicrun.agent import file_batches
from aicrun.agent.files import PART
from aicrun.agent.home import Home
from aicrun.agent.refused import Refused


def row(path: Path, content: bytes, mode: int = 0o644) -> list[Any]:
    return [str(path), len(content), hashlib.sha256(content).hexdigest(), mode]


def looked(home: Home, *rows: list[Any], replace: bool = False) -> list[bool]:
    answer, _ = file_batches.look(home, {"files": list(rows), "replace": replace}, b"")
    return list(answer["same"])


def put(home: Home, contents: dict[Path, bytes], replace: bool = False) -> None:
    rows = [row(path, content, 0o640) for path, content in contents.items()]
    file_batches.put(home, {"files": rows, "replace": replace}, b"".join(contents.values()))


def left_beside(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.endswith(PART)]


def test_a_batch_arrives_with_its_folders_and_is_the_same_the_next_time(home: Home, tmp_path: Path) -> None:
    contents = {tmp_path / f"a/{number % 7}/f{number}": b"x" * number for number in range(150)}
    rows = [row(path, content, 0o640) for path, content in contents.items()]
    assert looked(home, *rows) == [False] * 150
    put(home, contents)
    assert {path: path.read_bytes() for path in contents} == contents
    assert {path.stat().st_mode & 0o777 for path in contents} == {0o640}
    assert looked(home, *rows) == [True] * 150
    assert left_beside(tmp_path) == []


def test_a_content_that_is_not_what_was_announced_lets_none_in(home: Home, tmp_path: Path) -> None:
    rows = [row(tmp_path / "one", b"1"), row(tmp_path / "two", b"2")]
    for payload in (b"13", b"1", b""):
        with pytest.raises(Refused, match="is not what was sent") as refused:
            file_batches.put(home, {"files": rows}, payload)
        assert refused.value.token == "transfer_failed"
    assert not (tmp_path / "one").exists()
    assert not (tmp_path / "two").exists()
    assert left_beside(tmp_path) == []


def test_what_is_there_is_kept_unless_it_is_to_be_replaced(home: Home, tmp_path: Path) -> None:
    theirs, mine = tmp_path / "x", {tmp_path / "w": b"w", tmp_path / "x": b"mine", tmp_path / "y": b"y"}
    theirs.write_bytes(b"other")
    rows = [row(path, content) for path, content in mine.items()]
    with pytest.raises(Refused, match="x is there already and differs"):
        looked(home, *rows)
    # Somebody was faster than the message.
    with pytest.raises(Refused, match="x is there already") as refused:
        put(home, mine)
    assert (refused.value.token, theirs.read_bytes(), left_beside(tmp_path)) == ("exists", b"other", [])
    assert (tmp_path / "w").read_bytes() == b"w"
    assert not (tmp_path / "y").exists()
    assert looked(home, *rows, replace=True) == [True, False, False]
    put(home, mine, replace=True)
    assert {path: path.read_bytes() for path in mine} == mine


def test_a_link_is_no_file_and_nothing_is_written_through_it(home: Home, tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"kept")
    link.symlink_to(target)
    with pytest.raises(Refused, match="no regular file"):
        looked(home, row(link, b"kept"))
    put(home, {link: b"new"}, replace=True)
    assert (target.read_bytes(), link.read_bytes(), link.is_symlink()) == (b"kept", b"new", False)
    with pytest.raises(Refused, match="below something that is no folder") as refused:
        looked(home, row(target / "below", b""))
    assert refused.value.token == "not_a_file"


def test_a_name_that_the_disk_refuses_leaves_nothing_half(home: Home, tmp_path: Path) -> None:
    longest = os.pathconf(tmp_path, "PC_NAME_MAX")
    with pytest.raises(Refused) as refused:
        put(home, {tmp_path / "one": b"1", tmp_path / ("n" * (longest + 1)): b"2"})
    assert refused.value.token == "unwritable"
    assert left_beside(tmp_path) == []


@pytest.mark.parametrize(
    "files", ["x", [["/x", 1, "0"]], [["x", 0, "0", 0]], [["/x", -1, "0", 0]], [["/x", 0, "0", 0]] * 201]
)
def test_what_is_no_batch_is_refused(home: Home, files: Any) -> None:
    with pytest.raises(Refused) as refused:
        file_batches.look(home, {"files": files}, b"")
    assert refused.value.token == "invalid_request"
