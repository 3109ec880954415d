"""What an agent's start may cost: the modules that it brings along, in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support import P38, REPOSITORY

# Each of these is milliseconds of every command of a client; a call that needs one imports it by itself.
TOO_DEAR = {"dataclasses", "inspect"}
# Every command waits for these two: to be asked, and the smallest of answers.
FIRST = ("serve", "store")
TOO_DEAR_FIRST = {*TOO_DEAR, "hashlib", "random", "secrets", "shutil", "socket", "subprocess", "tempfile", "threading"}
TOO_DEAR_FIRST |= {"traceback", "runpy", "aicrun.wire.jobs"}
# A run waits for its setup, which mostly has nothing to build.
SETUP = ("envs",)
TOO_DEAR_SETUP = {*TOO_DEAR, "hashlib", "shutil", "subprocess", "aicrun.agent.launch", "aicrun.agent.requirements"}
ROLES = ("keeper", "stopper", "telemetry", "reserve", "jobs", "survey", "logs", "decide")


@pytest.mark.parametrize("python", [sys.executable, *([P38] if P38 else [])])
@pytest.mark.parametrize(("rooms", "dear"), [(FIRST, TOO_DEAR_FIRST), (SETUP, TOO_DEAR_SETUP), (ROLES, TOO_DEAR)])
def test_a_role_starts_without_what_is_dear(python: str, rooms: tuple[str, ...], dear: set[str]) -> None:
    for room in rooms:
        script = f"import sys, aicrun.agent.{room}; print(*sorted(set(sys.modules) & {dear!r}))"
        ran = subprocess.run(
            [python, "-S", "-c", script], cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False
        )
        assert (ran.returncode, ran.stdout.split()) == (0, []), f"{room}: {ran.stderr}"
