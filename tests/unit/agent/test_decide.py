"""The decision: written once, by whoever comes first, and never by a clock that a reservation's owner still touches."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from aicrun.agent import decide
from aicrun.agent.home import Home, open_home
from aicrun.agent.refused import Refused
from aicrun.wire import names

RUN, JOB = "decide-run", "ab" * 8


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = open_home({"HOME": str(tmp_path)})
    os.makedirs(found.record_dir(RUN, JOB))
    os.makedirs(found.job_dir(JOB))
    return found


def test_the_first_decision_stands(home: Home) -> None:
    assert decide.decide(home, RUN, JOB, decide.go("ana")).decision == "go"
    assert decide.decide(home, RUN, JOB, decide.no("by rival", "bo")).decision == "go"
    found = decide.standing(home, RUN, JOB)
    assert found is not None
    assert (found.decision, found.by) == ("go", "ana")


def test_a_gate_counts_from_the_last_touch(home: Home) -> None:
    decide.touched(home, JOB)
    assert not decide.gate_passed(home, JOB)
    touch = Path(home.job_dir(JOB), names.TOUCH)
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    for ago, passed in ((59, False), (61, True), (-100, False)):
        touch.write_text(repr(now - ago))
        assert decide.gate_passed(home, JOB) == passed
    touch.write_text("")
    assert not decide.gate_passed(home, JOB)


def test_settling_writes_only_what_is_certain(home: Home) -> None:
    decide.touched(home, JOB)
    found = decide.settle(home, RUN, JOB)
    assert found is not None
    assert (found.decision, found.reason) == ("no", "keeper lost")


def test_an_unknown_job_is_not_found(home: Home) -> None:
    for job_id in ("cd" * 8, "../" + JOB, ""):
        with pytest.raises(Refused) as caught:
            decide.run_of(home, job_id)
        assert caught.value.token == "not_found"
