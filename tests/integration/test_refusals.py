"""What is refused leaves nothing behind, and what cannot be read hides nothing else."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from integration.project import Project
from integration.test_told import small_state  # noqa: F401  # a fixture


def statuses(project: Project) -> list[str]:
    return [job["status"] for job in project.json("list", "--all")["jobs"]]


def test_a_replacement_whose_old_job_did_not_end_stays_reserved_for_nobody(project: Project) -> None:
    project.write("python3 work.py 900")
    assert project.apply().returncode == 0
    project.running()
    # Nobody sees how the old one ends: its end is unknown, and the new one is not started.
    assert project.kill("keeper")
    project.write("python3 work.py 0")
    refused = project.apply("--replace")
    assert refused.returncode == 8, refused.stdout + refused.stderr
    assert "AIC-E631" in refused.stderr
    assert statuses(project) == ["rejected", "unknown"]
    begun = time.monotonic()
    again = project.apply("--again", "--follow")
    assert again.returncode == 0, again.stdout + again.stderr
    assert time.monotonic() - begun < 40
    assert len(project.starts()) == 2


def test_a_start_again_that_a_full_disk_refuses_stays_reserved_for_nobody(
    project: Project,
    small_state: int,  # noqa: F811
) -> None:
    project.write("python3 work.py 0 3")
    assert project.apply("--follow").returncode == 10
    filler = project.person.home / ".local/state/filler"
    handle = os.open(filler, os.O_WRONLY | os.O_CREAT, 0o600)
    # Room for nothing, for some, for more: wherever the disk says no, nothing may stay reserved.
    for spare in (0, 64, 32):
        os.posix_fallocate(handle, 0, small_state - _used(filler) - spare * 1024)
        refused = project.apply("--again")
        assert refused.returncode != 0, refused.stdout + refused.stderr
        os.ftruncate(handle, 0)
        assert "scheduling" not in statuses(project)
    os.close(handle)
    filler.unlink()
    project.write("python3 work.py 0 0")
    assert project.apply("--again", "--follow").returncode == 0


def _used(filler: Path) -> int:
    disk = os.statvfs(filler.parent)
    return int((disk.f_blocks - disk.f_bfree) * disk.f_frsize)


def test_a_run_s_folder_that_cannot_be_read_hides_no_other(project: Project) -> None:
    project.write()
    assert project.apply("--follow").returncode == 0
    runs = next((project.person.home / ".local/state/aicrun").glob("*/runs"))
    (runs / "broken").symlink_to(runs / "broken")
    listed = project.run("list")
    assert listed.returncode == 0, listed.stderr
    rows = {line.split()[0]: line for line in listed.stdout.splitlines() if line}
    assert "succeeded" in rows["quick"]
    assert "unknown" in rows["broken"]
    assert project.run("inspect", "quick").returncode == 0
    told = project.run("inspect", "broken")
    assert told.returncode != 0
    assert str(runs / "broken") in told.stdout + told.stderr


def test_a_ledger_that_another_process_holds_is_gone_without_and_told(project: Project) -> None:
    project.write()
    assert project.apply("--follow").returncode == 0
    ledger = next(project.person.home.rglob("ledger.db"))
    holder = sqlite3.connect(ledger, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    begun = time.monotonic()
    done = project.apply()
    took = time.monotonic() - begun
    holder.rollback()
    holder.close()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "busy" in done.stdout + done.stderr
    assert took < 8
