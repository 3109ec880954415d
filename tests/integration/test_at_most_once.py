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


def test_two_replaces_at_once_stop_the_old_job_and_start_one_new_one(project: Project) -> None:
    project.write("python3 work.py 900")
    assert project.apply().returncode == 0
    first = project.running()["job_id"]
    project.write("python3 work.py 61")
    clients = [project.popen("apply", "run.yaml", "--yes", "--replace") for _ in range(2)]
    ended = [(client.communicate(timeout=120), client.returncode) for client in clients]
    assert sorted(code for _, code in ended) in ([0, 0], [0, 8]), [out + err for (out, err), _ in ended]
    assert project.job(first)["status"] == "stopped"
    assert len(project.starts()) == 2
    assert project.job()["status"] == "in progress"
    assert project.run("stop", "quick", "--yes").returncode == 0


def test_forgetting_an_unknown_end_starts_it_as_if_it_had_never_been(project: Project) -> None:
    project.write("python3 work.py 900")
    assert project.apply().returncode == 0
    project.running()
    project.kill("keeper")
    project.kill("pump")
    project.kill("work.py")
    assert project.run("wait", "quick", "--timeout", "30s").returncode == 12
    project.write("python3 work.py 900")
    assert project.apply().returncode == 8
    assert project.apply("--forget").returncode == 0
    assert len(project.starts()) == 2
    assert project.run("stop", "quick", "--yes").returncode == 0
