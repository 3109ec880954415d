"""A question asked in a fork: what comes back of one that answers, raises, crashes or hangs, and what it keeps open."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

from support import until

from aicrun.agent import apart


def test_an_answer_comes_back_whole() -> None:
    many = b"x" * 3_000_000
    assert apart.ask(lambda: many, 60) == apart.Told(many, 0)


def test_what_is_raised_is_one_line() -> None:
    def question() -> bytes:
        raise ValueError("no such card")

    assert apart.ask(question, 60) == apart.Told(b"ValueError: no such card", apart.FAILED)


def test_a_crash_is_told_by_its_signal() -> None:
    def question() -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        return b"never"

    assert apart.ask(question, 60) == apart.Told(b"", -signal.SIGKILL)


def test_one_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    written = tmp_path / "pid"

    def question() -> bytes:
        child = subprocess.Popen(["sleep", "600"])
        (tmp_path / "growing").write_text(str(child.pid))
        (tmp_path / "growing").rename(written)
        child.wait()
        return b"late"

    began = time.monotonic()
    assert apart.ask(question, 3.0).code is None
    assert time.monotonic() - began < 60
    pid = int(written.read_text())
    until(lambda: not _lives(pid))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_it_keeps_nothing_that_we_have_open(tmp_path: Path) -> None:
    def question() -> bytes:
        here = "/proc/self/fd"
        # The one that the list itself is read with is gone by then.
        numbers = [number for number in sorted(map(int, os.listdir(here))) if os.path.exists(f"{here}/{number}")]
        return "\n".join(os.readlink(f"{here}/{number}") for number in numbers).encode()

    with (tmp_path / "lock").open("w"):
        open_there = apart.ask(question, 60).said.decode().splitlines()
    # The last is the pipe that the answer takes.
    assert open_there[:-1] == [os.devnull] * 3, open_there
    assert open_there[-1].startswith("pipe:")


def test_with_a_second_thread_it_says_that_it_cannot() -> None:
    assert apart.can_fork() == (threading.active_count() == 1)
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    assert not apart.can_fork()
    over.set()
    other.join()
