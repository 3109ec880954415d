"""A preflight whose keeper is killed, that is stopped, that fails: nothing was trained, and the run may start again."""

from __future__ import annotations

import os
import signal

import pytest
from agent_rig import Rig, lives
from support import until

from aicrun.wire import names
from aicrun.wire.jobs import Retry
from aicrun.wire.status import Status, status_of

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
