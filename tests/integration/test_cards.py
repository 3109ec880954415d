"""Runs that need a card through the real commands, on simulated cards: one runs, the next waits in line, then runs."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
from fake_nvml.driver import can_be_built
from integration.project import Project
from support import until

pytestmark = pytest.mark.skipif(not can_be_built(), reason="no C compiler for the simulated driver")

CARD = "machine: {gpu: {vram: 8GiB}}\n"


def spec(box: Project, name: str, seconds: float, more: str = "") -> str:
    box.write(f"python3 work.py {seconds}", name, CARD + more, f"{name}.yaml")
    return f"{name}.yaml"


def apply(box: Project, name: str, seconds: float, more: str = "") -> Any:
    return box.run("apply", spec(box, name, seconds, more), "--yes")


def status(box: Project, run: str) -> str:
    return str(box.job(run)["status"])


def test_the_second_run_waits_in_line_and_starts_when_the_first_ends(box: Project) -> None:
    assert apply(box, "first", 100).returncode == 0
    until(lambda: status(box, "first") == "in progress")
    planned = box.run("plan", spec(box, "second", 0))
    assert "wait in line" in planned.stdout
    assert "held by run first" in planned.stdout
    applied = apply(box, "second", 0)
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert status(box, "second") == "enqueued"
    assert "enqueued" in box.run("list").stdout
    assert len(box.starts()) == 1
    assert box.run("stop", "first", "--yes").returncode == 0
    until(lambda: status(box, "second") == "succeeded", 30)
    assert len(box.starts()) == 2


def test_the_log_of_a_run_in_line_is_followed_into_its_command(box: Project) -> None:
    assert apply(box, "first", 100).returncode == 0
    until(lambda: status(box, "first") == "in progress")
    box.write("echo it went", "second", CARD, "second.yaml")
    assert box.run("apply", "second.yaml", "--yes").returncode == 0
    assert status(box, "second") == "enqueued"
    following = box.popen("logs", "-f", "second")
    assert box.run("stop", "first", "--yes").returncode == 0
    out, said = following.communicate(timeout=60)
    assert (following.returncode, "it went" in out, "the setup ended" in said) == (0, True, False), (out, said)


def test_wait_0_is_refused_while_the_card_is_held_and_nothing_starts(box: Project) -> None:
    assert apply(box, "first", 100).returncode == 0
    until(lambda: status(box, "first") == "in progress")
    done = apply(box, "second", 0, "queue: {wait: 0}\n")
    assert done.returncode == 5, done.stdout + done.stderr
    assert len(box.starts()) == 1


@pytest.mark.parametrize("victims", [("keeper",), ("keeper", "work.py")], ids=["keeper", "keeper and command"])
def test_a_killed_holder_gives_the_card_up_exactly_when_its_command_is_gone(
    box: Project, victims: tuple[str, ...]
) -> None:
    assert apply(box, "first", 100).returncode == 0
    until(lambda: status(box, "first") == "in progress", 60)
    job = box.job("first")["job_id"]
    assert apply(box, "second", 0).returncode == 0
    for word in victims:
        box.kill(*((word, job) if word == "keeper" else (word,)), how=signal.SIGKILL)
    if len(victims) == 1:
        assert status(box, "second") == "enqueued"
        box.kill("work.py", how=signal.SIGKILL)
    until(lambda: status(box, "second") == "succeeded", 60)
    assert status(box, "first") == "unknown"
    assert os.path.exists("/run/lock/aicrun/v1/GPU-acac.lock")


def test_a_drained_machine_is_told_everywhere_and_the_run_starts_when_that_is_lifted(box: Project) -> None:
    drained = box.run("machines", "drain", "--why", "new power supply")
    assert drained.returncode == 0, drained.stderr
    assert "No new run of any account starts there. 0 jobs go on, 0 wait in line." in drained.stdout
    assert "s ago: new power supply" in box.run("machines").stdout
    planned = box.run("plan", spec(box, "first", 0))
    assert "wait in line for here[0]" in planned.stdout
    assert "drained by root" in planned.stdout
    applied = apply(box, "first", 0)
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert "waits     this machine is drained by root: new power supply" in applied.stdout + applied.stderr
    assert "drained, 1st" in box.run("list").stdout
    assert "drained by root" in box.run("inspect", "first").stdout
    read = json.loads(box.run("machines", "--json", "drain", "--off").stdout)
    assert (read["kind"], read["machine"], read["drained"], read["waiting"]) == ("drain", "here", False, 1)
    assert sorted(read) == ["drain", "drained", "going", "kind", "machine", "schema_version", "waiting"]
    until(lambda: status(box, "first") == "succeeded", 60)


def test_a_run_without_a_card_is_refused_on_a_drained_machine(box: Project) -> None:
    assert box.run("machines", "drain", "here").returncode == 0
    box.write("python3 work.py 0", "plain")
    planned = box.run("plan", "run.yaml")
    assert planned.returncode == 5
    assert "aicrun machines drain here --off" in planned.stdout
    assert box.run("machines", "drain", "here", "--off").returncode == 0
    assert box.run("plan", "run.yaml").returncode == 0


def test_a_machine_that_was_drained_between_plan_and_start_is_planned_again(box: Project) -> None:
    """A saved plan is refused; an apply looks once more, and finds that nothing there takes the run now."""
    box.write("python3 work.py 0", "plain")
    assert box.run("plan", "run.yaml", "-o", "plan.json").returncode == 0
    assert box.run("machines", "drain", "--why", "moving house").returncode == 0
    stale = box.run("apply", "plan.json", "--yes")
    assert stale.returncode == 9, stale.stdout + stale.stderr
    assert "drained by root" in stale.stdout + stale.stderr
    refused = box.run("apply", "run.yaml", "--yes")
    assert refused.returncode == 5
    assert box.starts() == []
