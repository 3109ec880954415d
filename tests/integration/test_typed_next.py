"""The commands that aicrun says to type next, typed: each does what the screen above it says."""

from __future__ import annotations

import shlex
import subprocess

from integration.project import Project


def offered(project: Project, done: subprocess.CompletedProcess[str], verb: str) -> subprocess.CompletedProcess[str]:
    """Type the `aicrun VERB …` that a command offered."""
    said = done.stdout + done.stderr
    line = next(line for line in said.splitlines() if f"aicrun {verb} " in line)
    return project.run(*shlex.split(line.split("aicrun ", 1)[1]))


def test_an_older_run_that_was_named_by_its_id_keeps_that_name_in_what_is_offered(project: Project) -> None:
    project.write(more="checkpoints: {path: out}\n")
    assert project.apply("--follow").returncode == 0
    older = project.job()
    project.write("python3 work.py 0", more="checkpoints: {path: out}\n")
    done = project.apply("--follow")
    assert done.returncode == 0 and "changed since its last job, succeeded " in done.stdout
    assert project.job()["run_id"] != older["run_id"]
    key = older["run_id"][:8]
    for looked in (project.run("checkpoints", key), project.run("wait", key)):
        assert f"aicrun fetch {key}" in looked.stdout
        assert "aicrun fetch quick" not in looked.stdout
    project.person.env["COLUMNS"] = "140"
    wide = project.run("list").stdout.splitlines()
    assert [line.split().count(key) for line in wide[:3]] == [0, 0, 1]
    assert offered(project, project.run("wait", key), "fetch").returncode == 0


def test_what_a_plan_of_several_files_offers_is_about_all_of_them(project: Project) -> None:
    for name in ("one", "two", "six"):
        project.write(f"python3 work.py 0 {int(name == 'six')}", name=f"run-{name}", file=f"{name}.yaml")
    files = ("one.yaml", "two.yaml", "six.yaml")
    planned = project.run("plan", *files, "--set", "env.LR=1 e")
    assert "aicrun apply one.yaml two.yaml six.yaml --set 'env.LR=1 e'\n" in planned.stdout
    assert project.run("apply", "six.yaml", "--set", "env.LR=1 e", "--yes", "--follow").returncode == 10
    planned = project.run("plan", *files, "--set", "env.LR=1 e")
    assert planned.returncode == 8
    line = next(line for line in planned.stdout.splitlines() if "aicrun apply " in line)
    started = project.run(*shlex.split(line.split("aicrun ", 1)[1]), "--yes", "--no-wait")
    assert started.returncode == 0, started.stdout + started.stderr
    assert {project.run("wait", run).returncode for run in ("run-one", "run-two")} == {0}


def test_a_delete_says_which_job_goes_and_which_stay(project: Project) -> None:
    project.write(more="checkpoints: {path: out}\n")
    assert project.apply("--follow").returncode == 0
    first = project.job()["job_id"]
    assert project.apply("--again", "--follow").returncode == 0
    second = project.job()["job_id"]
    asked = project.run("delete", "quick")
    assert f"(job {second}, succeeded; 1 other job of it stays)" in asked.stderr
    gone = project.run("delete", "quick", "--yes")
    assert f"deleted the records and logs of quick, job {second}" in gone.stdout
    assert "1 other job of quick stays:" in gone.stdout and f"aicrun delete {first[:8]}\n" in gone.stdout
    last = project.run("delete", first[:8], "--yes")
    assert last.returncode == 0 and "other job" not in last.stdout
