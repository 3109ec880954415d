"""The commands a person types, on a machine that only ssh reaches, over each carrier."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from integration.project import Project
from ssh.conftest import OPENSSH
from ssh_rig import Sshd
from support import Person, end_processes_with, until

from aicrun.hosts.ssh_route import VARIABLE


@dataclass
class Far:
    """A person with a project, and a machine `box` whose home is another one."""

    project: Project
    home: Path
    daemon: Sshd

    def json(self, *words: str) -> dict[str, object]:
        """The one document of a command."""
        done = self.project.run(*words, "--json")
        return dict(json.loads(done.stdout))


@pytest.fixture
def far(daemon: Sshd, carrier: str, tmp_path: Path) -> Iterator[Far]:
    client = tmp_path / "client"
    client.mkdir(mode=0o700)
    person = Person(client)
    project = Project(person)
    (project.folder / "machines.yaml").write_text("version: 1\nmachines:\n  - {name: box, ssh: box}\n")
    # Anything that only OpenSSH understands makes it the carrier.
    more = f"HostKeyAlias [127.0.0.1]:{daemon.port}" if carrier == OPENSSH else ""
    person.env[VARIABLE] = str(daemon.write_client(extra=more))
    home = tmp_path / "home"
    yield Far(project, home, daemon)
    end_processes_with(f"HOME={home}\0")


def test_a_run_from_the_plan_to_its_checkpoint(far: Far) -> None:
    far.project.write()
    plan = far.project.run("plan")
    assert (plan.returncode, "Plan: 1 to start" in plan.stdout) == (0, True), plan.stdout + plan.stderr
    applied = far.project.run("apply", "--follow", "--yes")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert "step 2/2 loss=0.4" in applied.stderr
    assert (next((far.home / "kept").iterdir()) / "model.bin").read_text() == "weights"
    assert not (far.project.person.home / "kept").exists()
    assert "step 1/2" in far.project.run("logs", "quick").stdout
    assert "succeeded" in far.project.run("list").stdout
    assert far.project.run("apply", "--yes").returncode == 0
    assert len((far.home / "starts").read_text().split()) == 1


def test_a_run_outlives_the_connection_and_is_stopped_later(far: Far) -> None:
    far.project.write(command="python3 work.py 60")
    following = far.project.popen("apply", "--follow", "--yes")
    until(lambda: (far.home / "starts").exists(), 40)
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=30)
    assert following.returncode == 130
    far.daemon.close()
    gone = far.project.run("list")
    assert gone.returncode == 6, gone.stdout + gone.stderr
    far.daemon.start()
    shown = far.project.run("list")
    assert "in progress" in shown.stdout, shown.stdout + shown.stderr
    assert far.project.run("stop", "quick", "--yes").returncode == 0
    assert far.project.run("wait", "quick").returncode == 11


def test_doctor_names_the_carrier(far: Far, carrier: str) -> None:
    done = far.project.run("doctor", "box")
    assert f"by {'OpenSSH' if carrier == OPENSSH else 'fabric'}" in done.stdout, done.stdout + done.stderr
