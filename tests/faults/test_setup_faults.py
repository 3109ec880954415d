"""A setup that is killed, or has no room or no whole index: its end, what it says, and that the next is right."""

from __future__ import annotations

import os
import signal
import subprocess
import zipfile
from pathlib import Path

import packages
import pytest
from agent_rig import children, lives
from setup_rig import BUILT_S, FORMS, TRY, Site
from small_disk import small
from support import until

from aicrun.wire import names
from aicrun.wire.jobs import Setup
from aicrun.wire.status import Status, status_of

# Where a build may be cut: the environment is made, filled, and marked as whole.
PLACES = ("setup.made", "setup.installed", "setup.marked")


@pytest.mark.parametrize("place", PLACES)
def test_a_killed_setup_fails_and_the_next_builds_or_takes_what_is_whole(site: Site, place: str) -> None:
    job = site.start(f"{place}:kill")
    standing = status_of(site.ended(job))
    assert (standing.status, standing.reason, standing.signal) == (Status.FAILED, "setup_failed", signal.SIGKILL)
    said = site.succeeds()
    if place == "setup.marked":
        assert "is ready" in said
    else:
        assert "removing a half-built environment" in said


@pytest.mark.parametrize("place", PLACES)
def test_a_keeper_killed_with_its_setup_leaves_nothing_half_built_in_use(site: Site, place: str) -> None:
    job, pid = site.paused(place)
    os.kill(site.rig.keeper(job), signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not lives(pid))
    report = site.ended(job)
    assert report.phase == "never_started"
    assert not (site.rig.step(job) / names.STEP_START).exists()
    assert ("is ready" if place == "setup.marked" else "removing a half-built") in site.succeeds()


def test_a_setup_killed_while_uv_fetches_takes_uv_with_it(site: Site) -> None:
    index = packages.Index(site.rig.home / "wheels")
    index.sends.clear()
    job = site.start(wheels="", index=(index.address,))
    pid = site.rig.running(job, "setup")
    until(lambda: any(path.endswith(".whl") for path in index.asked), BUILT_S)
    os.kill(pid, signal.SIGKILL)
    assert status_of(site.ended(job)).reason == "setup_failed"
    index.sends.set()
    assert "removing a half-built environment" in site.succeeds(wheels="", index=(index.address,))
    index.close()


def test_who_waits_for_a_builder_that_is_killed_builds_in_its_place(site: Site) -> None:
    _, pid = site.paused("setup.made")
    second = site.start()
    until(lambda: "waiting for it" in site.said(second), BUILT_S)
    os.kill(pid, signal.SIGKILL)
    assert status_of(site.ended(second)).status is Status.SUCCEEDED
    assert "removing a half-built environment" in site.said(second)


def test_a_lock_whose_wheel_has_other_bytes_is_not_installed(site: Site) -> None:
    lock = packages.lock(packages.wheel(site.rig.home / "other", version="1.0"), "http://127.0.0.1:9/simple")
    (site.rig.home / "wheels/tiny-1.0-py3-none-any.whl").unlink()
    changed = packages.wheel(site.rig.home / "wheels")
    with zipfile.ZipFile(changed, "a") as wheel:
        wheel.writestr("evil.py", "")
    fields = {"packages": (), "lock": lock, "pyproject": packages.PYPROJECT, "requirements_name": "uv.lock"}
    assert "installing what uv.lock names: exit code" in site.fails(**fields)
    changed.unlink()
    (site.rig.home / "other/tiny-1.0-py3-none-any.whl").rename(changed)
    site.succeeds(**fields)


def test_a_wheel_that_is_not_in_the_folder_is_told_with_the_folder(site: Site) -> None:
    assert f"put what is missing into {site.rig.home}/wheels" in site.fails(packages=("tiny==2",))


def test_an_environment_that_is_used_as_it_is_must_still_run(site: Site) -> None:
    job = site.rig.start("built-run", TRY, setup=Setup(path=str(site.rig.home / "gone")))
    assert status_of(site.ended(job)).reason == "setup_failed"
    assert "gone/bin/python of setup.venv: " in site.said(job).splitlines()[-1]


