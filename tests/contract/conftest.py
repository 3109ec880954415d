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
from ssh_rig import SSHD, Sshd
from support import P38, end_processes_with

from aicrun.hosts.agent_backend import AgentBackend
from aicrun.hosts.local import LocalTransport
from aicrun.hosts.openssh import OpenSshTransport
from aicrun.hosts.ssh import FabricTransport
from aicrun.hosts.ssh_route import VARIABLE, ask, target_of
from aicrun.hosts.transport import Transport
from aicrun.wire.jobs import Client, JobRequest

PYTHONS = {"system": "", **({"3.8": str(P38.parent)} if P38 else {})}
RUN_ID = "00000000000000bb"
# Every way in; ssh is real, over loopback.
LOCAL, FABRIC, OPENSSH = "local", "fabric", "openssh"
WAYS = (LOCAL, FABRIC, OPENSSH)


@dataclass(frozen=True)
class Account:
    """A home folder, and the ways in that a suite is run over."""

    home: Path
    env: dict[str, str]
    way: str = LOCAL
    # A job is found by its id all over the machine: no two suites that run at once may share one.
    prefix: str = field(default_factory=lambda: secrets.token_hex(6))

    def transport(self) -> Transport:
        """The way to reach this machine that is tried."""
        if self.way == LOCAL:
            return LocalTransport("here", self.env)
        route = ask(target_of("here"))
        return FabricTransport("here", route) if self.way == FABRIC else OpenSshTransport("here", route)

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
def reached(way: str, folder: Path, env: dict[str, str]) -> Iterator[Account]:
    """An account whose sessions have the environment `env`, reached by `way`; over ssh with a daemon of its own."""
    if way == LOCAL:
        yield Account(Path(env["HOME"]), env)
        return
    if not SSHD:
        pytest.skip("no sshd on this machine: apt-get install openssh-server")
    daemon = Sshd(folder / "sshd", env=env)
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(daemon.write_client("here"))
    try:
        daemon.start()
        yield Account(Path(env["HOME"]), env, way)
    finally:
        daemon.close()
        os.environ.pop(VARIABLE) if before is None else os.environ.update({VARIABLE: before})


@pytest.fixture(params=[*sorted(PYTHONS), FABRIC, OPENSSH])
def account(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Account]:
    """An account on this machine, its agent on each interpreter and each way in; what it started is gone afterwards."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    path = os.pathsep.join(filter(None, (PYTHONS.get(request.param, ""), "/usr/bin", "/bin")))
    env = {"HOME": str(home), "PATH": path}
    way = request.param if request.param in WAYS else LOCAL
    if way == LOCAL:
        env["AICRUN_HIDDEN_TOKEN"] = "hunter2hunter2"
    with reached(way, tmp_path, env) as found:
        yield found
    end_processes_with(f"HOME={home}\0")


@pytest.fixture
def backend(account: Account) -> Iterator[AgentBackend]:
    """The agent of that account."""
    found = AgentBackend(account.transport())
    yield found
    found.close()
