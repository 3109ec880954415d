"""A run's folder that cannot be read at all: every other run is listed, found, started, stopped, swept as ever."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_rig import Refusal, Rig
from support import until

from aicrun.wire.codec import from_json
from aicrun.wire.jobs import JobReport
from aicrun.wire.status import Status, status_of


@pytest.fixture
def bad(rig: Rig) -> Path:
    """A folder in the state that even root cannot read: a link that leads to itself."""
    rig.call("jobs")
    path = rig.root / "runs/bad-run"
    path.symlink_to(path)
    return path


def test_the_others_are_listed_and_the_bad_one_is_named(rig: Rig, bad: Path) -> None:
    good = rig.start("good-run", "exit 3")
    rig.ended(good)
    answer = rig.call("jobs")
    reports = {one["run"]: from_json(JobReport, one) for one in answer["reports"]}
    assert set(reports) == {"good-run", "bad-run"}
    assert status_of(reports["good-run"]).code == 3
    standing = status_of(reports["bad-run"])
    assert (standing.status, standing.reason) == (Status.UNKNOWN, "record_lost")
    assert str(bad) in standing.why
    assert [one["run"] for one in rig.call("jobs", statuses=["failed"])["reports"]] == ["good-run"]
    assert [one["job_id"] for one in rig.call("jobs", ids=[good])["reports"]] == [good]


def test_the_others_are_found_stopped_and_deleted(rig: Rig, bad: Path) -> None:
    job = rig.start("good-run", "sleep 600", run_id="1234" + "0" * 12)
    rig.running(job)
    for key in ("good-run", job, job[:6], "1234"):
        assert rig.report(key).job_id == job
    rig.call("stop", job_id=job, by="ana@laptop", grace_s=1)
    assert status_of(rig.ended(job)).status is Status.STOPPED
    until(lambda: not rig.report(job).supervised)
    rig.call("gc", dry_run=True)
    rig.call("delete", job_id=job, by="ana@laptop")
    assert "good-run" not in [one["run"] for one in rig.call("jobs")["reports"]]


def test_what_may_lie_in_it_is_never_called_unknown_to_us(rig: Rig, bad: Path) -> None:
    for key in ("bad-run", "0123456789abcdef"):
        with pytest.raises(Refusal) as caught:
            rig.report(key)
        assert caught.value.token == "state_unusable"
        assert str(bad) in str(caught.value)
    with pytest.raises(Refusal) as caught:
        rig.start("bad-run", "true")
    assert caught.value.token == "state_unusable"
