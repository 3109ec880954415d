"""Ends and stops that meet, and stops that lose whoever was to carry them out."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from agent_rig import Rig, command_line, lives, state_of
from support import until

from aicrun.wire.codec import to_json
from aicrun.wire.status import Status, status_of

# More of them by hand: AICRUN_RACE_ROUNDS=84 makes 1000.
ROUNDS = 12 * int(os.environ.get("AICRUN_RACE_ROUNDS", "1"))


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sleep", "600"])
    yield child
    assert child.poll() is None, "a stranger was ended"
    child.kill()
    child.wait()


def test_a_stop_around_the_very_moment_of_the_end_tells_one_of_two_truths(
    rig: Rig, bystander: subprocess.Popen[bytes]
) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    choice = random.Random(seed)
    work = rig.home / "work"
    counts = {Status.FAILED: 0, Status.STOPPED: 0}
    gate = work / "race/go"
    gate.parent.mkdir(parents=True)
    os.mkfifo(gate)
    for number in range(ROUNDS):
        job = rig.start(f"race-{number}", "read x < go || true; exit 4", workspace=str(work / "race"))
        main = rig.running(job)
        until(lambda pid=main: state_of(pid) == "S")
        with rig.link() as link, ThreadPoolExecutor(1) as pool:
            asked = pool.submit(link.call, "stop", job_id=job, by="ana", grace_s=5)
            # From long before the signal can be sent to long after: around the moment is every moment.
            end = time.monotonic() + choice.random() * 0.04
            until(lambda at=end: time.monotonic() > at, every_s=0.001)
            with contextlib.suppress(OSError):
                os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
            asked.result()
        report = rig.ended(job)
        standing = status_of(report)
        command = next(step.exit for step in report.steps if step.step == "command")
        assert command is not None, seed
        counts[standing.status] += 1
        assert command.stop_sent is (standing.status is Status.STOPPED), seed
        assert (command.code, command.signal) in ((4, None), (None, signal.SIGTERM)), seed
        assert standing.status is Status.STOPPED or standing.code == 4, seed
    print(counts)


@pytest.mark.parametrize("code", [0, 3])
def test_an_end_just_before_the_stop_stays_what_it_was(rig: Rig, code: int) -> None:
    request = rig.request("crash-run", f"exit {code}")
    with rig.link(AICRUN_TEST_HOOK="command.ended:pause") as link:
        link.call("reserve", request=to_json(request), confirm=True)
    keeper = rig.keeper(request.job_id)
    until(lambda: state_of(keeper) == "T")
    rig.call("stop", job_id=request.job_id, by="ana@laptop", grace_s=1)
    os.kill(keeper, signal.SIGCONT)
    standing = status_of(rig.ended(request.job_id))
    assert (standing.status, standing.code) == (Status.FAILED if code else Status.SUCCEEDED, code)


def test_a_stop_whose_keeper_is_killed_before_it_acts_is_carried_out_by_whoever_looks(rig: Rig) -> None:
    job = rig.start("both-run", "trap '' TERM; echo here; while true; do sleep 0.1; done")
    main, keeper = rig.running(job), rig.keeper(job)
    until(lambda: rig.log(job) == b"here\n")
    os.kill(keeper, signal.SIGSTOP)
    rig.call("stop", job_id=job, by="ana@laptop", grace_s=1)
    assert rig.standing(job).status is Status.STOP_IN_PROGRESS
    os.kill(keeper, signal.SIGKILL)
    standing = status_of(rig.ended(job))
    assert (standing.status, standing.reason) == (Status.UNKNOWN, "supervisor_lost")
    assert not lives(main)


def test_a_stopper_that_is_killed_too_is_followed_by_another(rig: Rig) -> None:
    job = rig.start("all-run", "trap '' TERM; echo here; while true; do sleep 0.1; done")
    main, keeper = rig.running(job), rig.keeper(job)
    until(lambda: rig.log(job) == b"here\n")
    os.kill(keeper, signal.SIGKILL)
    until(lambda: not rig.report(job).supervised)
    rig.call("stop", job_id=job, by="ana@laptop", grace_s=600)
    stopper = until(lambda: _stopper(str(rig.folder(job))))
    rig.call("jobs")
    assert lives(main)
    os.kill(stopper, signal.SIGKILL)
    until(lambda: not lives(stopper))
    rig.call("stop", job_id=job, by="ana@laptop", grace_s=0)
    assert status_of(rig.ended(job)).status is Status.UNKNOWN
    assert not lives(main)


def _stopper(folder: str) -> int:
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return next((pid for pid in pids if command_line(pid)[-3:-1] == [b"stopper", folder.encode()]), 0)
