"""A connection that breaks anywhere in an apply: nothing starts twice, nothing is lost, the next command is right."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from integration.project import Project
from ssh.conftest import FABRIC, OPENSSH
from ssh.relay import Relay
from ssh_rig import Sshd
from support import Person, end_processes_with, until

from aicrun.hosts.ssh_route import VARIABLE

CUTS = int(os.environ.get("AICRUN_CUTS", "3"))
# What an apply may end with when its connection breaks: the machine is silent, or it is not known what became of it.
HONEST = (6, 8, 12)


@dataclass
class Far:
    """A person whose machine `box` stands behind a relay."""

    project: Project
    home: Path
    relay: Relay

    def starts(self) -> list[str]:
        """The job of every command that was ever started."""
        path = self.home / "starts"
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def far(daemon: Sshd, carrier: str, tmp_path: Path) -> Iterator[Far]:
    client = tmp_path / "client"
    client.mkdir(mode=0o700)
    person = Person(client)
    project = Project(person)
    relay = Relay(daemon.port)
    (project.folder / "machines.yaml").write_text("version: 1\nmachines:\n  - {name: box, ssh: box}\n")
    config = daemon.write_client(extra="ServerAliveInterval 1\nServerAliveCountMax 2" if carrier == OPENSSH else "")
    more = "" if carrier != OPENSSH else f"  HostKeyAlias [127.0.0.1]:{relay.port}\n"
    config.write_text(config.read_text().replace(f"Port {daemon.port}", f"Port {relay.port}") + more)
    known = daemon.folder / "known_hosts"
    known.write_text(known.read_text().replace(f":{daemon.port}", f":{relay.port}"))
    person.env[VARIABLE] = str(config)
    yield Far(project, tmp_path / "home", relay)
    relay.close()
    end_processes_with(f"HOME={tmp_path / 'home'}\0")


def applied(far: Far, name: str) -> int:
    """One whole apply of a run that lives until it is stopped; the bytes that passed."""
    before = far.relay.passed
    far.project.write(command="python3 work.py 900", name=name)
    done = far.project.run("apply", "run.yaml", "--yes", timeout_s=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return far.relay.passed - before


def test_an_apply_that_is_cut_anywhere_starts_once(far: Far) -> None:
    # The first one brings the agent; the second tells how much an apply takes.
    applied(far, "first")
    whole = applied(far, "second")
    for number in range(CUTS):
        name = f"cut-{number}"
        far.project.write(command="python3 work.py 900", name=name)
        far.relay.budget = max(1, whole * (number + 1) // (CUTS + 1))
        cut = far.project.run("apply", "run.yaml", "--yes", timeout_s=120)
        far.relay.heal()
        assert cut.returncode in (0, *HONEST), f"{number}: {cut.returncode}\n{cut.stdout}{cut.stderr}"
        assert "Traceback" not in cut.stderr
        again = far.project.run("apply", "run.yaml", "--yes", timeout_s=120)
        assert again.returncode == 0, f"{number}: {again.returncode}\n{again.stdout}{again.stderr}"
        until(lambda expected=number + 3: len(far.starts()) == expected, 30)
    assert len(set(far.starts())) == CUTS + 2
    assert far.project.run("list").stdout.count("in progress") == CUTS + 2


def test_a_log_that_is_followed_through_a_cut_has_no_gap(far: Far) -> None:
    lines = 2000
    far.project.write(command=f"sh -c 'for i in $(seq {lines}); do echo line $i; sleep 0.002; done'", name="talker")
    assert far.project.run("apply", "--yes").returncode == 0
    far.relay.budget = 40_000
    following = far.project.popen("logs", "-f", "talker", "--offset", "0")
    until(lambda: far.relay.budget == 0, 60)
    far.relay.heal()
    out, err = following.communicate(timeout=120)
    numbers = [int(line.split()[1]) for line in out.splitlines() if line.startswith("line ")]
    assert numbers == list(range(1, lines + 1)), err
    assert following.returncode == 0, err


COUNT = "find . -type f ! -name sums ! -name work.py ! -path ./out/* | wc -l"
CHECKS = f"sh -c 'sha256sum -c --quiet sums && echo all are right && {COUNT}'"


@pytest.mark.parametrize("carrier", [FABRIC], indirect=True)
def test_a_push_that_is_cut_leaves_nothing_half_and_goes_on_where_it_was(far: Far) -> None:
    """A source of many small files and a large one, cut in either."""
    applied(far, "first")
    folder = far.project.folder
    files = {f"part/{number}.txt": os.urandom(3000) for number in range(300)} | {"large.bin": os.urandom(9 << 20)}
    (folder / "part").mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "sums").write_text("".join(f"{hashlib.sha256(raw).hexdigest()}  {name}\n" for name, raw in files.items()))
    far.project.write(command=CHECKS, name="pushed", more="checkpoints: {path: out}\n")
    # Cut in the small files, and the client with it: the machine is left with what it has.
    far.relay.budget = 700_000
    gone = far.project.popen("apply", "run.yaml", "--yes")
    until(lambda: far.relay.budget == 0, 60)
    gone.kill()
    gone.communicate()
    far.relay.heal()
    assert not_what_they_are_called(far.home) == []
    assert [one["run"] for one in far.project.json("list")["jobs"]] == ["first"]
    # Cut in the large one: the same apply goes on by itself.
    before = far.relay.passed
    far.relay.budget = 4 << 20
    going = far.project.popen("apply", "run.yaml", "--yes", "--follow")
    until(lambda: far.relay.budget == 0, 60)
    assert not_what_they_are_called(far.home) == []
    far.relay.heal()
    out, err = going.communicate(timeout=120)
    assert going.returncode == 0, out + err
    assert far.project.run("logs", "pushed").stdout == f"all are right\n{len(files)}\n"
    # What had arrived was not sent again, whatever was on its way just then.
    assert far.relay.passed - before < sum(map(len, files.values())) + (3 << 20)


def not_what_they_are_called(home: Path) -> list[str]:
    """Contents of the store that have not the hash that they lie under."""
    objects = [path for path in home.rglob("store/objects/*/*") if len(path.name) == 64]
    assert objects, [str(path) for path in home.rglob("store/*")]
    return [path.name for path in objects if hashlib.sha256(path.read_bytes()).hexdigest() != path.name]
