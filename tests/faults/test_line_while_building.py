"""A job that builds stands in line for its cards, takes them when they come free, and is told why it came too late."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_nvml.driver import can_be_built
from faults.test_cards_and_line import A, Box
from support import until

from aicrun.agent.card_users import can_be_known
from aicrun.wire.jobs import Setup
from aicrun.wire.status import Status

pytestmark = pytest.mark.skipif(not can_be_built(), reason="no C compiler for the simulated driver")


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    host = Box(tmp_path)
    yield host
    host.close()


def building(box: Box, until_file: str, command: str = "true") -> str:
    """A job whose setup goes on until there is such a file in the home."""
    return box.start(command, setup=Setup(run=(f"while [ ! -e {box.rig.home / until_file} ]; do sleep 0.05; done",)))


def test_a_card_that_comes_free_while_a_job_builds_is_its_and_the_order_holds(box: Box) -> None:
    first = box.start()
    box.rig.running(first)
    second = building(box, "built", "sleep 0.3")
    box.rig.running(second, "setup")
    third = box.start("true")
    assert box.waiting(third).ahead == second
    box.rig.call("stop", job_id=first, by="t", grace_s=1)
    box.rig.ended(first)
    # It still builds, and the card is its: shown in the report, held by the lock, named to who waits.
    until(lambda: box.rig.report(second).line.granted)
    assert box.status(second) is Status.BUILDING
    assert box.held(A)
    until(lambda: box.rig.report(third).line.holder_job_id == second)
    assert box.status(third) is Status.ENQUEUED
    (box.rig.home / "built").touch()
    box.rig.ended(third)
    assert [box.status(job) for job in (second, third)] == [Status.SUCCEEDED] * 2
    assert (box.held(A), box.tickets()) == (False, 0)


def test_a_job_that_is_stopped_while_it_builds_gives_back_the_card_it_took(box: Box) -> None:
    first = box.start("sleep 0.5")
    second = building(box, "never")
    until(lambda: box.rig.report(second).line and box.rig.report(second).line.granted)
    assert box.status(first) is Status.SUCCEEDED
    assert box.held(A)
    box.rig.call("stop", job_id=second, by="t", grace_s=1)
    box.rig.ended(second)
    assert box.status(second) is Status.STOPPED
    until(lambda: not box.held(A))
    assert box.tickets() == 0


def test_who_waited_too_long_is_told_for_whom(box: Box) -> None:
    first = box.start()
    box.rig.running(first)
    late = box.start(queue_wait_s=1)
    box.rig.ended(late)
    standing = box.rig.standing(late)
    assert (standing.status, standing.reason) == (Status.REJECTED, "queue timeout")
    assert "queue.wait (1 s): run run-1 of root holds it" in standing.why


@pytest.mark.skipif(not can_be_known(), reason="the driver's pids are not this namespace's")
def test_who_waited_too_long_for_a_stranger_is_told_the_same_with_his_pid(box: Box) -> None:
    stranger = subprocess.Popen(["sleep", "100"])
    try:
        plain = (box.driver.folder / "nvml.state").read_text()
        box.driver.write(plain.replace("card GPU-bbbb", f"  holder {stranger.pid} compute 900\ncard GPU-bbbb"))
        late = box.start(queue_wait_s=3)
        box.rig.ended(late)
        standing = box.rig.standing(late)
        assert (standing.status, standing.reason) == (Status.REJECTED, "queue timeout")
        assert f"pid {stranger.pid} of root, 900 MiB" in standing.why
        assert (box.held(A), box.tickets()) == (False, 0)
    finally:
        stranger.kill()
        stranger.wait()
