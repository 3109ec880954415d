"""What a person sees and answers in a real terminal, on a machine that only ssh reaches."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_rig import command_line
from fake_nvml.driver import FakeDriver, can_be_built
from integration.project import Project
from private_locks import made_private
from ssh_rig import Sshd, free_port
from support import Person, end_processes_with, processes_with, until
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

    def knows_box(self) -> None:
        """The machine is in the inventory, by hand."""
        self.file.parent.mkdir(parents=True)
        self.file.write_text("version: 1\nmachines:\n  - {name: box, ssh: box}\n  - {name: here, local: true}\n")

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
def test_a_card_to_keep_is_named_by_number_or_the_beginning_of_its_uuid(desk: Desk) -> None:
    for words, told in ((("--keep", "7"), "is no card of box"), (("--keep", "GPU-"), "names several cards of box")):
        added = desk.person.run("machines", "add", "box", *words, "--yes")
        assert (added.returncode, told in added.stderr, desk.file.exists()) == (3, True, False), added.stderr
    assert desk.person.run("machines", "add", "box", "--keep", "GPU-3090B", "--untried", "--yes").returncode == 0
    assert "keep_free: [GPU-3090B]" in desk.file.read_text()


def test_ctrl_c_at_a_question_writes_nothing(desk: Desk) -> None:
    adding = desk.types("machines", "add", "box")
    adding.shows(":" if desk.driver else "[y/N]")
    adding.type(CTRL_C)
    code, text = adding.end()
    assert (code, "Traceback" in text, desk.file.exists()) == (130, False, False), text


def test_ctrl_c_in_a_short_command_ends_it_there(desk: Desk) -> None:
    desk.knows_box()
    going = desk.types("exec", "box", "--", "echo begun; exec sleep 4711")
    going.shows("begun")
    going.type(CTRL_C)
    code, text = going.end()
    assert (code, "is ended within 15s, with all that it started" in text) == (130, True), text
    until(lambda: not [pid for pid in processes_with(f"HOME={desk.home}\0") if b"4711" in command_line(pid)])


def test_what_a_short_command_says_is_harmless_on_a_terminal_and_bare_in_a_pipe(desk: Desk) -> None:
    desk.knows_box()
    words = ("exec", "box", "--", r"printf 'a\033]0;owned\007b\n'")
    shown = desk.types(*words)
    assert shown.end()[0] == 0
    assert "owned" not in shown.raw
    assert "ab" in shown.raw
    assert desk.person.run(*words).stdout == "a\x1b]0;owned\x07b\n"


def test_a_short_command_that_cannot_be_started_fails_as_ours(desk: Desk) -> None:
    desk.knows_box()
    assert desk.person.run("exec", "box", "--cwd", "/nowhere", "--", "true").returncode == 255
    assert desk.person.run("exec", "nobody", "--", "true").returncode == 3
    desk.daemon.close()
    assert desk.person.run("exec", "box", "--", "true").returncode == 255


@pytest.mark.parametrize("way", ["push", "pull"])
def test_ctrl_c_in_a_transfer_leaves_it_resumable_and_says_how(desk: Desk, way: str) -> None:
    desk.knows_box()
    here, there = desk.person.home / "big", desk.home / "big"
    with (here if way == "push" else there).open("wb") as stream:
        stream.truncate(8 * 1024**3)
    words = ("push", "big", "box:~/") if way == "push" else ("pull", "box:~/big")
    going = desk.types(*words)
    going.shows("of 8.0 GiB, ")
    going.type(CTRL_C)
    code, text = going.end()
    assert (code, f"Go on with: aicrun {' '.join(words)}" in text) == (130, True), text
    assert all(len(line) <= 80 for line in text.replace("\r", "\n").splitlines()), text
    place = there if way == "push" else here
    assert not place.exists()
    assert [path for path in place.parent.iterdir() if path.name.endswith(".aicrun-part") and path.stat().st_size]


def test_refusals_of_a_transfer_have_the_command_to_type_next(desk: Desk) -> None:
    desk.knows_box()
    (desk.home / "x").write_text("other")
    (desk.person.home / "x").write_text("mine")
    for words, code, told in (
        (("push", "x", "box:~/"), 14, "aicrun push x 'box:~/' --replace"),
        (("push", "x", "box:~/no/where/x"), 14, "/no/where is not there"),
        (("pull", "box:~/nothing"), 14, "aicrun exec box -- 'ls -la ~'"),
        (("pull", "box:~/x", "/proc/x"), 14, "ls -ld /proc"),
    ):
        done = desk.person.run(*words)
        assert (done.returncode, told in done.stderr) == (code, True), done.stderr


def test_a_shell_of_a_run_in_a_terminal_and_a_port_of_it_here(desk: Desk) -> None:
    desk.knows_box()
    project = Project(desk.person)
    project.write(command="python3 work.py 300", more="env: {LR: 1e-4}\n")
    assert project.run("apply", "--yes", "--except", "here").returncode == 0
    until((desk.home / "starts").exists, 60)
    port = free_port()
    shell = desk.types("ssh", "quick", "--port", str(port))
    shell.shows("(quick) ")
    shell.type("echo LR=$LR; stty size\n")
    shell.shows("LR=1e-4")
    shell.shows("24 80")
    # A terminal forgets what was on its way to the screen when Ctrl-C comes: the prompt is to be there before.
    shell.shows("(quick) ")
    shell.type(CTRL_C)
    shell.shows("(quick) ")
    # ssh itself has that port here. Both sides are one machine, so that a connection through it would meet itself.
    with socket.socket() as probe, pytest.raises(OSError, match="in use"):
        probe.bind(("127.0.0.1", port))
    # A shell that hears Ctrl-C throws away what was typed just then: it is asked until it answers.
    shell.type("\n\necho he''r''e\n")
    shell.shows("here")
    shell.type("exit 3\n")
    assert shell.end()[0] == 3
    left = desk.person.run("machines", "remove", "box", "--clean", "--yes").stdout
    assert "run quick has not ended" in left
    assert "rm -rf" not in left
    project.run("stop", "quick", "--yes", "--grace", "0s")
