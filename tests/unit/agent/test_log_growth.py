"""Waiting for a log to grow: at once where the kernel tells, soon where it does not or only seems to."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from aicrun.agent.log_growth import TICKS_S, Growth, by_kernel, by_nobody

LONG_S = 60.0


def written_after(path: Path, pause_s: float) -> threading.Timer:
    timer = threading.Timer(pause_s, path.write_bytes, (b"a line\n",))
    timer.start()
    return timer


def test_what_is_written_is_told_long_before_the_time_is_up(tmp_path: Path) -> None:
    growth = Growth(str(tmp_path), by_kernel)
    assert growth.is_told
    for name in ("log", "log", "exit.json"):
        timer = written_after(tmp_path / name, 0.1)
        began = time.monotonic()
        assert growth.wait(LONG_S)
        assert time.monotonic() - began < LONG_S / 2
        timer.join()
        while growth.wait(0.0):
            pass
    assert not growth.wait(0.01)
    growth.close()


def test_where_nobody_tells_a_tick_follows_the_pace_of_the_log(tmp_path: Path) -> None:
    growth = Growth(str(tmp_path), by_nobody)
    looks, end = 0, time.monotonic() + 0.4
    while time.monotonic() < end:
        assert not growth.wait(LONG_S)
        looks += 1
    assert looks > 3
    # It would take 16 times as long to be looked at again, but that is bounded.
    assert TICKS_S[1] > 0.4 / 16
    growth.grew()
    began = time.monotonic()
    assert not growth.wait(LONG_S)
    assert time.monotonic() - began < LONG_S / 2


def test_a_file_system_that_keeps_quiet_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    growth = Growth(str(tmp_path), lambda _: by_kernel(str(tmp_path / "elsewhere")))
    assert growth.is_told
    for _ in range(3):
        assert not growth.wait(0.01)
        growth.grew()
    assert not growth.is_told
    assert not growth.wait(LONG_S)


def test_a_folder_that_is_not_there_is_told_of_by_nobody(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    assert by_kernel(str(tmp_path / "none")) == -1
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.parametrize("watched", [by_kernel, by_nobody])
def test_closing_gives_the_watch_back(tmp_path: Path, watched: object) -> None:
    before = os.listdir("/proc/self/fd")
    growth = Growth(str(tmp_path), by_kernel if watched is by_kernel else by_nobody)
    growth.close()
    growth.close()
    assert len(os.listdir("/proc/self/fd")) == len(before)
