"""Limits of a run: its deadline also when nobody is left to keep it; the silence that is told and never acted on."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from agent_rig import Rig, lives
from support import until

from aicrun.agent import records
from aicrun.agent.wishes import Wishes
from aicrun.wire import names
from aicrun.wire.jobs import Client, JobRequest, Limits, StopIntent
from aicrun.wire.status import Status, status_of


def orphaned(
    rig: Rig, run: str, limits: Limits, command: str | tuple[str, ...] = ("/bin/sleep", "600")
) -> tuple[str, int]:
    job = rig.start(run, command, limits=limits)
    pid = rig.running(job)
    keeper = rig.keeper(job)
    os.kill(keeper, signal.SIGKILL)
    until(lambda: not lives(keeper))
    return job, pid


def test_past_its_deadline_a_run_without_a_keeper_is_ended_by_whoever_asks_next(rig: Rig) -> None:
    began = time.monotonic()
    job, pid = orphaned(rig, "late-run", Limits(grace_s=2, max_duration_s=3))
    assert rig.standing(job).status is Status.IN_PROGRESS
    until(lambda: time.monotonic() - began > 5)
    # Nobody has asked meanwhile, and nothing of ours runs by itself.
    assert lives(pid)
    until(lambda: rig.standing(job).status is not Status.IN_PROGRESS, at_most_s=5)
    standing = status_of(rig.ended(job))
    assert (standing.status, standing.reason, standing.code, standing.signal) == (
        (Status.UNKNOWN, "supervisor_lost", None, None)
    )
    assert "limits.max_duration was over" in standing.why
    assert not lives(pid)
    events = [event for event in rig.report(job).events if event.event in ("stop_asked", "stop_sent")]
    assert [event.event for event in events] == ["stop_asked", "stop_sent"]
    assert events[0].detail == "max_duration is over, and its keeper is gone"
    assert not (rig.step(job) / names.STEP_EXIT).exists()
    assert status_of(rig.report(job)) == standing


def test_a_list_or_a_look_keeps_the_deadline_as_well(rig: Rig) -> None:
    # Not as `job` asks, which every other test does.
    for name, ask in {
        "listed-run": lambda: rig.call("jobs", ids=[], statuses=[], limit=20),
        "looked-run": lambda: rig.call("look", run="looked-run"),
        "surveyed-run": lambda: rig.call("survey", question={"runs": ["surveyed-run"], "cards": False}),
    }.items():
        _, pid = orphaned(rig, name, Limits(grace_s=0, max_duration_s=1))
        until(lambda once=ask, of=pid: (once(), not lives(of))[1])  # type: ignore[misc]


def test_a_command_that_goes_on_after_term_gets_its_grace_and_no_more(rig: Rig) -> None:
    deaf = "trap '' TERM; echo ready; while true; do sleep 0.1; done"
    job, pid = orphaned(rig, "deaf-run", Limits(grace_s=2, max_duration_s=1), deaf)
    until(lambda: rig.standing(job).status is Status.STOP_IN_PROGRESS)
    assert rig.report(job).stop.grace_s == 2  # type: ignore[union-attr]
    assert lives(pid)
    assert status_of(rig.ended(job)).status is Status.UNKNOWN
    assert not lives(pid)


def test_before_its_deadline_or_without_one_it_is_left_alone(rig: Rig) -> None:
    for run, limits in {"long-run": Limits(max_duration_s=600), "free-run": Limits()}.items():
        job, pid = orphaned(rig, run, limits)
        assert rig.standing(job).status is Status.IN_PROGRESS
        assert not (rig.folder(job) / names.STOP).exists()
        os.kill(pid, signal.SIGKILL)
        assert "max_duration" not in status_of(rig.ended(job)).why


def test_a_deadline_changed_since_counts(rig: Rig) -> None:
    job, pid = orphaned(rig, "changed-run", Limits(max_duration_s=600))
    rig.call("supervise", job_id=job, supervision={}, limits={"grace_s": 1, "max_duration_s": 1}, by="ana")
    assert status_of(rig.ended(job)).status is Status.UNKNOWN
    assert not lives(pid)


def stall_events(rig: Rig, job: str) -> list[str]:
    return [event.event for event in rig.report(job).events if event.event.startswith("stall")]


def test_a_silent_run_is_told_once_and_goes_on(rig: Rig) -> None:
    command = "echo begun; read -r _ < {home}/again; echo again; sleep 600"
    os.mkfifo(rig.home / "again")
    job = rig.start("silent-run", command.format(home=rig.home), limits=Limits(grace_s=1, stall_s=2))
    pid = rig.running(job)
    until(lambda: rig.report(job).stalled_s)
    report, standing = rig.report(job), rig.standing(job)
    assert report.stalled_s is not None
    assert (2 <= report.stalled_s < 20, report.stall_limit_s) == (True, 2)
    assert (standing.status, standing.phase) == (Status.IN_PROGRESS, "training")
    assert standing.why.startswith("no output for ")
    assert standing.why.endswith("s (limits.stall 2s)")
    until(lambda: stall_events(rig, job) == ["stalled"])
    until(lambda: (rig.report(job).stalled_s or 0) > 4)
    assert stall_events(rig, job) == ["stalled"]
    (rig.home / "again").write_text("\n")
    until(lambda: rig.report(job).stalled_s is None)
    until(lambda: stall_events(rig, job)[:2] == ["stalled", "stall_over"])
    assert lives(pid)
    rig.call("stop", job_id=job, by="ana", grace_s=1)
    assert rig.ended(job).stalled_s is None


def test_a_checkpoint_that_grows_is_a_sign_of_life(rig: Rig) -> None:
    kept = rig.home / "kept"
    command = f"mkdir -p {kept}; while true; do date >> {kept}/step-1; sleep 0.2; done"
    quiet = rig.start("quiet-run", "sleep 600", limits=Limits(grace_s=1, stall_s=2))
    job = rig.start("saving-run", command, limits=Limits(grace_s=1, stall_s=2), checkpoints=str(kept))
    # The other one is silent for as long, and told.
    until(lambda: (rig.report(quiet).stalled_s or 0) > 3)
    assert rig.report(job).stalled_s is None
    assert stall_events(rig, job) == []


def test_silence_is_told_without_a_keeper_and_never_without_a_limit(rig: Rig) -> None:
    free = rig.start("free-run", "sleep 600")
    rig.running(free)
    job, pid = orphaned(rig, "alone-run", Limits(grace_s=1, stall_s=1))
    until(lambda: rig.report(job).stalled_s)
    assert "no output for" in rig.standing(job).why
    assert "its keeper is gone" in rig.standing(job).why
    assert lives(pid)
    assert rig.report(free).stalled_s is None
    rig.call("supervise", job_id=free, supervision={}, limits={"grace_s": 1, "stall_s": 1}, by="ana")
    until(lambda: stall_events(rig, free) == ["stalled"])


LATER = {"grace_s": 1, "max_duration_s": 100_000}


@pytest.mark.parametrize("trouble", ["away", "unreadable"])
def test_changed_limits_that_cannot_be_read_any_more_stay_as_they_were(rig: Rig, trouble: str) -> None:
    began = time.monotonic()
    job = rig.start("changed-run", "sleep 600", limits=Limits(grace_s=1, max_duration_s=4))
    pid = rig.running(job)
    rig.call("supervise", job_id=job, supervision={}, limits=LATER, by="ana")
    # Past the old deadline it was surely read.
    until(lambda: time.monotonic() - began > 6)
    assert lives(pid)
    records = rig.record("changed-run", job)
    before, kept = records / names.SUPERVISION, rig.home / "away"
    where = before if trouble == "unreadable" else records
    where.rename(kept)
    if trouble == "unreadable":
        where.symlink_to("nowhere")
    until(lambda: time.monotonic() - began > 8)
    assert lives(pid)
    if trouble == "unreadable":
        where.unlink()
    kept.rename(where)
    rig.call("stop", job_id=job, by="ana", grace_s=1)
    assert rig.ended(job).stop is not None


def test_on_limits_that_nobody_can_read_no_run_is_ended(rig: Rig) -> None:
    limits = Limits(grace_s=1, max_duration_s=3)
    jobs = [rig.start(run, ("/bin/sleep", "600"), limits=limits) for run in ("kept-run", "orphan-run")]
    pids = [rig.running(job) for job in jobs]
    began = time.monotonic()
    for run, job in zip(("kept-run", "orphan-run"), jobs, strict=True):
        (rig.record(run, job) / names.SUPERVISION).write_text("torn")
    os.kill(rig.keeper(jobs[1]), signal.SIGKILL)
    until(lambda: time.monotonic() - began > 5)
    assert [rig.standing(job).status for job in jobs] == [Status.IN_PROGRESS] * 2
    assert all(lives(pid) for pid in pids)
    # They are asked again, and the deadline counts as soon as it can be read.
    for run, job in zip(("kept-run", "orphan-run"), jobs, strict=True):
        (rig.record(run, job) / names.SUPERVISION).unlink()
    assert [status_of(rig.ended(job)).status for job in jobs] == [Status.FAILED, Status.UNKNOWN]
    assert not any(lives(pid) for pid in pids)


def test_a_stop_that_could_not_be_read_at_first_is_read_again(tmp_path: Path) -> None:
    request = JobRequest("0" * 16, "some-run", "1" * 16, "2" * 16, "d" * 64, Client("a", "b", "0"), {}, "/w", ("x",))
    wishes = Wishes(str(tmp_path), str(tmp_path / "record"), request)
    path = tmp_path / names.STOP
    assert wishes.stop() is None
    path.symlink_to("nowhere")
    assert wishes.stop() is None
    path.unlink()
    records.write_record(str(path), StopIntent("ana", 5, 1.0))
    found = path.stat()
    assert wishes.stop() is not None
    path.write_bytes(b"torn")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert wishes.stop() is not None
