"""A line that answers is never taken for a dead one, however quick the answer; one that does not is ended."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support import until

from aicrun.hosts.pulse import Pulse, heard_of


class Line:
    """A connection whose other side answers each question with one byte at once, while it `lives`."""

    def __init__(self) -> None:
        ours, self._theirs = socket.socketpair()
        self.sock: Any = heard_of(ours)
        self.lives, self.closed, self.asked = True, False, 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while self.sock.recv(100):
            pass

    def ask(self) -> None:
        """One question."""
        self.asked += 1
        if self.lives:
            self._theirs.send(b"x")

    def close(self) -> None:
        """End it."""
        self.closed = True


@pytest.fixture
def turns() -> Iterator[None]:
    """Threads take turns so often that any order of theirs comes about."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("turns")
def test_an_answer_that_is_here_before_anybody_waits_for_it_counts() -> None:
    line = Line()
    pulse = Pulse(line.ask, line, 0.002, 1000)
    until(lambda: line.asked > 1500 or line.closed, 120)
    pulse.stop()
    assert not line.closed


def test_a_line_that_does_not_answer_is_asked_again_and_ended() -> None:
    line = Line()
    line.lives = False
    pulse = Pulse(line.ask, line, 0.05, 3)
    until(lambda: line.closed)
    assert line.asked == 3 and pulse.said == "nothing was heard for 0s"


class _Gone:
    """What stands for a socket behind a hop whose connection has ended: a channel that says so when it is closed."""

    def close(self) -> None:
        raise EOFError


def test_the_end_of_a_line_behind_a_hop_that_is_gone_is_no_fault() -> None:
    """Its reader closes it in a thread of the library's, and what is raised there ends up on a person's screen."""
    heard_of(_Gone()).close()


def test_what_was_read_ahead_comes_in_its_order_and_its_end_last() -> None:
    ours, theirs = socket.socketpair()
    heard = heard_of(ours)
    theirs.sendall(bytes(range(200)))
    theirs.close()
    parts = [heard.recv(size) for size in (16, 1, 100)]
    assert [len(part) for part in parts] == [16, 1, 100]
    assert b"".join(parts) + heard.recv(1000) == bytes(range(200))
    assert heard.recv(1) == b""
    heard.close()
