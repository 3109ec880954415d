"""What a person is told when something around a run went wrong is true, and what it advises works."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.project import Project
from small_disk import small
from support import REPOSITORY, until


@pytest.fixture
def small_state(project: Project) -> Iterator[int]:
    """A state folder on a disk of its own; its bytes."""
    state = project.person.home / ".local/state"
    with small(state, "size=6m", end=lambda: until(lambda: not project.kill())):
        yield 6 << 20


def _with_a_full_stdout(project: Project, *args: str) -> subprocess.CompletedProcess[str]:
    handle = os.open("/dev/full", os.O_WRONLY)
    try:
        return subprocess.run(
            [sys.executable, "-m", "aicrun", *args],
            cwd=project.folder,
            env=dict(project.person.env, PYTHONPATH=str(REPOSITORY)),
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(handle)


@pytest.mark.parametrize("args", [("list",), ("list", "--json"), ("schema",), ("plan",), ("--help",)])
def test_a_stdout_that_takes_nothing_is_told_in_a_sentence(project: Project, args: tuple[str, ...]) -> None:
    project.write()
    done = _with_a_full_stdout(project, *args)
    assert done.returncode == 1
    assert done.stderr.startswith("error[AIC-E016]: stdout takes nothing more: No space left on device"), done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_plan_says_that_the_first_word_of_a_command_is_no_program_there(project: Project) -> None:
    project.write("no-such-program train.py")
    shown = " ".join(project.run("plan").stdout.split())
    assert "warning: here: no-such-program is not on the PATH that the job will have there: /" in shown, shown
    program = project.person.home / ".local/bin/no-such-program"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    assert "no-such-program is not on the PATH" in " ".join(project.run("plan").stdout.split())
    program.chmod(0o755)
    assert "is not on the PATH" not in " ".join(project.run("plan").stdout.split())
    project.write("cd . && no-such-program-either")
    assert "is not on the PATH" not in " ".join(project.run("plan").stdout.split())


def test_a_saved_plan_outlives_a_comment_in_the_list_and_not_another_data_folder(project: Project) -> None:
    machines = project.folder / "machines.yaml"
    machines.write_text("version: 1\nmachines:\n  - {name: here, local: true}\n")
    project.write()
    assert project.run("plan", "run.yaml", "-o", "plan.json").returncode == 0
    machines.write_text("version: 1\nmachines:\n  - {name: here, local: true, data: ~/data}\n")
    stale = project.run("apply", "plan.json", "--yes")
    assert (stale.returncode, "data of here" in stale.stderr) == (9, True), stale.stderr
    off = "  - {name: attic, ssh: attic, down: true}\n"
    machines.write_text(f"# by Ana\nversion: 1\nmachines:\n{off}  - name: here\n    local: true\n")
    done = project.run("apply", "plan.json", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_silent_machine_is_not_told_as_one_without_runs(project: Project) -> None:
    project.person.env |= {"HOME": "/proc/nowhere", "XDG_STATE_HOME": "/proc/nowhere/state"}
    done = project.run("list")
    assert done.returncode == 6
    assert "No runs here yet" not in done.stdout
    assert "No run is known of the machines that answer." in done.stdout
    assert "here does not answer: its runs are not shown" in done.stdout


def test_after_a_stopped_upload_it_is_the_upload_that_is_advised(project: Project) -> None:
    project.write("head -c 2500000000 /dev/zero > $AICRUN_CHECKPOINT_DIR/large")
    assert project.apply().returncode == 0
    kept = project.person.home / "kept"
    until(lambda: any(path.is_file() for path in kept.rglob("*")), every_s=0.002)
    done = project.run("stop", "quick", "--yes")
    assert project.job()["status"] == "stopped"
    assert "upload again, nothing is trained twice  aicrun apply run.yaml\n" in done.stdout
    assert "--again" not in done.stdout
    next((project.person.home / "aic-jobs").rglob("large")).unlink()


def test_a_log_that_found_no_room_is_told_with_what_is_missing(project: Project, small_state: int) -> None:
    (project.folder / "much.py").write_text("print(('x' * 100 + chr(10)) * 200000, end='')")
    project.write("python3 much.py", more="checkpoints: {}\n")
    done = project.apply("--follow")
    assert done.returncode == 0, done.stdout
    inspected = project.run("inspect", "quick").stdout
    step = next(step for step in project.job()["job"]["steps"] if step["step"] == "command")
    assert step["log_dropped_bytes"] == 200000 * 101 - step["log_bytes"] > small_state
    assert f"  lost      {step['log_dropped_bytes'] / 2**20:.1f} MiB of the log\n" in done.stdout
    assert "not_kept: " in inspected
    assert "of this log was not kept" in project.run("logs", "quick").stderr


def test_a_push_that_would_find_no_room_names_the_place_with_both_numbers_and_sends_nothing(
    project: Project, small_state: int
) -> None:
    (project.folder / "data.bin").write_bytes(os.urandom(small_state))
    project.write()
    done = project.apply()
    assert done.returncode == 7
    said = " ".join(done.stderr.split())
    assert "error[AIC-E617]" in said and "MiB needed on the disk of" in said and ".local/state/aicrun/" in said, said
    assert "aicrun gc here --dry-run" in said
    assert not [path for path in project.person.home.rglob("store/objects/*/*") if path.stat().st_size > 1000]
    assert project.starts() == []


def test_a_file_name_that_is_not_utf_8_is_told_with_a_way_out(project: Project) -> None:
    Path(os.fsdecode(os.fsencode(project.folder) + b"/bad\xff")).write_text("")
    project.write()
    done = project.apply()
    assert done.returncode == 3
    assert "the file name bad\\xff in" in done.stderr
    assert "exclude" in done.stderr


def test_the_plan_shows_a_value_as_it_reaches_the_job(project: Project) -> None:
    project.write(more='env: {LINES: "a\\nb\\tc", NAME: "$${run.name}"}\n')
    planned = project.run("plan").stdout
    assert "LINES=a\\nb\\tc" in planned
    assert "NAME=${run.name}" in planned


def test_an_offline_plan_on_this_machine_alone_says_what_is_so(project: Project) -> None:
    project.write()
    never = project.run("plan", "--offline")
    assert never.returncode == 6
    assert never.stdout.startswith("x quick: refused, here was never seen and may hold a copy\n")
    assert "Offline: no machine was asked, and this client has seen none." in never.stdout
    assert "does not answer" not in never.stdout and "machines down" not in never.stdout
    assert project.run("plan").returncode == 0
    read = project.run("plan", "--offline")
    assert read.returncode == 0, read.stdout
    assert read.stdout.startswith("+ quick: start on here") and "this is here as of " in read.stdout
    assert "aicrun apply" not in read.stdout
    assert project.apply("--follow").returncode == 0
    assert project.run("plan").returncode == 0
    assert project.run("plan", "--offline").stdout.startswith("= quick: keep, succeeded ")
