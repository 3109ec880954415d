"""What a person sees and answers in a real terminal, on a machine that only ssh reaches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_nvml.driver import FakeDriver, can_be_built
from private_locks import made_private
from ssh_rig import Sshd
from support import Person, end_processes_with
from terminal import CTRL_C, Terminal, aicrun

from aicrun.hosts.ssh_route import VARIABLE

CARDS = """
driver 570.124.06
cuda 12080
card GPU-5080aaaa-0000-4000-8000-000000000000 NVIDIA GeForce RTX 5080
  total 16303
  reserved 300
  bus 00000000:01:00.0
  display 1
card GPU-3090bbbb-0000-4000-8000-000000000000 NVIDIA GeForce RTX 3090
  total 24576
  reserved 300
  bus 00000000:41:00.0
"""


class Desk:
    """A person at a terminal, and a machine `box` with two cards."""

    def __init__(self, folder: Path) -> None:
        self.home, client = folder / "home", folder / "client"
        for made in (self.home, client):
            made.mkdir(mode=0o700)
        self.driver = FakeDriver(folder / "driver", CARDS) if can_be_built() else None
        env = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", **(self.driver.env if self.driver else {})}
        self.daemon = Sshd(folder / "sshd", env=env).start()
        self.person = Person(client)
        self.person.env[VARIABLE] = str(self.daemon.write_client())
        self.terminals: list[Terminal] = []

    def types(self, *args: str) -> Terminal:
        """A command in a terminal."""
        self.terminals.append(aicrun(self.person, *args))
        return self.terminals[-1]

    @property
    def file(self) -> Path:
        """The inventory that `machines add` writes."""
        return self.person.home / ".config/aicrun/machines.yaml"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    # The lock folder of the machine itself is looked at otherwise, and tickets of others would be shown.
    made_private()
    found = Desk(tmp_path)
    yield found
    for terminal in found.terminals:
        terminal.close()
    found.daemon.close()
    end_processes_with(f"HOME={found.home}\0")


needs_cards = pytest.mark.skipif(not can_be_built(), reason="no C compiler for the simulated driver")


@needs_cards
def test_an_offered_machine_is_tried_and_a_card_of_it_kept_by_uuid(desk: Desk) -> None:
    config = desk.daemon.folder / "ssh_config"
    config.write_text(config.read_text() + "Host gone\n  HostName 127.0.0.1\n  Port 1\n")
    adding = desk.types("machines", "add")
    adding.shows("Try which?")
    adding.type("nobody\n")
    adding.shows("nobody is none of these: 1, 2.")
    adding.type("1 gone\n")
    adding.shows("RTX 3090")
    adding.shows("no answer: ")
    adding.shows("Keep cards of box free of runs?")
    adding.type("[0]\n")
    adding.shows("machines.yaml? [y/N]")
    adding.type("y\n")
    code, text = adding.end()
    assert (code, "why not gone" in text) == (0, True), text
    pinned = "    keep_free: [GPU-5080aaaa-0000-4000-8000-000000000000]  # [0] RTX 5080\n"
    assert desk.file.read_text() == f"version: 1\nmachines:\n  - name: box\n    ssh: box\n{pinned}"
    assert "display; kept by owner" in desk.person.run("machines").stdout
    planned = desk.person.run("doctor", "box").stdout
    assert "kept       [0] RTX 5080" in planned, planned


@needs_cards
def test_a_kept_card_that_is_gone_is_told(desk: Desk) -> None:
    added = desk.person.run("machines", "add", "box", "--keep", "1", "--yes")
    assert added.returncode == 0, added.stderr
    assert "keep_free: [GPU-3090bbbb-" in desk.file.read_text()
    assert desk.driver is not None
    desk.driver.write(CARDS.split("card GPU-3090")[0])
    shown = desk.person.run("machines").stdout
    assert "keep_free names GPU-3090bbbb-0000-4000-8000-000000000000, which is not" in shown, shown
    looked = desk.person.run("doctor", "box").stdout
    assert "note  kept" in looked, looked


@needs_cards
@pytest.mark.parametrize(
    ("word", "told"), [("7", "is no card of box"), ("GPU-", "names several cards of box"), ("GPU-3090B", "")]
)
def test_a_card_to_keep_is_named_by_number_or_the_beginning_of_its_uuid(desk: Desk, word: str, told: str) -> None:
    added = desk.person.run("machines", "add", "box", "--keep", word, "--yes")
    assert (added.returncode, told in added.stderr) == (3 if told else 0, True), added.stderr
    assert desk.file.exists() is not bool(told)


def test_ctrl_c_at_a_question_writes_nothing(desk: Desk) -> None:
    adding = desk.types("machines", "add", "box")
    adding.shows(":" if desk.driver else "[y/N]")
    adding.type(CTRL_C)
    code, text = adding.end()
    assert (code, "Traceback" in text, desk.file.exists()) == (130, False, False), text
