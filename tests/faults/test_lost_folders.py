"""A living job whose private folder was moved away or removed: it is stopped, and its end is told, all the same."""

from __future__ import annotations

import os
import shutil
import signal

import pytest
from agent_rig import Rig, lives
from support import until

from aicrun.wire import names
from aicrun.wire.status import Status, status_of


def lose(rig: Rig, job: str, how: str) -> None:
    if how == "moved":
        rig.folder(job).rename(rig.home / "away")
    else:
        shutil.rmtree(rig.folder(job))


@pytest.mark.parametrize("how", ["moved", "removed"])
def test_it_can_be_stopped_and_its_keeper_says_how_it_ended(rig: Rig, how: str) -> None:
    job = rig.start("lost-run", "sleep 600")
    main, keeper = rig.running(job), rig.keeper(job)
    lose(rig, job, how)
    rig.call("stop", job_id=job, by="ana@laptop", grace_s=5)
    assert rig.standing(job).status in (Status.STOP_IN_PROGRESS, Status.STOPPED)
    until(lambda: not lives(main) and not lives(keeper))
    standing = status_of(rig.ended(job))
    assert (standing.status, standing.signal) == (Status.STOPPED, signal.SIGTERM)
    report = rig.report(job)
    assert report.stop is not None
    assert report.stop.by == "ana@laptop"


def test_without_its_keeper_it_is_stopped_by_its_mark(rig: Rig) -> None:
    job = rig.start("lost-run", "trap '' TERM; sleep 600 & wait; sleep 600")
    main, keeper = rig.running(job), rig.keeper(job)
    lose(rig, job, "moved")
    os.kill(keeper, signal.SIGKILL)
    until(lambda: not lives(keeper))
    assert rig.standing(job).status is Status.IN_PROGRESS
    rig.call("stop", job_id=job, by="ana@laptop", grace_s=1)
    until(lambda: not lives(main))
    standing = status_of(rig.ended(job))
    assert (standing.status, standing.reason, standing.code) == (Status.UNKNOWN, "record_lost", None)
    assert rig.standing(job) == standing


@pytest.mark.parametrize("how", ["moved", "removed"])
def test_its_exit_code_is_kept_in_its_record(rig: Rig, how: str) -> None:
    job = rig.start("lost-run", "while [ ! -e go ]; do sleep 0.05; done; exit 7")
    rig.running(job)
    keeper = rig.keeper(job)
    lose(rig, job, how)
    (rig.home / "work/lost-run/go").touch()
    until(lambda: not lives(keeper))
    standing = status_of(rig.ended(job))
    assert (standing.status, standing.code) == (Status.FAILED, 7)


@pytest.mark.parametrize("code", [0, 7])
def test_an_exit_that_only_the_job_s_end_holds_counts_when_the_folder_is_back(rig: Rig, code: int) -> None:
    job = rig.start("lost-run", f"while [ ! -e go ]; do sleep 0.05; done; exit {code}")
    rig.running(job)
    keeper = rig.keeper(job)
    lose(rig, job, "moved")
    (rig.home / "work/lost-run/go").touch()
    until(lambda: not lives(keeper))
    (rig.home / "away").rename(rig.folder(job))
    assert not (rig.step(job) / names.STEP_EXIT).exists()
    standing = status_of(rig.ended(job))
    assert (standing.status, standing.code) == (Status.FAILED if code else Status.SUCCEEDED, code)
