"""A preflight whose keeper is killed, that is stopped, that fails: nothing was trained, and the run may start again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_rig import Rig, lives
from fake_nvml.driver import can_be_built
from faults.test_cards_and_line import A, Box
from support import until

from aicrun.wire import names
from aicrun.wire.jobs import Retry
from aicrun.wire.status import Status, status_of

needs_a_compiler = pytest.mark.skipif(not can_be_built(), reason="no C compiler for the simulated driver")
WAITS = "run:echo looked; while [ ! -e go ]; do sleep 0.05; done"


@pytest.mark.parametrize("place", ["W3", "W4", "W5", "W6", "ended", "W7", "W8"])
def test_a_keeper_that_is_killed_at_any_place_of_it_has_started_nothing(rig: Rig, place: str) -> None:
    env = {"AICRUN_TEST_HOOK": f"preflight.{place}:kill"}
    job = rig.start("killed", "touch trained", env=env, preflight="run:true")
    report = rig.ended(job)
    # It cannot be told from one that has not begun: the command's gate was never made.
    assert report.phase in ("never_started", "ended")
    assert not (rig.home / "work/killed/trained").exists()
    assert status_of(report).status in (Status.REJECTED, Status.UNKNOWN)
    again = rig.start("killed", "echo trained", named=(job,), preflight="run:true")
    assert status_of(rig.ended(again)).status is Status.SUCCEEDED


def test_what_lives_of_it_keeps_the_run_from_starting_twice(rig: Rig) -> None:
    job = rig.start("orphan", "touch trained", preflight=WAITS)
    main = rig.running(job, "preflight")
    os.kill(rig.keeper(job), signal.SIGKILL)
    until(lambda: not rig.report(job).supervised)
    assert (rig.report(job).phase, lives(main)) == ("preflight", True)
    rig.call("stop", job_id=job, by="ana", grace_s=0)
    until(lambda: not lives(main))
    assert status_of(rig.ended(job)).reason == "never_started"


def test_it_fails_once_and_is_not_tried_again(rig: Rig) -> None:
    job = rig.start("fails", "touch trained", preflight="run:exit 75", retry=Retry(3, ("exit",), 1, 1))
    report = rig.ended(job)
    standing = status_of(report)
    assert (standing.status, standing.reason, standing.code) == (Status.FAILED, "preflight_failed", 75)
    assert (report.attempt, report.next_attempt) == (1, None)


def test_it_looks_before_each_attempt(rig: Rig) -> None:
    job = rig.start("again", "exit 75", preflight="run:echo looked", retry=Retry(1, ("exit:75",), 1, 1))
    assert status_of(rig.ended(job)).code == 75
    for number in (1, 2):
        log = rig.folder(job) / names.ATTEMPTS / str(number) / "preflight" / names.LOG
        assert log.read_bytes() == b"looked\n"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    host = Box(tmp_path)
    yield host
    host.close()


@needs_a_compiler
def test_its_card_stays_locked_while_anything_of_it_lives(box: Box) -> None:
    job = box.start("true", preflight=WAITS)
    main = box.rig.running(job, "preflight")
    second = box.start("true")
    box.waiting(second)
    os.kill(box.rig.keeper(job), signal.SIGKILL)
    until(lambda: not box.rig.report(job).supervised)
    # The next in line has had many looks by now.
    for _ in range(20):
        assert (lives(main), box.held(A), box.status(second)) == (True, True, Status.ENQUEUED)
    box.rig.call("stop", job_id=job, by="ana", grace_s=0)
    assert status_of(box.rig.ended(second)).status is Status.SUCCEEDED
    assert not lives(main)
