"""Many machines are asked, and some take the connection and then say nothing more, each at another place on the way.

Whoever asks waits no longer than the deadline, hears all others, and can leave at any moment; nothing stays behind.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from agent_rig import command_line
from ssh.relay import Relay
from ssh_rig import SSHD, USER, Sshd, below
from support import Person, end_processes_with, processes_with, until
from terminal import CTRL_C, aicrun

from aicrun.hosts.connect import connect
from aicrun.hosts.ssh_route import VARIABLE
from aicrun.lifecycle.ledger import Ledger
from aicrun.lifecycle.session import Session
from aicrun.lifecycle.survey import survey
from aicrun.spec.model import Inventory, Machine, SshReach
from aicrun.wire.jobs import Client

# Long for a machine that answers, short beside what each of these would take to be given up by itself.
DEADLINE_S = 12.0
GIVEN_UP_S = 40.0

# How many bytes pass before the way falls silent.
MUTE_AFTER = {"accept": 0, "banner": 100, "kex": 1700}
# What the machine itself does instead of going on.
OPTIONS = {
    "auth": f"AuthorizedKeysCommand /usr/bin/sleep 600\nAuthorizedKeysCommandUser {USER}",
    "agent": "ForceCommand exec sleep 600",
    "half": 'ForceCommand sh -c "$SSH_ORIGINAL_COMMAND" | { head -c 60; exec sleep 600; }',
}
STALLS = (*MUTE_AFTER, *OPTIONS)


class Stalled:
    """A good machine and one for each place, every one of them known under two names: over fabric and over OpenSSH."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.person = Person(folder)
        self.names: list[str] = []
        entries = []
        for place in ("good", *STALLS):
            home = folder / place / "home"
            home.mkdir(parents=True, mode=0o700)
            env = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
            daemon = Sshd(folder / place / "sshd", env=env, options=OPTIONS.get(place, "")).start()
            stack.callback(daemon.close)
            stack.callback(end_processes_with, f"HOME={home}\0")
            if place == "auth":
                # A key that is in no file is asked for by the command.
                daemon.authorized.write_text("")
            port = daemon.port
            if place in MUTE_AFTER:
                relay = Relay(daemon.port, mute_after=MUTE_AFTER[place])
                stack.callback(relay.close)
                port = relay.port
            known = daemon.known().replace(f":{daemon.port}", f":{port}")
            (daemon.folder / "known_hosts").write_text(known)
            for carrier, extra in (("fabric", ""), ("openssh", f"HostKeyAlias [127.0.0.1]:{port}")):
                self.names.append(f"{place}-{carrier}")
                entries.append(daemon.entry(self.names[-1], extra).replace(f"Port {daemon.port}", f"Port {port}"))
        self.config = folder / "ssh_config"
        self.config.write_text("\n".join(entries))
        self.person.env[VARIABLE] = str(self.config)

    def session(self, *names: str, deadline_s: float) -> Session:
        """A command's connections to those machines."""
        inventory = Inventory(tuple(Machine(name, SshReach(name)) for name in names))
        ledger = Ledger(str(self.person.home / "ledger.db"))
        return Session(inventory, connect, ledger, Client("a", "b", "0"), deadline_s=deadline_s)

    def write_inventory(self) -> None:
        """A file with all of them, for commands as they are typed."""
        lines = [f"  - {{name: {name}, ssh: {name}}}\n" for name in self.names]
        (self.person.home / "machines.yaml").write_text("version: 1\nmachines:\n" + "".join(lines))


@pytest.fixture(scope="module")
def stalled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stalled]:
    if not SSHD:
        pytest.skip("no sshd on this machine: apt-get install openssh-server")
    with ExitStack() as stack:
        found = Stalled(tmp_path_factory.mktemp("stalled"), stack)
        stack.callback(end_processes_with, found.person.mark)
        yield found


def _ssh_of_ours() -> list[int]:
    return [pid for pid in below(os.getpid()) if command_line(pid)[:1] == [b"ssh"]]


def test_a_machine_that_stalls_anywhere_holds_nobody_up(stalled: Stalled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(stalled.config))
    # The agent is there when the clock begins.
    first = stalled.session("good-fabric", deadline_s=120)
    assert survey(first, ()).machines[0].state == "answered"
    first.close()
    session = stalled.session(*stalled.names, deadline_s=DEADLINE_S)
    told: list[int] = []
    session.waiting = lambda waiting: told.append(len(waiting.missing)) if waiting else None
    began = time.monotonic()
    fleet = survey(session, ())
    session.close()
    assert time.monotonic() - began < GIVEN_UP_S
    states = {view.machine.name: view.state for view in fleet.machines}
    # One machine under two names.
    good = {"good-fabric": "answered", "good-openssh": "twin"}
    assert states == {name: good.get(name, "silent") for name in stalled.names}
    assert all(view.why for view in fleet.machines if view.state == "silent")
    assert told[-1] <= 2 * len(STALLS)
    # What was started for it goes too; each is given up by itself after a while at the latest.
    until(lambda: not _ssh_of_ours(), 60)


def test_who_has_waited_enough_leaves_at_once(stalled: Stalled) -> None:
    stalled.write_inventory()
    typed = aicrun(stalled.person, "machines")
    try:
        typed.shows("2 of 14 machines answered; waiting for accept-fabric")
        typed.type(CTRL_C)
        began = time.monotonic()
        code, shown = typed.end()
        # Long before the deadline of a question, which is half a minute.
        assert time.monotonic() - began < 12, shown
        assert code == 130, shown
        until(lambda: not processes_with(stalled.person.mark), 60)
    finally:
        typed.close()
