"""What the ssh suite shares: a daemon, and one way after the other to reach it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ssh.trapped import BOUND_S, Trapped, said
from ssh_rig import SSHD, Sshd
from ssh_ways import CHOSEN, FABRIC, OPENSSH, WAYS, Host, Way, laid
from support import until

from aicrun.hosts.ssh_route import VARIABLE
from aicrun.hosts.transport import Transport


@pytest.fixture(autouse=True)
def needs_sshd() -> None:
    """Nothing here can be tried without a daemon."""
    if not SSHD:
        pytest.skip("no sshd on this machine: apt-get install openssh-server")


@pytest.fixture(params=[FABRIC, OPENSSH])
def carrier(request: pytest.FixtureRequest) -> str:
    """Each carrier in turn."""
    return str(request.param)


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    """A running daemon, known to a client configuration as `box`; its sessions have a home of their own."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    found = Sshd(tmp_path / "sshd", env={"HOME": str(home), "PATH": "/usr/bin:/bin"})
    monkeypatch.setenv(VARIABLE, str(found.write_client()))
    found.start()
    yield found
    found.close()


@pytest.fixture(params=CHOSEN)
def way(request: pytest.FixtureRequest) -> Way:
    """Each way that goes through whole suites, in turn."""
    return WAYS[request.param]


@pytest.fixture
def host(way: Way) -> Iterator[Host]:
    """A machine `box`, reached by that way."""
    with laid(way) as found:
        yield found


@pytest.fixture
def short(tmp_path: Path) -> Iterator[Path]:
    """A folder that other accounts may enter, with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="aic-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def over(carrier: str, alias: str = "box") -> Transport:
    """The transport to `alias` over one certain carrier."""
    return WAYS[carrier].transport(alias)


@pytest.fixture(scope="session", params=[FABRIC, OPENSSH])
def trapped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trapped]:
    """A machine with a trap on the way to it, over each carrier, where a run of the person goes on: `bystander`."""
    if not SSHD:
        pytest.skip("no sshd on this machine: apt-get install openssh-server")
    found = Trapped(tmp_path_factory.mktemp("trapped"), request.param)
    try:
        found.write("bystander")
        done = found.project.run("apply", "run.yaml", "--yes", timeout_s=BOUND_S)
        assert done.returncode == 0, said(done)
        until(lambda: found.starts("bystander"), 60)
        yield found
    finally:
        found.close()
