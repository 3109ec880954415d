"""A run that says nothing: told when its spec calls that too long, taken back when it speaks, never ended for it."""

from __future__ import annotations

import json
from typing import Any

from agent_rig import Rig, lives
from support import until

from aicrun.wire import names
from aicrun.wire.codec import to_json
from aicrun.wire.jobs import Limits
from aicrun.wire.status import Status, status_of


def silent_s(rig: Rig, job: str) -> float | None:
    return rig.report(job).stalled_s


def stalls(rig: Rig, job: str) -> int:
    lines = (rig.folder(job) / names.EVENTS).read_text().splitlines()
    return sum(json.loads(line)["event"] == "stalled" for line in lines)


def test_ranks_that_wait_for_a_dead_one_are_told_as_silent_and_go_on(rig: Rig) -> None:
    # One of two halves dies, the other spins for ever: to the machine it looks as busy as ever.
    ranks = "(exit 1) & (while [ ! -e go ]; do :; done) & wait -n || true; echo one left; wait; echo on; exit 7"
    job = rig.start("ranks-run", ranks, limits=Limits(stall_s=2))
    main = rig.running(job)
    until(lambda: rig.log(job) == b"one left\n")
    standing = until(lambda: (seen := rig.standing(job)).why and seen)
    assert standing.status is Status.IN_PROGRESS
    assert "no output for" in standing.why
    assert lives(main)
    quiet = silent_s(rig, job)
    assert quiet is not None
    assert 2 <= quiet < 30
    # The keeper looks by itself, a moment before or after us.
    until(lambda: stalls(rig, job) == 1)
    (rig.home / "work/ranks-run/go").touch()
    standing = status_of(rig.ended(job))
    assert (standing.status, standing.code) == (Status.FAILED, 7)
    assert silent_s(rig, job) is None
    assert stalls(rig, job) == 1


def test_a_silence_is_taken_back_when_it_speaks_and_told_again_the_next_time(rig: Rig) -> None:
    step = "while [ ! -e go{n} ]; do sleep 0.05; done; echo {n};"
    job = rig.start("step-run", " ".join(step.format(n=n) for n in range(3)), limits=Limits(stall_s=1))
    work = rig.home / "work/step-run"
    for n in range(2):
        until(lambda n=n: silent_s(rig, job) is not None and stalls(rig, job) > n)
        (work / f"go{n}").touch()
        until(lambda: silent_s(rig, job) is None)
    (work / "go2").touch()
    assert status_of(rig.ended(job)).status is Status.SUCCEEDED
    assert stalls(rig, job) in (2, 3)


def test_without_a_limit_no_silence_is_too_long_and_a_limit_that_comes_later_counts(rig: Rig) -> None:
    job = rig.start("quiet-run", "sleep 600")
    rig.running(job)
    # A keeper looks once a second: five looks of ours are several of its.
    started = rig.report(job).age_s
    until(lambda: rig.report(job).age_s > started + 2)
    assert rig.standing(job).why == ""
    limits: dict[str, Any] = to_json(Limits(stall_s=1))
    rig.call("supervise", job_id=job, supervision={}, limits=limits, by="ana@laptop")
    until(lambda: silent_s(rig, job))
    assert rig.standing(job).status is Status.IN_PROGRESS
