"""The list of machines as a person keeps it by commands: offered, tried, written, taken out again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from integration.project import Project
from ssh_ways import Host
from support import Person

from aicrun.hosts.ssh_route import VARIABLE


@pytest.fixture
def person(host: Host, tmp_path: Path) -> Person:
    client = tmp_path / "client"
    client.mkdir(mode=0o700)
    found = Person(client)
    found.env[VARIABLE] = str(host.config)
    return found


def file_of(person: Person) -> Path:
    return person.home / ".config/aicrun/machines.yaml"


def test_from_an_offer_to_a_run_and_out_again(person: Person, host: Host) -> None:
    project = Project(person)
    project.write(command="python3 work.py 900")
    (host.config.parent / "more").write_text("Host other *.lan\n  HostName 127.0.0.2\nMatch host x\n  User y\n")
    host.config.write_text(f"Include {host.config.parent}/more\n" + host.config.read_text())
    offered = json.loads(project.run("machines", "add", "--json").stdout)["aliases"]
    assert offered == ["other", "box", *host.way.hops]

    asked = project.run("machines", "add", "box")
    assert (asked.returncode, "Nobody can be asked" in asked.stderr, file_of(person).exists()) == (3, True, False)
    added = project.run("machines", "add", "box", "--yes")
    assert (added.returncode, "1 machine." in added.stdout) == (0, True), added.stdout + added.stderr
    assert file_of(person).read_text() == "version: 1\nmachines:\n  - name: box\n    ssh: box\n"
    assert project.run("machines", "add", "box", "--yes").returncode == 3

    assert project.run("apply", "--yes").returncode == 0
    assert "the only machine" in project.run("machines", "remove", "box", "--yes").stderr
    assert project.run("machines", "add", "other", "--untried", "--yes").returncode == 0
    left = json.loads(project.run("machines", "remove", "box", "--clean", "--yes", "--json").stdout)["left"]
    assert left["running"] == ["quick"]
    assert "~/.local/state/aicrun" in [folder for folder, _ in left["folders"]]
    assert (host.home / ".local/state/aicrun").exists()


def test_what_does_not_answer_is_not_written_unless_it_is_wished(person: Person, host: Host) -> None:
    host.daemon.close()
    refused = person.run("machines", "add", "box", "--yes")
    # Behind a hop, too, it is the machine that refuses.
    assert (refused.returncode, "AIC-E504" in refused.stderr, file_of(person).exists()) == (6, True, False), (
        refused.stderr
    )
    named = person.run("machines", "add", "büro", "--yes")
    assert (named.returncode, "machines add NAME --ssh 'büro'" in named.stderr) == (3, True), named.stderr
    assert person.run("machines", "add", "box", "--untried", "--yes").returncode == 0
    assert "no answer" in person.run("machines").stdout


def test_the_first_machine_tells_that_this_one_is_not_listed_and_how_it_is(person: Person) -> None:
    added = person.run("machines", "add", "box", "--yes")
    assert "This machine is not in it" in added.stdout
    assert "aicrun machines add here --local" in added.stdout
    assert person.run("machines", "add", "here", "--local", "--ssh", "box", "--yes").returncode == 3
    again = person.run("machines", "add", "here", "--local", "--yes")
    assert (again.returncode, "This machine is not in it" in again.stdout) == (0, False), again.stderr
    text = "version: 1\nmachines:\n  - name: box\n    ssh: box\n  - name: here\n    local: true\n"
    assert file_of(person).read_text() == text
    refused = person.run("machines", "add", "too", "--local", "--yes")
    assert (refused.returncode, "AIC-E172" in refused.stderr, file_of(person).read_text() == text) == (4, True, True)


def test_down_and_up(person: Person) -> None:
    file_of(person).parent.mkdir(parents=True)
    text = (
        "# ours\nversion: 1\nmachines:\n  - name: box  # by the window\n    ssh: box\n  - {name: here, local: true}\n"
    )
    file_of(person).write_text(text)
    assert person.run("machines", "down", "box").returncode == 0
    shown = person.run("machines", "list").stdout
    assert "down: true in machines.yaml" in shown
    assert "# by the window\n    down: true\n    ssh: box" in file_of(person).read_text()
    assert person.run("machines", "up", "box").returncode == 0
    assert file_of(person).read_text() == text
    only = person.run("machines", "check", "box")
    assert (only.returncode, "here" in only.stdout) == (0, False)
    assert person.run("machines", "down", "zoo").returncode == 3
