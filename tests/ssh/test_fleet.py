"""Several machines behind ssh, each with a home, a daemon and cards of its own: what an apply does between them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_nvml.driver import FakeDriver, can_be_built
from integration.project import Project
from private_locks import emptied, made_private
from ssh_rig import Sshd
from support import Person, end_processes_with, until

from aicrun import api
from aicrun.hosts.ssh_route import VARIABLE

CARD = """
driver 570.124.06
cuda 12080
card GPU-{name} NVIDIA RTX A6000
  total 49140
  reserved 600
  bus 00000000:41:00.0
"""
NAMES = ("lab", "attic")


class Box:
    """One machine of the fleet, with one card."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.home = name, folder / name / "home"
        self.home.mkdir(parents=True, mode=0o700)
        self.card = CARD.format(name=f"{name}-{folder.parent.name}")
        self.driver = FakeDriver(folder / name / "driver", self.card)
        env = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", **self.driver.env}
        self.sshd = Sshd(folder / name / "sshd", env=env)
        self._strangers: list[subprocess.Popen[bytes]] = []

    def use(self) -> None:
        """A process that stands in no line takes the card."""
        stranger = subprocess.Popen(["sleep", "600"])
        self._strangers.append(stranger)
        self.driver.write(self.card + f"  holder {stranger.pid} compute 40000\n")

    def free(self) -> None:
        """Nobody is on the card any more."""
        self.driver.write(self.card)
        while self._strangers:
            stranger = self._strangers.pop()
            stranger.kill()
            stranger.wait()

    def starts(self) -> list[str]:
        """The job ids of every command that was ever started here."""
        path = self.home / "starts"
        return path.read_text().split() if path.exists() else []

    def close(self) -> None:
        self.free()
        self.sshd.close()
        end_processes_with(f"HOME={self.home}\0")


class Fleet:
    """A person with a project and an inventory of several machines."""

    def __init__(self, folder: Path) -> None:
        self.boxes = {name: Box(folder, name) for name in NAMES}
        self.lab, self.attic = self.boxes["lab"], self.boxes["attic"]
        client = folder / "client"
        client.mkdir(mode=0o700)
        person = Person(client)
        self.project = Project(person)
        entries, known = [], []
        for name, box in self.boxes.items():
            box.sshd.write_client(name)
            box.sshd.start()
            entries.append(box.sshd.entry(name))
            known.append(box.sshd.known())
        (folder / "ssh_config").write_text("\n".join(entries))
        person.env[VARIABLE] = str(folder / "ssh_config")
        lines = [f"  - {{name: {name}, ssh: {name}}}\n" for name in NAMES]
        (self.project.folder / "machines.yaml").write_text("version: 1\nmachines:\n" + "".join(lines))

    def apply(self, *more: str, seconds: float = 600) -> str:
        """Apply a run that asks for one card; what was printed."""
        self.project.write(f"python3 work.py {seconds}", "sft", "machine: {gpu: {vram: 8GiB}}\n")
        done = self.project.run("apply", "--yes", *more)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout + done.stderr)

    def run(self) -> Any:
        return self.project.job("sft")

    def starts(self) -> dict[str, int]:
        return {name: len(box.starts()) for name, box in self.boxes.items()}

    def close(self) -> None:
        for box in self.boxes.values():
            box.close()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    if not can_be_built() or not made_private():
        pytest.skip("no C compiler for the simulated driver, or no lock folder of the test's own")
    some = Fleet(tmp_path)
    yield some
    some.close()
    emptied()


def test_a_waiting_run_moves_to_a_card_that_came_free_elsewhere_and_starts_once(fleet: Fleet) -> None:
    fleet.lab.use()
    fleet.attic.use()
    assert "wait in line for lab[0]" in fleet.apply()
    waiting = fleet.run()["job_id"]
    fleet.attic.free()
    told = fleet.apply()
    assert "move from the line of lab[0] to attic[0]" in told
    assert f"job {waiting} left the line of lab" in told
    until(lambda: fleet.attic.starts())
    fleet.lab.free()
    assert "keep, in progress on attic[0]" in fleet.apply()
    assert fleet.starts() == {"lab": 0, "attic": 1}
    assert fleet.project.json("inspect", waiting)["status"] == "rejected"


def test_a_waiting_run_that_starts_at_the_very_moment_stays_where_it_is(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.lab.use()
    fleet.attic.use()
    fleet.apply()
    waiting = fleet.run()["job_id"]
    fleet.attic.free()
    for name, value in fleet.project.person.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(fleet.project.folder)
    with api.open_session() as (session, _):
        planned = api.plan(session, api.load(["run.yaml"]).specs)
        assert planned.plan.runs[0].sign is api.Sign.MOVE
        fleet.lab.free()
        until(lambda: fleet.lab.starts())
        (outcome,) = api.apply(session, planned)
    assert outcome.found is not None and outcome.adopted
    assert (outcome.found.machine, outcome.found.report.job_id) == ("lab", waiting)
    assert fleet.starts() == {"lab": 1, "attic": 0}


def test_a_run_is_replaced_on_another_machine_than_the_one_it_goes_on_on(fleet: Fleet) -> None:
    fleet.apply()
    until(lambda: fleet.lab.starts())
    old = fleet.run()["job_id"]
    told = fleet.apply("--replace", "--set", "machine.name=attic", seconds=500)
    assert f"job {old}: stopped" in told
    until(lambda: fleet.attic.starts())
    assert fleet.starts() == {"lab": 1, "attic": 1}
    assert "in progress on attic[0]" in fleet.apply(seconds=500)
    # The name means the run that goes on, then the one that ended last; the old one is known by its id.
    assert (fleet.run()["status"], fleet.project.job(old)["status"]) == ("in progress", "stopped")
    stopped = fleet.project.run("stop", "sft", "--yes", "--grace", "0s")
    assert (stopped.returncode, fleet.run()["job_id"] == old) == (0, False), stopped.stderr


def test_a_silent_machine_is_told_as_it_was_last_seen_and_a_plan_may_ask_nobody(fleet: Fleet) -> None:
    fleet.project.write("python3 work.py", "sft", "machine: {gpu: {vram: 8GiB}}\n")
    never = fleet.project.run("plan", "--offline")
    assert (never.returncode, "never seen by this client" in never.stdout) == (6, True), never.stdout
    assert fleet.project.run("machines").returncode == 0
    fleet.attic.sshd.close()
    listed = fleet.project.run("machines").stdout
    assert "last seen" in listed and "ago with RTX A6000" in listed
    planned = fleet.project.run("plan")
    assert planned.returncode == 6
    assert "ago with RTX A6000" in " ".join(planned.stdout.split())
    fleet.lab.sshd.close()
    read = fleet.project.run("plan", "--offline")
    assert read.returncode == 0, read.stdout + read.stderr
    assert "start on lab[0]" in read.stdout
    assert "Offline: no machine was asked, this is" in read.stdout
    assert "aicrun apply" not in read.stdout
    told = fleet.project.json("plan", "--offline")["fleet"]
    assert (told["offline"], [one["state"] for one in told["machines"]]) == (True, ["remembered", "remembered"])
    assert fleet.project.run("plan", "--offline", "-o", "plan.json").returncode == 3
