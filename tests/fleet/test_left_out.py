"""Machines that are down, asleep, excepted or silent: what is not known for it is said, and what to type instead."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts_rig import Net, possible
from integration.project import Project
from support import Person, until

from aicrun import api
from aicrun.errors import PlanRefused
from aicrun.hosts.ssh_route import VARIABLE

pytestmark = pytest.mark.skipif(bool(possible()), reason=possible())


class Trio:
    """A person and three machines: `den`, `lab`, and `home`, which sleeps and is off."""

    def __init__(self, folder: Path) -> None:
        self.net = Net(folder / "net")
        for name in ("den", "lab", "home"):
            self.net.add(name)
        client = folder / "client"
        client.mkdir(mode=0o700)
        self.project = Project(Person(client))
        self.project.person.env[VARIABLE] = str(self.net.start())
        self.net.hosts["home"].off(silent=False)
        rows = "".join(f"  - {{name: {name}, ssh: {name}}}\n" for name in ("den", "lab"))
        text = f"version: 1\nmachines:\n{rows}  - {{name: home, ssh: home, sleeps: true}}\n"
        (self.project.folder / "machines.yaml").write_text(text)

    def starts(self) -> dict[str, int]:
        return {name: len(host.starts()) for name, host in self.net.hosts.items() if host.starts()}

    def says(self, code: int, *words: str) -> str:
        """What a command says that ends with `code`, on one line; none of its own lines is wider than a terminal."""
        done: subprocess.CompletedProcess[str] = self.project.run(*words)
        told = done.stdout + done.stderr
        assert done.returncode == code, told
        wide = [line for line in told.splitlines() if len(line) > 80 and not re.search(r"aicrun |/", line)]
        assert words[0] == "inspect" or not wide, told
        return " ".join(told.split())


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    made = Trio(tmp_path_factory.mktemp("left"))
    yield made
    made.net.close()


def test_a_sleeping_machine_stops_nothing_and_the_plan_says_what_is_not_seen(trio: Trio) -> None:
    trio.project.write("python3 work.py 600", "sft", "machine: {name: [den, home]}\n")
    told = trio.says(6, "plan")
    assert "home does not answer and may hold a copy" in told
    assert "sleeps: true" not in told
    trio.project.write("python3 work.py 600", "sft")
    assert "home does not answer: a copy of sft there would not be known" in trio.says(0, "plan")
    trio.says(0, "apply", "--yes", "--set", "machine.name=den")
    until(lambda: trio.starts() == {"den": 1})


def test_a_machine_that_is_down_is_named_where_its_run_is_asked_for(trio: Trio) -> None:
    trio.says(0, "machines", "down", "den")
    told = trio.says(6, "inspect", "sft")
    assert "not asked den: down: true in machines.yaml" in told
    assert "aicrun inspect sft@den" in told
    assert "in progress" in trio.says(0, "inspect", "sft@den")
    assert "den was not asked (down: true): a second copy of sft may be running there" in trio.says(0, "plan")
    trio.says(0, "machines", "up", "den")
    assert "keep, in progress on den" in trio.says(0, "plan")


def test_a_silent_machine_is_left_out_once_and_the_job_keeps_that(trio: Trio) -> None:
    den = trio.net.hosts["den"]
    den.cut()
    refused = trio.says(6, "apply", "--yes")
    for words in ("den does not answer and may hold a copy", "aicrun machines down den", "--except den"):
        assert words in refused, refused
    trio.says(0, "apply", "--yes", "--except", "den")
    until(lambda: trio.starts() == {"den": 1, "lab": 1})
    den.join()
    until(lambda: trio.project.run("exec", "den", "--", "true").returncode == 0)
    first, *_ = trio.project.json("inspect", "sft@lab")["job"]["events"]
    assert (first["event"], first["detail"]) == ("reserved", "not asked whether they hold a copy: den")
    # Now both go on, as was said.
    assert "sft is more than one run: say which" in trio.says(3, "stop", "sft", "--yes")
    for name in ("den", "lab"):
        trio.says(0, "stop", f"sft@{name}", "--yes", "--grace", "0s")


def test_what_ended_elsewhere_is_not_told_for_the_run_on_a_silent_machine(trio: Trio) -> None:
    trio.project.write("python3 work.py 600", "moved", "machine: {name: den}\n")
    trio.says(0, "apply", "--yes")
    trio.says(0, "apply", "--yes", "--replace", "--set", "machine.name=lab", "--set", "command=python3 work.py 601")
    lab = trio.net.hosts["lab"]
    lab.cut()
    told = trio.says(6, "stop", "moved", "--yes")
    assert "lab does not answer, and the last start of moved was there" in told
    assert "stopped" in trio.says(0, "inspect", "moved@den")
    lab.join()
    until(lambda: trio.project.run("exec", "lab", "--", "true").returncode == 0)
    trio.says(0, "stop", "moved", "--yes", "--grace", "0s")


def test_an_offline_plan_starts_nothing(trio: Trio, monkeypatch: pytest.MonkeyPatch) -> None:
    trio.project.write("python3 work.py", "seen")
    for name, value in trio.project.person.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(trio.project.folder)
    path = trio.project.folder / "kept.json"
    with api.open_session() as (session, _):
        planned = api.plan(session, api.load(["run.yaml"]).specs, offline=True)
        assert planned.plan.runs[0].sign is api.Sign.START
        with pytest.raises(PlanRefused, match="asked no machine"):
            api.apply(session, planned)
        api.save(planned, str(path))
        with pytest.raises((PlanRefused, api.Stale)):
            api.apply(session, api.recheck(session, api.read_saved(str(path)), str(path)))
    assert "seen" not in [row["run"] for row in trio.project.json("list", "--all")["jobs"]]
