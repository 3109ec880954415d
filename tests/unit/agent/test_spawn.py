"""A child at its gate: what it tells of its control group, and what it does in place of an exec."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import until

from aicrun.agent import children, spawn
from aicrun.agent.cgroups import Group
from aicrun.agent.programs import Program

TRUE = Program(("/bin/sh", "-c", "echo executed"), {"PATH": "/usr/bin:/bin"}, "/")


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def ended(child: spawn.Gated) -> children.Ended:
    """How the child ends, once its gate is open."""
    child.open()
    how: children.Ended = until(lambda: children.ended(child.pid))
    children.reap(child.pid)
    return how


def test_a_child_that_cannot_enter_its_group_says_why_and_runs(tmp_path: Path, pipe: tuple[int, int]) -> None:
    outside = tmp_path / "two\nlines"
    outside.mkdir()
    child = spawn.fork_gated(TRUE, pipe[1], 0, (), Group(tree=str(outside)))
    assert child.outside() == f"its process could not be moved into {tmp_path}/two lines"
    assert (ended(child), child.failure()) == (children.Ended(code=0), "")
    assert os.read(pipe[0], 100) == b"executed\n"


def test_a_child_that_died_before_its_gate_is_not_waited_for(pipe: tuple[int, int]) -> None:
    child = spawn.fork_gated(TRUE, pipe[1], 0, (), Group())
    assert child.outside() == ""
    os.kill(child.pid, 9)
    assert child.outside() == "its process ended before it was moved into a group"
    assert (ended(child), child.failure()) == (children.Ended(signal=9), "")


def wrong() -> int:
    raise ValueError("no such thing")


def said() -> int:
    print("ünïcode \udcff")
    return 7


@pytest.mark.parametrize(
    ("here", "code", "printed"),
    [
        (lambda: None, 0, b"executed\n"),
        (said, 7, "ünïcode ".encode() + b"\xff\n"),
        (wrong, 1, b"ValueError: no such thing\n"),
    ],
)
def test_a_deed_takes_the_place_of_the_program_unless_it_passes(
    here: Callable[[], int | None], code: int, printed: bytes, pipe: tuple[int, int]
) -> None:
    program = Program(TRUE.argv, TRUE.env, TRUE.cwd, here=here)
    child = spawn.fork_gated(program, pipe[1], 0, (), Group())
    assert child.outside() == ""
    assert (ended(child), child.failure()) == (children.Ended(code=code), "")
    assert os.read(pipe[0], 10_000).endswith(printed)
