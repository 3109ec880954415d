"""Files between here and a machine: whole, checked, resumed, and never over something else."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ssh.relay import Relay
from ssh_ways import Way, laid
from support import Person, until

from aicrun.hosts.ssh_route import VARIABLE


class Far:
    """A person, a machine `box` behind a relay, and a folder there."""

    def __init__(self, person: Person, relay: Relay, there: Path) -> None:
        self.person, self.relay, self.there = person, relay, there

    def run(self, *words: str) -> tuple[int, str]:
        """The exit code of a command and all that it said."""
        done = self.person.run(*words, timeout_s=120)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def far(way: Way, tmp_path: Path) -> Iterator[Far]:
    client = tmp_path / "client"
    client.mkdir(mode=0o700)
    (client / "machines.yaml").write_text("version: 1\nmachines:\n  - {name: box, ssh: box}\n")
    person, relays = Person(client), []

    def relayed(port: int) -> int:
        relays.append(Relay(port))
        return relays[0].port

    with laid(way, relayed) as host:
        there = host.home / "data"
        there.mkdir(mode=0o700)
        host.give(there)
        person.env[VARIABLE] = str(host.config)
        yield Far(person, relays[0], there)
        relays[0].close()


def content(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_there_and_back(far: Far) -> None:
    mine = far.person.home / "model file.bin"
    mine.write_bytes(os.urandom(9 * 1024 * 1024 + 7))
    mine.chmod(0o640)
    assert far.run("push", str(mine), f"box:{far.there}")[0] == 0
    sent = far.there / "model file.bin"
    assert (content(sent), sent.stat().st_mode & 0o777) == (content(mine), 0o640)
    assert "1 of them there already" in far.run("push", str(mine), f"box:{far.there}")[1]
    assert far.run("pull", f"box:{sent}", str(far.person.home / "back.bin"))[0] == 0
    assert content(far.person.home / "back.bin") == content(mine)
    assert [path.name for path in far.there.iterdir()] == ["model file.bin"]


def test_a_folder_keeps_its_shape_and_leaves_links_out(far: Far) -> None:
    top = far.person.home / "corpus"
    (top / "a/b").mkdir(parents=True)
    for name in ("one", "a/two", "a/b/drei ü"):
        (top / name).write_text(name)
    (top / "empty").touch()
    (top / "link").symlink_to("/etc/passwd")
    code, said = far.run("push", str(top), "box:~/data")
    assert (code, "left out" in said and "link" in said) == (0, True), said
    assert sorted(str(path.relative_to(far.there)) for path in far.there.rglob("*") if path.is_file()) == [
        "corpus/a/b/drei ü",
        "corpus/a/two",
        "corpus/empty",
        "corpus/one",
    ]
    (far.there / "corpus/sly").symlink_to("/etc/passwd")
    told = json.loads(far.person.run("pull", "box:~/data/corpus", "back", "--json").stdout)
    assert (told["files"], [Path(name).name for name in told["skipped"]]) == (4, ["sly"])
    assert (far.person.home / "back/a/b/drei ü").read_text() == "a/b/drei ü"


def test_a_folder_of_many_small_files_and_a_large_one(far: Far) -> None:
    top = far.person.home / "many"
    for number in range(450):
        place = top / f"d{number % 9}/f{number}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(f"{number}".encode() * (number % 40))
    (top / "d4/large").write_bytes(os.urandom(600_000))
    mine = {path.relative_to(top): path.read_bytes() for path in top.rglob("*") if path.is_file()}
    code, said = far.run("push", str(top), f"box:{far.there}")
    assert code == 0, said
    there = far.there / "many"
    assert {path.relative_to(there): path.read_bytes() for path in there.rglob("*") if path.is_file()} == mine
    told = json.loads(far.person.run("push", str(top), f"box:{far.there}", "--json").stdout)
    assert (told["files"], told["same"]) == (451, 451)
    (there / "d3/f3").write_text("other")
    code, said = far.run("push", str(top), f"box:{far.there}")
    assert (code, "AIC-E640" in said, (there / "d3/f3").read_text()) == (14, True, "other"), said
    assert far.run("push", str(top), f"box:{far.there}", "--replace")[0] == 0
    assert (there / "d3/f3").read_bytes() == mine[Path("d3/f3")]


def test_nothing_is_replaced_unasked(far: Far) -> None:
    mine, other = far.person.home / "x", far.there / "x"
    mine.write_text("mine")
    other.write_text("other")
    for words, code in (
        (("push", str(mine), f"box:{other}"), "AIC-E640"),
        (("pull", f"box:{other}", str(mine)), "AIC-E020"),
    ):
        done, said = far.run(*words)
        assert (done, code in said) == (14, True), said
    assert (mine.read_text(), other.read_text()) == ("mine", "other")
    assert far.run("push", str(mine), f"box:{other}", "--replace")[0] == 0
    assert other.read_text() == "mine"


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_a_cut_transfer_goes_on_where_it_stopped(far: Far, direction: str) -> None:
    size = 24 * 1024 * 1024
    here, there = far.person.home / "big", far.there / "big"
    (here if direction == "push" else there).write_bytes(os.urandom(size))
    words = ("push", str(here), f"box:{there}") if direction == "push" else ("pull", f"box:{there}", str(here))
    far.run("exec", "box", "--", "true")
    far.relay.budget = size // 2
    code, said = far.run(*words)
    assert code == 6, said
    assert not (there if direction == "push" else here).exists()
    far.relay.heal()
    before = far.relay.passed
    code, said = far.run(*words)
    assert code == 0, said
    assert content(here) == content(there)
    assert far.relay.passed - before < size * 3 // 4
    until(lambda: not [path for path in (*far.person.home.iterdir(), *far.there.iterdir()) if "part" in path.name])


def test_refusals_have_their_code(far: Far) -> None:
    (far.there / "closed").mkdir()
    os.mkfifo(far.there / "pipe")
    for words, code in (
        (("pull", f"box:{far.there}/nothing"), "AIC-E605"),
        (("pull", f"box:{far.there}/pipe"), "AIC-E641"),
        (("pull", "box:relative"), "AIC-E006"),
        (("push", "nothing", "box:/tmp/x"), "AIC-E021"),
        (("push", "machines.yaml", "box:/proc/nowhere/x"), "AIC-E6"),
    ):
        done, said = far.run(*words)
        assert (done != 0, code in said, "Traceback" in said) == (True, True, False), said
