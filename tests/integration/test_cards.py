"""Runs that need a card through the real commands, on simulated cards: one runs, the next waits in line, then runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_nvml.driver import FakeDriver, can_be_built
from integration.project import Project
from private_locks import made_private
from support import until

pytestmark = pytest.mark.skipif(not can_be_built(), reason="no C compiler for the simulated driver")

ONE_CARD = """
driver 570.124.06
cuda 12080
card GPU-aaaa NVIDIA RTX A6000
  total 49140
  reserved 600
  bus 00000000:41:00.0
"""
CARD = "machine: {gpu: {vram: 8GiB}}\n"


@pytest.fixture
def box(project: Project, tmp_path: Path) -> Iterator[Project]:
    if not made_private():
        pytest.skip("the machine's own lock folder cannot be kept out of the test")
    project.person.env.update(FakeDriver(tmp_path / "driver", ONE_CARD).env)
    yield project


def spec(box: Project, name: str, seconds: float, more: str = "") -> str:
    box.write(f"python3 work.py {seconds}", name, CARD + more, f"{name}.yaml")
    return f"{name}.yaml"


def apply(box: Project, name: str, seconds: float, more: str = "") -> Any:
    return box.run("apply", spec(box, name, seconds, more), "--yes")


def status(box: Project, run: str) -> str:
    return str(box.job(run)["status"])


def test_the_second_run_waits_in_line_and_starts_when_the_first_ends(box: Project) -> None:
    assert apply(box, "first", 100).returncode == 0
    until(lambda: status(box, "first") == "in progress")
    planned = box.run("plan", spec(box, "second", 0))
    assert "wait in line" in planned.stdout
    assert "held by run first" in planned.stdout
    applied = apply(box, "second", 0)
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert status(box, "second") == "enqueued"
    assert "enqueued" in box.run("list").stdout
    assert len(box.starts()) == 1
    assert box.run("stop", "first", "--yes").returncode == 0
    until(lambda: status(box, "second") == "succeeded", 30)
    assert len(box.starts()) == 2


def test_wait_0_is_refused_while_the_card_is_held_and_nothing_starts(box: Project) -> None:
    assert apply(box, "first", 100).returncode == 0
    until(lambda: status(box, "first") == "in progress")
    done = apply(box, "second", 0, "queue: {wait: 0}\n")
    assert done.returncode == 5, done.stdout + done.stderr
    assert len(box.starts()) == 1


@pytest.mark.parametrize("victims", [("keeper",), ("keeper", "work.py")], ids=["keeper", "keeper and command"])
def test_a_killed_holder_gives_the_card_up_exactly_when_its_command_is_gone(
    box: Project, victims: tuple[str, ...]
) -> None:
    assert apply(box, "first", 3).returncode == 0
    until(lambda: status(box, "first") == "in progress")
    job = box.job("first")["job_id"]
    assert apply(box, "second", 0).returncode == 0
    for word in victims:
        box.kill(*((word, job) if word == "keeper" else (word,)), how=signal.SIGKILL)
    if len(victims) == 1:
        assert status(box, "second") == "enqueued"
    until(lambda: status(box, "second") == "succeeded", 30)
    assert status(box, "first") == "unknown"
    assert os.path.exists("/run/lock/aicrun/v1/GPU-aaaa.lock")
