"""A person with two laptops: the second has ssh and the inventory, nothing else, and sees and steers the same run.

Each reaches the machine over another carrier, so that what one of them did is seen by the other one's.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from integration.project import Project
from ssh_ways import FABRIC, OPENSSH, WAYS, Host, laid
from support import Person, until

from aicrun.hosts.ssh_route import VARIABLE


@dataclass
class Desk:
    """Two laptops and the machine."""

    first: Project
    second: Project
    host: Host

    def starts(self) -> list[str]:
        """The job of every command that was ever started there."""
        path = self.host.home / "starts"
        return path.read_text().split() if path.exists() else []


def laptop(folder: Path, name: str, config: Path) -> Project:
    home = folder / name
    home.mkdir(mode=0o700)
    person = Person(home)
    person.env |= {"USER": name, VARIABLE: str(config)}
    project = Project(person)
    (project.folder / "machines.yaml").write_text("version: 1\nmachines:\n  - {name: box, ssh: box}\n")
    return project


@pytest.fixture(params=[FABRIC, OPENSSH])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    with laid(WAYS[request.param]) as host:
        # Anything that only OpenSSH understands makes it the carrier.
        alias = f"HostKeyAlias [127.0.0.1]:{host.daemon.port}" if request.param == FABRIC else ""
        other = tmp_path / "other_config"
        other.write_text(host.daemon.entry("box", alias))
        found = Desk(laptop(tmp_path, "first", host.config), laptop(tmp_path, "second", other), host)
        for project, carrier in ((found.first, request.param), (found.second, OPENSSH if alias else FABRIC)):
            project.write(command="python3 work.py 900")
            said = project.run("doctor", "box").stdout
            assert f"by {'OpenSSH' if carrier == OPENSSH else 'fabric'}" in said, said
        yield found


def test_the_second_laptop_sees_and_steers_the_same_run(desk: Desk) -> None:
    applied = desk.first.run("apply", "--yes")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    (job,) = until(desk.starts, 60)
    # The first one is gone with all that it remembered.
    for left in (".local", ".config", ".cache"):
        shutil.rmtree(desk.first.person.home / left, ignore_errors=True)

    assert "in progress" in desk.second.run("list").stdout
    assert desk.second.job()["job_id"] == job
    following = desk.second.popen("logs", "-f", "quick", "--offset", "0")
    assert following.stdout is not None
    assert "step 1/2" in following.stdout.readline()
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=60)
    assert following.returncode == 130

    again = desk.second.run("apply", "--yes")
    assert (again.returncode, "= quick" in again.stdout) == (0, True), again.stdout + again.stderr
    desk.second.write(command="python3 work.py 901")
    changed = desk.second.run("apply", "--yes")
    assert (changed.returncode, "command" in changed.stdout) == (8, True), changed.stdout + changed.stderr
    desk.second.write(command="python3 work.py 900")

    assert desk.second.run("stop", "quick", "--yes", "--grace", "0s").returncode == 0
    for project in (desk.first, desk.second):
        assert project.run("wait", "quick").returncode == 11
        assert "stopped" in project.run("list").stdout
        kept = project.run("apply", "--yes")
        assert "start on box" not in kept.stdout, kept.stdout
    assert desk.starts() == [job]


@pytest.mark.parametrize("desk", [FABRIC], indirect=True)
def test_two_laptops_that_apply_at_once_start_it_once(desk: Desk) -> None:
    both = [project.popen("apply", "--yes") for project in (desk.first, desk.second)]
    told = [process.communicate(timeout=120) for process in both]
    # One started it. The other met it standing, or in the making: busy, or a plan that went stale; never a second one.
    codes = sorted(process.returncode for process in both)
    assert codes[0] == 0, told
    assert codes[1] in (0, 7, 8, 9), told
    (job,) = until(desk.starts, 60)
    for project in (desk.first, desk.second):
        assert project.run("apply", "--yes").returncode == 0
        assert project.job()["job_id"] == job
    assert desk.first.run("stop", "quick", "--yes", "--grace", "0s").returncode == 0
    assert desk.second.run("wait", "quick").returncode == 11
    assert desk.starts() == [job]
