"""The sweep takes what is a week past its use and never what a person would miss."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aicrun.agent import store, sweep
from aicrun.agent.home import Home
from aicrun.agent.kept import Launch
from aicrun.agent.process import boot_identity
from aicrun.agent.records import write_record
from aicrun.wire import names
from aicrun.wire.jobs import Decision, End, JobRequest

Job = Callable[..., JobRequest]

NOW = time.time()
OLD = NOW - 8 * 86400


def a_job(home: Home, request: JobRequest, ended_at: float | None = None, no_at: float | None = None) -> Path:
    folder, record = Path(home.job_dir(request.job_id)), Path(home.record_dir(request.run, request.job_id))
    (folder / "attempts/1/command").mkdir(parents=True)
    (folder / "attempts/1/command/log").write_bytes(b"x" * 1000)
    record.mkdir(parents=True)
    write_record(str(folder / names.REQUEST), request)
    if ended_at is not None:
        write_record(str(record / names.END), End(1, ended_at))
    if no_at is not None:
        write_record(str(record / names.DECISION), Decision("no", "withdrawn", at=no_at))
    return folder


def test_a_job_folder_goes_a_week_after_its_end_and_its_record_stays(home: Home, job: Job) -> None:
    old = a_job(home, job(), ended_at=OLD)
    young = a_job(home, job(job_id="00000000000000ab"), ended_at=NOW - 6 * 86400)
    rows = sweep.sweep(home, NOW)
    assert [(row.what, row.path, row.bytes > 1000) for row in rows] == [("job", str(old), True)]
    assert not old.exists()
    assert young.exists()
    assert Path(home.record_dir("sft-run", "00000000000000aa"), names.END).exists()
    assert os.listdir(home.trash()) == []


def test_a_job_without_a_recorded_end_is_evidence_and_stays(home: Home, job: Job) -> None:
    folder = a_job(home, job())
    os.utime(folder, (OLD, OLD))
    assert sweep.sweep(home, NOW) == ()


def test_a_withdrawn_job_goes_too(home: Home, job: Job) -> None:
    folder = a_job(home, job(), no_at=OLD)
    assert [row.path for row in sweep.sweep(home, NOW)] == [str(folder)]


def test_a_job_whose_keeper_lives_stays_whatever_its_record_says(home: Home, job: Job) -> None:
    folder = a_job(home, job(), ended_at=OLD)
    with (folder / names.KEEPER_LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert sweep.due(home, NOW, sweep.WEEK_S) == ()
        assert sweep.sweep(home, NOW) == ()
    assert len(sweep.sweep(home, NOW)) == 1


def test_a_dry_run_removes_nothing(home: Home, job: Job) -> None:
    folder = a_job(home, job(), ended_at=NOW - 100)
    answer, _ = sweep.gc(home, {"dry_run": True, "older_than_s": 0}, b"")
    assert [row["path"] for row in answer["rows"]] == [str(folder)]
    assert folder.exists()
    sweep.gc(home, {"dry_run": False, "older_than_s": 0}, b"")
    assert not folder.exists()


def test_store_contents_go_when_nobody_asked_for_a_week_but_never_in_their_first_hour(home: Home) -> None:
    paths = []
    for raw in (b"old", b"young"):
        digest = hashlib.sha256(raw).hexdigest()
        store.put(home, {"hash": digest}, raw)
        paths.append(home.object_path(digest))
    os.utime(paths[0], (OLD, OLD))
    os.utime(paths[1], (NOW - 600, NOW - 600))
    assert [row.path for row in sweep.sweep(home, NOW, older_than_s=0)] == [paths[0]]
    assert os.path.exists(paths[1])


def test_asking_for_a_content_keeps_it(home: Home) -> None:
    digest = hashlib.sha256(b"1").hexdigest()
    store.put(home, {"hash": digest}, b"1")
    os.utime(home.object_path(digest), (OLD, OLD))
    store.missing(home, {"tree": "", "hashes": [digest]}, b"")
    assert sweep.sweep(home, NOW) == ()


def test_another_agent_goes_unless_a_living_keeper_names_it(home: Home, job: Job) -> None:
    agents = Path(home.root, names.AGENTS)
    for name in ("used", "unused"):
        (agents / name).mkdir(parents=True)
        os.utime(agents / name, (OLD, OLD))
    folder = a_job(home, job())
    write_record(str(folder / names.LAUNCH), {"agent": str(agents / "used"), "schema": 1})
    with (folder / names.KEEPER_LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert [row.path for row in sweep.sweep(home, NOW)] == [str(agents / "unused")]


def test_what_an_interrupted_removal_left_goes(home: Home) -> None:
    Path(home.trash(), "half/deep").mkdir(parents=True)
    assert [row.what for row in sweep.sweep(home, NOW)] == ["trash"]
    assert os.listdir(home.trash()) == []


@pytest.mark.parametrize(
    "kept", ["aic-jobs/sft-run/checkpoints/x", "aic-jobs/sft-run/jobs/y", ".local/share/aicrun/envs/z"]
)
def test_workspaces_environments_and_checkpoints_are_never_touched(
    home: Home, job: Job, account: Path, kept: str
) -> None:
    folder = account / kept
    folder.mkdir(parents=True)
    (folder / "precious").write_text("1")
    os.utime(folder / "precious", (0, 0))
    a_job(home, job(), ended_at=0.0)
    sweep.sweep(home, NOW, older_than_s=0)
    assert (folder / "precious").exists()


@pytest.mark.parametrize(
    ("set_by_s", "same_boot", "stays"),
    [(-30 * 86400, True, True), (-30 * 86400, False, True), (365 * 86400, True, True), (365 * 86400, False, False)],
    ids=["back a month", "back a month and restarted", "a year ahead", "a year ahead and restarted"],
)
def test_a_clock_that_was_set_makes_no_young_log_old(
    home: Home, job: Job, set_by_s: float, same_boot: bool, stays: bool
) -> None:
    """Only what another boot left can have lain for a week when this boot is younger than that."""
    folder = a_job(home, job(), ended_at=NOW)
    boot = boot_identity()
    kept = boot if same_boot else replace(boot, boot_id="another")
    write_record(str(folder / names.LAUNCH), Launch("keeper", 1, 1, kept, "", "", "D", True, True, NOW))
    older_than_s = max(sweep.WEEK_S, time.clock_gettime(time.CLOCK_BOOTTIME) + 3600)
    rows = sweep.sweep(home, NOW + set_by_s, older_than_s)
    assert [row.path for row in rows] == ([] if stays else [str(folder)])
    assert folder.exists() is stays
