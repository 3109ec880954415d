"""A log with a cap: offsets that stay, the newest bytes kept, no byte lost or repeated by a killed pump."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from aicrun.agent import log_files, pump
from aicrun.agent.log_files import Caps, LogWriter
from aicrun.agent.pump import FULL, READING, Entry, Journal

SMALL = Caps(head_bytes=1000, ring_bytes=100)


def stream(size: int) -> bytes:
    return b"".join(b"%09d\n" % number for number in range(size // 10))


def served(folder: Path, offset: int = 0, limit: int = 64) -> tuple[bytes, list[tuple[int, int]]]:
    """All that can be read from `offset` on, and the gaps as (asked, given)."""
    parts, gaps = [], []
    while True:
        data, at = log_files.read_bytes(str(folder), offset, limit)
        if at != offset:
            gaps.append((offset, at))
        if not data:
            return b"".join(parts), gaps
        parts.append(data)
        offset = at + len(data)


@pytest.mark.parametrize("size", [10, 990, 1000, 1010, 1090, 1100, 1110, 1500, 5000])
@pytest.mark.parametrize("chunk", [7, 64, 333, 5000])
def test_head_and_newest_tail_stay_under_their_first_offsets(tmp_path: Path, size: int, chunk: int) -> None:
    text, writer, done = stream(size), LogWriter(str(tmp_path), SMALL), 0
    while done < size:
        done += writer.write(text[done : done + chunk], done, 0)
    data, gaps = served(tmp_path)
    kept_from = max(1000, size - 100)
    assert data == text[:1000] + text[kept_from:] if size > 1000 else data == text
    assert gaps == ([(1000, kept_from)] if size > 1100 else [])
    state = log_files.read_state(str(tmp_path))
    assert state is not None
    assert state.total == size
    assert log_files.fallen_out(state) == max(0, size - 1100)
    on_disk = sum((tmp_path / name).stat().st_size for name in ("log", "log.tail") if (tmp_path / name).exists())
    assert on_disk <= 1100


def test_every_offset_gives_the_same_bytes_for_ever(tmp_path: Path) -> None:
    text, writer = stream(3000), LogWriter(str(tmp_path), SMALL)
    for done in range(0, 3000, 250):
        writer.write(text[done : done + 250], done, 0)
        for offset in range(0, done + 250, 37):
            data, at = log_files.read_bytes(str(tmp_path), offset, 50)
            assert text[at : at + len(data)] == data
            assert data


def test_an_offset_past_the_end_is_the_end(tmp_path: Path) -> None:
    LogWriter(str(tmp_path), SMALL).write(b"abc", 0, 0)
    assert log_files.read_bytes(str(tmp_path), 3, 10) == (b"", 3)
    assert log_files.read_bytes(str(tmp_path), 99, 10) == (b"", 99)


def test_a_torn_state_file_hides_no_head(tmp_path: Path) -> None:
    LogWriter(str(tmp_path), SMALL).write(b"abc", 0, 0)
    (tmp_path / "log.json").write_bytes(b"\0" * 256)
    assert served(tmp_path)[0] == b"abc"


class Killed(Exception):
    pass


class MortalJournal(Journal):
    """A journal whose user may be killed before or after each of its deeds."""

    countdown = 10**9

    def _step(self) -> None:
        self.countdown -= 1
        if self.countdown < 0:
            raise Killed

    def commit(self, entry: Entry) -> None:
        self._step()
        super().commit(entry)
        self._step()

    def fill(self, pipe: int, count: int) -> int:
        self._step()
        got = super().fill(pipe, count)
        self._step()
        return got


@pytest.mark.parametrize("seed", range(20))
def test_a_pump_killed_anywhere_loses_and_repeats_nothing(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    text = stream(40_000)
    caps = Caps(head_bytes=30_000, ring_bytes=20_000)
    journal = MortalJournal()
    read_end, write_end = pump.make_pipe()
    os.set_blocking(write_end, False)
    sent, kills = 0, 0
    while True:
        if sent < len(text):
            sent += os.write(write_end, text[sent : sent + dice.randint(1, 3000)])
        worker = pump._Pump(read_end, LogWriter(str(tmp_path), caps), journal)
        journal.countdown = dice.randint(0, 12)
        try:
            worker.take_up()
            while worker.copy():
                pass
        except Killed:
            kills += 1
            continue
        if sent == len(text):
            break
    assert kills > 5
    assert served(tmp_path, limit=4096) == (text, [])


def test_a_read_that_did_not_happen_is_told_from_one_that_did() -> None:
    journal = Journal()
    read_end, write_end = pump.make_pipe()
    os.write(write_end, b"x" * 100)
    journal.plant(100)
    journal.commit(Entry(READING, 100))
    assert not journal.was_read(100)
    journal.fill(read_end, 100)
    assert journal.was_read(100)
    journal.commit(Entry(FULL, 100))
    assert journal.data(100) == b"x" * 100
