"""Applying many times, at once or after a client was killed, gives one job and loses none."""

from __future__ import annotations

import random
import subprocess

import pytest
from integration.project import Project
from support import until


def test_twelve_applies_at_once_start_one_job(project: Project) -> None:
    project.write("python3 work.py 2")
    clients = [project.popen("apply", "run.yaml", "--yes") for _ in range(12)]
    ended = [(client.communicate(timeout=120), client.returncode) for client in clients]
    assert [code for _, code in ended] == [0] * 12, [out + err for (out, err), code in ended if code]
    assert project.run("wait", "quick").returncode == 0
    assert len(project.starts()) == 1
    assert len(project.json("list", "--all")["jobs"]) == 1


@pytest.mark.parametrize("seed", range(6))
def test_a_client_killed_at_any_moment_loses_nothing_and_starts_nothing_twice(project: Project, seed: int) -> None:
    project.write("python3 work.py 1")
    project.run("machines")
    moment_s = random.Random(seed).uniform(0.05, 0.9)
    client = project.popen("apply", "run.yaml", "--yes")
    try:
        client.wait(timeout=moment_s)
    except subprocess.TimeoutExpired:
        client.kill()
    client.communicate(timeout=10)
    done = project.apply("--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(project.starts()) == 1
    assert project.job()["status"] == "succeeded"


def test_a_killed_client_leaves_no_half_made_job(project: Project) -> None:
    project.write("python3 work.py 1")
    client = project.popen("apply", "run.yaml", "--yes")
    until(lambda: (project.person.home / ".local/state/aicrun/ledger.db").exists())
    client.kill()
    client.communicate(timeout=10)
    assert project.apply("--follow").returncode == 0
    assert len(project.starts()) == 1
    assert all(job["status"] in ("succeeded", "rejected") for job in project.json("list", "--all")["jobs"])
