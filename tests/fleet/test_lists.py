"""Lists and accounts that differ: what one client cannot see of another is said, and one machine is never two.

Two names for one machine, two lists that overlap or not, two accounts on one machine with one card.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_nvml.driver import can_be_built
from hosts_rig import Net, possible
from integration.project import Project
from ssh_ways import emptied_home, open_folder, throw_away
from support import Person, until

from aicrun.hosts.ssh_route import VARIABLE

pytestmark = pytest.mark.skipif(bool(possible()) or not can_be_built(), reason=possible() or "no C compiler")

CARD = """
driver 570.124.06
cuda 12080
card GPU-{0}-0 NVIDIA RTX A6000
  total 49140
  reserved 300
  bus 00000000:01:00.0
"""
ASKS = "machine: {gpu: {vram: 16GiB}}\n"


class Lab:
    """Three hosts with a card each, and as many people as are asked for, each with a list of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.user, self.home = throw_away(), emptied_home()
        other = f"Match User {self.user}\n  SetEnv HOME=/home/{self.user} PATH=/usr/bin:/bin"
        self.net = Net(folder / "net")
        for name in ("a", "b", "c"):
            driver = folder / "net" / name / "driver"
            self.net.add(name, CARD.format(name), f"{other} LD_LIBRARY_PATH={driver}")
        self.config = self.net.start()
        first = self.net.hosts["a"]
        again = first.entry().replace("Host a\n", "Host a-lan\n")
        theirs = first.entry().replace("Host a\n", "Host a-theirs\n").replace("User root\n", f"User {self.user}\n")
        self.config.write_text("\n".join((self.config.read_text(), again, theirs)))

    def person(self, name: str, *machines: str) -> Project:
        """Somebody with a home and a list of machines."""
        home = self.folder / name
        home.mkdir(mode=0o700)
        project = Project(Person(home))
        project.person.env[VARIABLE] = str(self.config)
        rows = "".join(f"  - {{name: {one}, ssh: {one}}}\n" for one in machines)
        (project.folder / "machines.yaml").write_text("version: 1\nmachines:\n" + rows)
        return project

    def starts(self) -> dict[str, int]:
        """How many commands were started on each host, by all accounts."""
        theirs = self.home / "starts"
        count = {name: len(host.starts()) for name, host in self.net.hosts.items() if host.starts()}
        return {**count, **({"theirs": len(theirs.read_text().split())} if theirs.exists() else {})}


@pytest.fixture
def lab() -> Iterator[Lab]:
    with open_folder() as folder:
        made = Lab(folder)
        yield made
        made.net.close()


def shown(done: subprocess.CompletedProcess[str]) -> str:
    """What was said, on one line; no line of it is wider than a terminal."""
    if os.environ.get("AICRUN_LINKS_TOLD"):
        print(done.stdout, done.stderr, sep="\n")
    return " ".join((done.stdout + done.stderr).split())


def test_one_machine_under_two_names_is_told_and_counted_once(lab: Lab) -> None:
    project = lab.person("ana", "a", "a-lan")
    listed = shown(project.run("machines"))
    assert "a-lan is a under another name, counted once" in listed
    assert "1 machine, 1 card, " in listed
    project.write("python3 work.py 600", "sft", ASKS)
    assert "counted once: a-lan (is a under another name)" in shown(project.run("plan"))
    assert project.apply().returncode == 0
    until(lambda: lab.starts() == {"a": 1}, 60)
    project.write("python3 work.py 600", "other", ASKS)
    waits = project.apply()
    assert (waits.returncode, "wait in line for a[0]" in shown(waits)) == (0, True)
    assert [row["run"] for row in project.json("list")["jobs"]] == ["other", "sft"]
    pinned = project.run("plan", "run.yaml", "--set", "machine.name=a-lan", "--set", "name=third")
    assert (pinned.returncode, "is a under another name" in shown(pinned)) == (5, True)
    for name in ("a", "a-lan"):
        told = shown(project.run("doctor", name))
        assert "a-lan is a: one machine and account under two names, counted once" in told
        assert "aicrun machines remove a-lan" in told
    assert project.run("stop", "sft", "--yes", "--grace", "0s").returncode == 0
    until(lambda: lab.starts() == {"a": 2}, 60)


@pytest.mark.skipif(os.environ.get("AICRUN_LINKS") != "all", reason="AICRUN_LINKS=all: what no look excludes, by hand")
def test_lists_that_overlap_share_a_name_where_they_meet_and_no_further(lab: Lab) -> None:
    ana, bo, kim = lab.person("ana", "a", "b"), lab.person("bo", "b", "c"), lab.person("kim", "c")
    for one in (ana, bo, kim):
        one.write("python3 work.py 600", "sft")
    assert ana.apply("--set", "machine.name=b").returncode == 0
    until(lambda: lab.starts() == {"b": 1}, 60)
    assert "in progress on b" in shown(bo.apply("--set", "machine.name=c"))
    assert lab.starts() == {"b": 1}
    # Nobody whom kim can ask knows of it; how far kim sees is told by doctor.
    assert "unique over the 1 machine and accounts of this list" in shown(kim.run("doctor", "c"))
    assert "unique over the 2 machines and accounts of this list" in shown(bo.run("doctor", "c"))
    assert kim.apply().returncode == 0
    until(lambda: lab.starts() == {"b": 1, "c": 1}, 60)


def test_two_accounts_share_the_card_and_the_name_only_where_one_list_has_both(lab: Lab) -> None:
    theirs, mine, both = lab.person("bo", "a-theirs"), lab.person("ana", "a"), lab.person("kim", "a", "a-theirs")
    for one in (theirs, mine, both):
        one.write("python3 work.py 600", "sft", ASKS)
    assert theirs.apply().returncode == 0
    until(lambda: lab.starts() == {"theirs": 1}, 60)
    assert "in progress on a-theirs[0]" in shown(both.apply())
    planned = shown(mine.run("plan"))
    assert "wait in line for a[0]" in planned
    assert f"a[0]: sft of {lab.user} holds it" in planned
    assert f"sft of {lab.user}" in shown(mine.run("machines"))
    assert mine.apply().returncode == 0
    assert lab.starts() == {"theirs": 1}
    assert "in line" in shown(mine.run("list"))
    assert theirs.run("stop", "sft", "--yes", "--grace", "0s").returncode == 0
    until(lambda: lab.starts() == {"theirs": 1, "a": 1}, 60)
