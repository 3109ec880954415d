"""A network that says nothing any more: noticed in the time that is configured, and told; a slow one is no fault."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from ssh.conftest import FABRIC, over
from ssh.relay import Relay
from ssh_rig import Sshd

from aicrun.hosts.ssh_route import VARIABLE
from aicrun.hosts.transport import Transport


@pytest.fixture
def relay(daemon: Sshd, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    """What stands before the daemon; silence is noticed within seven seconds."""
    found = Relay(daemon.port)
    config = daemon.write_client(extra="ServerAliveInterval 1\nServerAliveCountMax 6")
    config.write_text(config.read_text().replace(f"Port {daemon.port}", f"Port {found.port}"))
    known = daemon.folder / "known_hosts"
    known.write_text(known.read_text().replace(f":{daemon.port}", f":{found.port}"))
    monkeypatch.setenv(VARIABLE, str(config))
    yield found
    found.close()


@pytest.fixture
def way(relay: Relay, carrier: str) -> Iterator[Transport]:
    """The transport to the machine."""
    found = over(carrier)
    yield found
    found.close()


def test_a_silent_line_ends_a_call_that_has_no_deadline(way: Transport, relay: Relay, carrier: str) -> None:
    channel = way.open(("sh", "-c", "echo begun; exec sleep 900"))
    assert channel.stdout.readline() == b"begun\n"
    relay.drop()
    began = time.monotonic()
    assert channel.stdout.read() == b""
    assert time.monotonic() - began < 50
    fault = channel.fault()
    assert fault is not None
    assert fault.code == "AIC-E511"
    if carrier == FABRIC:
        # OpenSSH's own words are those of the shared connection, which nobody hears.
        assert ("ssh says", "nothing was heard for 6s") in fault.facts
    channel.close(0.5)


@pytest.mark.parametrize("carrier", [FABRIC])
def test_a_quiet_program_on_a_living_line_is_waited_for(way: Transport) -> None:
    channel = way.open(("sh", "-c", "sleep 9; echo done"))
    assert channel.stdout.read() == b"done\n"
    assert channel.fault() is None
    channel.close()


def test_a_line_that_stalls_while_much_is_sent_loses_nothing(way: Transport, relay: Relay) -> None:
    channel = way.open(("wc", "-c"))
    relay.stall(1.6)
    for _ in range(8):
        channel.stdin.write(b"x" * 1024 * 1024)
    channel.stdin.close()
    assert channel.stdout.read().split() == [str(8 * 1024 * 1024).encode()]
    channel.close()