def test_who_waits_for_a_builder_waits_no_longer_than_its_own_time_and_can_be_stopped(site: Site) -> None:
    _, pid = site.paused("setup.installed")
    hurried, stopped, patient = site.start(timeout_s=1), site.start(), site.start()
    assert status_of(site.ended(hurried)).reason == "setup_failed"
    assert "waiting for another job that builds the environment" in site.said(hurried).splitlines()[-1]
    until(lambda: "waiting for it" in site.said(stopped) and "waiting for it" in site.said(patient), BUILT_S)
    site.rig.call("stop", job_id=stopped, by="ana", grace_s=0)
    assert status_of(site.ended(stopped)).status is Status.STOPPED
    os.kill(pid, signal.SIGCONT)
    assert status_of(site.ended(patient)).status is Status.SUCCEEDED
    assert "the other job has built it" in site.said(patient)


@pytest.mark.parametrize("form", FORMS)
def test_each_form_that_is_killed_half_way_is_built_anew_by_the_next(site: Site, form: str) -> None:
    index = packages.Index(site.wheels)
    fields = site.form(form, index.address)
    for place in PLACES[:2]:
        job = site.start(f"{place}:kill", **fields)
        standing = status_of(site.ended(job))
        assert (standing.reason, standing.signal) == ("setup_failed", signal.SIGKILL)
        assert not (site.path / "complete").exists()
    assert "removing a half-built environment" in site.succeeds(**fields)
    index.close()


def test_a_setup_killed_in_a_command_of_its_own_ends_that_and_the_next_has_a_tree_of_its_own(site: Site) -> None:
    source = site.pushed({"a": "1"})
    job = site.start(source=source, run=("touch begun; sleep 600",))
    pid = site.rig.running(job, "setup")
    tree = site.rig.home / "work/built-1/jobs" / job
    until(lambda: (tree / "begun").exists(), BUILT_S)
    working = children(pid)
    os.kill(pid, signal.SIGKILL)
    assert status_of(site.ended(job)).reason == "setup_failed"
    assert working and not any(map(lives, working))
    assert "is ready" in site.succeeds(source=source, run=("test ! -e begun",))


def larger(folder: Path) -> None:
    """There is room again."""
    subprocess.run(["mount", "-o", "remount,size=64m,nr_inodes=10000", str(folder)], check=True)


def grown(site: Site) -> None:
    """The package is larger than any disk of these tests."""
    with zipfile.ZipFile(site.wheel, "a") as wheel:
        wheel.writestr("tiny_data.bin", os.urandom(2 << 20))


@pytest.mark.parametrize("form", FORMS)
def test_a_disk_of_environments_that_gets_full_is_named_and_with_room_the_next_builds(site: Site, form: str) -> None:
    grown(site)
    index = packages.Index(site.wheels)
    fields, folder = site.form(form, index.address), site.path.parent
    with small(folder, "size=1m", end=site.rig.close):
        assert f"the disk is full: free some room below {folder}" in site.fails("disk_full", **fields)
        # What it has built until then has made room.
        assert not site.path.exists()
        larger(folder)
        site.succeeds(**fields)
    index.close()


@pytest.mark.parametrize(("size", "doing"), [("size=4k", "making"), ("nr_inodes=20", "making"), ("nr_inodes=26", "")])
def test_a_disk_without_room_for_an_empty_environment_or_without_inodes(site: Site, size: str, doing: str) -> None:
    folder = site.path.parent
    with small(folder, size, end=site.rig.close):
        last = site.fails("disk_full")
        assert f"aicrun: setup failed: {doing}" in last
        assert f"the disk is full: free some room below {folder}" in last
        larger(folder)
        site.succeeds()


def test_a_full_disk_of_uvs_own_cache_is_named_and_not_that_of_the_environments(site: Site) -> None:
    grown(site)
    cache = site.rig.home / ".cache"
    with small(cache, "size=1m", end=site.rig.close):
        assert f"the disk is full at {cache}/uv" in site.fails("disk_full")
        larger(cache)
        site.succeeds()


def test_a_workspace_without_room_for_the_tree_is_named_and_nothing_half_laid_is_used(site: Site) -> None:
    source = site.pushed({"a": "1", "large": "x" * (2 << 20)})
    work = site.rig.home / "work"
    with small(work, "size=1m", end=site.rig.close):
        last = site.fails("disk_full", source=source)
        assert "large: No space left on device; the disk is full at " in last
        assert f"{work}/built-1/jobs: free some room there" in last
        assert list((work / "built-1/jobs").iterdir()) == []
        larger(work)
        site.succeeds(source=source)
