"""What an agent's start may cost: the modules that it brings along, in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support import P38, REPOSITORY

# Each of these is milliseconds of every command of a client; a call that needs one imports it by itself.
TOO_DEAR = {"dataclasses", "inspect"}
ROLES = ("serve", "keeper", "stopper", "telemetry", "reserve", "jobs", "survey", "logs", "decide")


@pytest.mark.parametrize("python", [sys.executable, *([P38] if P38 else [])])
def test_a_role_starts_without_what_is_dear(python: str) -> None:
    said = ""
    for role in ROLES:
        script = f"import sys, aicrun.agent.{role}; print('{role}', *sorted(set(sys.modules) & {TOO_DEAR!r}))"
        ran = subprocess.run(
            [python, "-S", "-c", script], cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False
        )
        assert ran.returncode == 0, ran.stderr
        said += ran.stdout
    assert said.splitlines() == list(ROLES)
