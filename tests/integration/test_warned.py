"""Where the warnings of a file are told: below the plan, never before its answer, and always once."""

from __future__ import annotations

import subprocess
import sys

import pytest
from integration.project import Project
from support import REPOSITORY


def together(project: Project, *args: str) -> tuple[int, str]:
    """What a person at one screen sees of both streams, in order."""
    done = subprocess.run(
        [sys.executable, "-m", "aicrun", *args],
        cwd=project.folder,
        env=dict(project.person.env, PYTHONPATH=str(REPOSITORY)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout


def warned(project: Project) -> None:
    project.write("source env/bin/activate; python3 work.py", more="checkpoints: {path: out}\n")


def test_the_answer_comes_first_and_the_warnings_before_the_count(project: Project) -> None:
    warned(project)
    code, shown = together(project, "plan", "run.yaml")
    assert code == 0
    assert shown.startswith("+ quick: start on here")
    assert shown.count("warning[AIC-") >= 1
    assert shown.index("  in order\n") < shown.index("\n\nwarning[AIC-") < shown.index("\n\nPlan: 1 to start.")


def test_nothing_to_do_counts_the_warnings_and_names_what_shows_them(project: Project) -> None:
    project.write("python3 work.py || source env/bin/activate", more="checkpoints: {path: out}\n")
    code, shown = together(project, "apply", "run.yaml", "--yes", "--follow")
    assert code == 0, shown
    assert shown.count("warning[AIC-") >= 1
    code, shown = together(project, "apply", "run.yaml", "--yes")
    assert (code, shown.count("warning[AIC-")) == (0, 0)
    assert shown.startswith("= quick: keep, succeeded ")
    assert " of the files: aicrun validate run.yaml\n\nNothing to do." in shown
    assert "warning[AIC-" in together(project, "plan", "run.yaml", "-v")[1]


@pytest.mark.parametrize("args", [("plan", "run.yaml", "--except", "nobody"), ("plan", "run.yaml", "--json")])
def test_an_error_or_a_document_takes_no_warning_away(project: Project, args: tuple[str, ...]) -> None:
    warned(project)
    told = project.run(*args).stderr
    assert told.startswith("warning[AIC-")
    assert told.count("activate") >= 1
