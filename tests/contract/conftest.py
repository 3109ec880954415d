"""The implementations that the contract suites run against, each on an account of its own with nothing left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import P38, end_processes_with

from aicrun.hosts.agent_backend import AgentBackend
from aicrun.hosts.local import LocalTransport
from aicrun.hosts.transport import Transport
from aicrun.wire.jobs import Client, JobRequest

PYTHONS = {"system": "", **({"3.8": str(P38.parent)} if P38 else {})}
RUN_ID = "00000000000000bb"


@dataclass(frozen=True)
class Account:
    """A home folder, and the ways in that a suite is run over."""

    home: Path
    env: dict[str, str]

    def transport(self) -> Transport:
        """One way to reach this machine; ssh will be another."""
        return LocalTransport("here", self.env)

    def request(self, number: int = 1, **changes: Any) -> JobRequest:
        """The request of job `number` (its last digits) of the run `sft-run`."""
        workspace = self.home / "aic-jobs/sft-run"
        fields: dict[str, Any] = {
            "job_id": f"{number:016x}",
            "run": "sft-run",
            "run_id": RUN_ID,
            "rank": "0" * 16,
            "digest": "d" * 64,
            "client": Client("ana", "laptop", "0.1.0"),
            "execution": {"command": "true"},
            "workspace": str(workspace),
            "checkpoints": str(workspace / "checkpoints" / RUN_ID),
            "command": ("true",),
            "machine": "here",
        }
        return JobRequest(**(fields | changes))


@pytest.fixture(params=sorted(PYTHONS))
def account(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Account]:
    """An account on this machine, its agent on each interpreter; whatever it started is gone afterwards."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    path = os.pathsep.join(filter(None, (PYTHONS[request.param], "/usr/bin", "/bin")))
    yield Account(home, {"HOME": str(home), "PATH": path, "AICRUN_HIDDEN_TOKEN": "hunter2hunter2"})
    end_processes_with(f"HOME={home}\0")


@pytest.fixture
def backend(account: Account) -> Iterator[AgentBackend]:
    """The agent of that account."""
    reached = AgentBackend(account.transport())
    yield reached
    reached.close()
