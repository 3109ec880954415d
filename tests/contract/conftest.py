"""The implementations that the contract suites run against, each on an account of its own with nothing left behind."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ssh_ways import CHOSEN, WAYS, laid
from support import P38, end_processes_with

from aicrun.hosts.agent_backend import AgentBackend
from aicrun.hosts.local import LocalTransport
from aicrun.hosts.ssh_route import VARIABLE
from aicrun.hosts.transport import Transport
from aicrun.wire.jobs import Client, JobRequest

PYTHONS = {"system": "", **({"3.8": str(P38.parent)} if P38 else {})}
RUN_ID = "00000000000000bb"
# Every way in; ssh is real, over loopback, one of them in every run as an ordinary user of a host with Python 3.8.
LOCAL = "local"
OVER_SSH = tuple(dict.fromkeys((*CHOSEN, "fabric-user-3.8")))


@dataclass(frozen=True)
class Account:
    """A home folder, and the ways in that a suite is run over."""

    home: Path
    env: dict[str, str]
    way: str = LOCAL
    # A job is found by its id all over the machine: no two suites that run at once may share one.
    prefix: str = field(default_factory=lambda: secrets.token_hex(6))

    @property
    def is_root(self) -> bool:
        """True where what it says counts for everybody on the machine."""
        return os.getuid() == 0 and (self.way == LOCAL or not WAYS[self.way].is_user)

    def transport(self) -> Transport:
        """The way to reach this machine that is tried."""
        return LocalTransport("here", self.env) if self.way == LOCAL else WAYS[self.way].transport("box")

    def request(self, number: int = 1, **changes: Any) -> JobRequest:
        """The request of job `number` (its last digits) of the run `sft-run`."""
        workspace = self.home / "aic-jobs/sft-run"
        fields: dict[str, Any] = {
            "job_id": f"{self.prefix}{number:04x}",
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


@contextmanager
def reached(way: str, env: dict[str, str]) -> Iterator[Account]:
    """An account reached by `way`: over ssh one of its host, here one whose sessions have the environment `env`."""
    if way == LOCAL:
        yield Account(Path(env["HOME"]), env)
        return
    before = os.environ.get(VARIABLE)
    with laid(WAYS[way]) as host:
        os.environ[VARIABLE] = str(host.config)
        try:
            yield Account(host.home, {}, way)
        finally:
            os.environ.pop(VARIABLE) if before is None else os.environ.update({VARIABLE: before})


@pytest.fixture(params=[*sorted(PYTHONS), *OVER_SSH])
def account(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Account]:
    """An account on this machine, its agent on each interpreter and each way in; what it started is gone afterwards."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    path = os.pathsep.join(filter(None, (PYTHONS.get(request.param, ""), "/usr/bin", "/bin")))
    env = {"HOME": str(home), "PATH": path, "AICRUN_HIDDEN_TOKEN": "hunter2hunter2"}
    with reached(request.param if request.param in WAYS else LOCAL, env) as found:
        yield found
    end_processes_with(f"HOME={home}\0")


@pytest.fixture
def backend(account: Account) -> Iterator[AgentBackend]:
    """The agent of that account."""
    found = AgentBackend(account.transport())
    yield found
    found.close()
