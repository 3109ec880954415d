"""A setup that is killed, or has no room or no whole index: its end, what it says, and that the next is right."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import packages
import pytest
from agent_rig import Rig, lives, state_of
from support import until

from aicrun.wire import names
from aicrun.wire.jobs import JobReport, Setup
from aicrun.wire.status import Status, status_of

SYSTEM = shutil.which("python3", path="/usr/bin") or sys.executable
TRY = "python -c 'import tiny; print(tiny.WORD)'"
# Where a build may be cut: the environment is made, filled, and marked as whole.
PLACES = ("setup.made", "setup.installed", "setup.marked")
# A test does not wait for uv to try again.
AT_ONCE = {"UV_HTTP_RETRIES": "0"}
BUILT_S = 120


@pytest.fixture
def site(rig: Rig) -> Site:
    """A host with uv and a folder of wheels."""
    tools = rig.home / ".local/bin"
    tools.mkdir(parents=True)
    (tools / "uv").symlink_to(packages.pinned_uv())
    packages.wheel(rig.home / "wheels")
    return Site(rig)


class Site:
    """Starts jobs that all want one environment."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.path = rig.home / ".local/share/aicrun/envs/k1"
        self.started = 0

    def start(self, hook: str = "", **fields: Any) -> str:
        """A job whose environment holds `tiny`, from the folder of wheels unless `fields` say else."""
        given: dict[str, Any] = {"packages": ("tiny",), "wheels": str(self.rig.home / "wheels"), **fields}
        setup = Setup(key="k1", path=str(self.path), python=SYSTEM, python_version="3", **given)
        hooks = {"AICRUN_TEST_HOOK": hook} if hook else {}
        self.started += 1
        return self.rig.start(f"built-{self.started}", TRY, variables={**AT_ONCE, **hooks}, setup=setup)

    def ended(self, job: str) -> JobReport:
        return self.rig.ended(job, BUILT_S)

    def said(self, job: str) -> str:
        return self.rig.log(job, "setup").decode()

    def succeeds(self, **fields: Any) -> str:
        """What the setup of a next job says, which ends well."""
        job = self.start(**fields)
        report = self.ended(job)
        assert status_of(report).status is Status.SUCCEEDED, self.said(job)
        assert self.rig.log(job).decode() == "here\n"
        return self.said(job)

    def fails(self, **fields: Any) -> str:
        """The last line of a setup that fails, as the status says too."""
        job = self.start(**fields)
        standing = status_of(self.ended(job))
        assert (standing.status, standing.reason, standing.step) == (Status.FAILED, "setup_failed", "setup")
        assert not (self.path / "complete").exists()
        return self.said(job).splitlines()[-1]

    def paused(self, place: str) -> tuple[str, int]:
        """A job whose setup stands still at `place`, and the pid of that setup."""
        job = self.start(f"{place}:pause")
        pid = self.rig.running(job, "setup")
        until(lambda: state_of(pid) == "T", BUILT_S)
        return job, pid


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


def test_an_index_that_breaks_off_half_way_and_one_that_is_not_there(site: Site) -> None:
    index = packages.Index(site.rig.home / "wheels", cut_bytes=200)
    assert "an index broke off half-way" in site.fails(wheels="", index=(index.address,))
    index.close()
    last = site.fails(wheels="", index=(index.address,))
    assert "does not reach the index" in last
    assert "setup.wheels" in last
    whole = packages.Index(site.rig.home / "wheels")
    assert "removing a half-built environment" in site.succeeds(wheels="", index=(whole.address,))
    whole.close()


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


@pytest.fixture
def little_room(site: Site) -> Iterator[Path]:
    """A disk of 1 MiB for the environments."""
    folder = site.path.parent
    folder.mkdir(parents=True)
    order = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(order, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    site.rig.close()
    until(lambda: subprocess.run(["umount", str(folder)], capture_output=True, check=False).returncode == 0)


def test_a_disk_that_gets_full_is_named_and_with_room_the_next_builds(site: Site, little_room: Path) -> None:
    made = packages.wheel(site.rig.home / "wheels")
    with zipfile.ZipFile(made, "a") as wheel:
        wheel.writestr("tiny_data.bin", os.urandom(2 << 20))
    assert f"the disk is full: free some room below {little_room}" in site.fails()
    subprocess.run(["mount", "-o", "remount,size=64m", str(little_room)], check=True)
    assert "removing a half-built environment" in site.succeeds()
