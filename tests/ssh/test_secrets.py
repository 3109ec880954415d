"""Secrets over a whole run on another machine: where they are wanted, and in nothing that anybody can look at."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from integration.project import Project
from ssh_ways import OPENSSH, Host
from support import Person, until

from aicrun.hosts.ssh_route import VARIABLE

TOKEN = "hf_PlantedTokenOfAna0123456789"
STORED = "of a store/with+signs=0123"
THERE = "lies-on-the-machine-0123456789"
VALUES = (TOKEN, STORED, THERE)
# No secret, and no business of whoever lists the processes either.
PLAIN = "a-value-of-the-spec-0123456789"

TRAINS = """import os, sys, time
token, out = os.environ["HF_TOKEN"], os.environ["AICRUN_CHECKPOINT_DIR"]
assert os.environ["THERE"].startswith("lies-on") and "STORED" not in os.environ
print("whole:", token, os.environ["THERE"], flush=True)
for cut in range(len(token)):
    os.write(1, token[:cut].encode())
    time.sleep(0.01)
    os.write(1, token[cut:].encode() + bytes([10]))
os.write(1, b"x" * 65530 + token.encode() + bytes([10]))
print("step", token, "loss=" + token, flush=True)
with open(os.path.join(out, "model-" + token + ".bin"), "w") as stream:
    stream.write("weights")
while not os.path.exists(os.path.join(os.environ["HOME"], "go")):
    time.sleep(0.05)
raise ValueError("cannot reach https://ana:" + token + "@example.org")
"""
SPEC = """secrets:
  - HF_TOKEN
  - STORED: {command: "cat ~/stored", for: upload}
  - THERE: {file: "~/there"}
progress: {loss: {pattern: 'loss=(\\S+)'}}
checkpoints: {upload: {to: 'file:~/kept/'}}
"""


class Watcher:
    """Reads the command line of every process again and again; `shown` are those that held a value."""

    def __init__(self) -> None:
        self.shown: set[str] = set()
        self.looks = 0
        self._over = threading.Event()

    def look(self) -> None:
        """Until `over`."""
        while not self._over.is_set():
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    line = Path(f"/proc/{pid}/cmdline").read_bytes()
                except OSError:
                    continue
                planted = (*VALUES, PLAIN)
                self.shown |= {line.decode("utf-8", "replace") for value in planted if value.encode() in line}
            self.looks += 1
            self._over.wait(0.02)

    def over(self) -> None:
        """No more looks."""
        self._over.set()


@contextmanager
def watched() -> Iterator[Watcher]:
    watcher = Watcher()
    thread = threading.Thread(target=watcher.look)
    thread.start()
    try:
        yield watcher
    finally:
        watcher.over()
        thread.join()


def holding(folder: Path) -> list[str]:
    """What below the folder holds a value, but for the places where a person has put it."""
    # The manifest names the files that lie beside it in the target.
    own = {"there", "stored", "train.py", "aicrun-manifest.json"}
    paths = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path.name not in own]
    return [str(path) for path in paths if any(value.encode() in path.read_bytes() for value in VALUES)]


def test_a_planted_value_is_found_nowhere(host: Host, tmp_path: Path) -> None:
    client = tmp_path / "client"
    client.mkdir(mode=0o700)
    project = Project(Person(client))
    project.person.env.update({VARIABLE: str(host.config), "HF_TOKEN": TOKEN})
    (project.folder / "machines.yaml").write_text("version: 1\nmachines:\n  - {name: box, ssh: box}\n")
    (project.folder / "train.py").write_text(TRAINS)
    (client / "stored").write_text(STORED + "\n")
    (host.home / "there").write_text(THERE + "\n")
    project.write(command="python3 train.py", more=SPEC + f"env: {{PLAIN: {PLAIN}}}\n")
    said = []
    with watched() as watcher:
        planned = project.run("plan", "-v", "-o", "plan.json")
        assert "HF_TOKEN, from your environment; STORED, from `cat ~/stored` here; THERE, from ~/there" in " ".join(
            planned.stdout.split()
        )
        said += [planned, project.run("apply", "plan.json", "--yes")]
        assert said[-1].returncode == 0, said[-1].stdout + said[-1].stderr
        until(lambda: b"step" in project.run("logs", "quick").stdout.encode(), 60)
        said += [project.run(*words, "quick") for words in (["inspect", "--env"], ["inspect", "--json"])]
        # Until its keeper ends the values lie in one file there, which nobody else can read.
        kept = list(host.home.rglob("secrets.json"))
        assert [path.stat().st_mode & 0o777 for path in kept] == [0o600]
        (host.home / "go").touch()
        said += [project.run("wait", "quick"), project.run("logs", "quick"), project.run("list", "--json")]
        # The machine has let go of them: what only the upload sees is asked for again, here.
        said += [project.run("upload", "quick"), project.run("apply", "--yes"), project.run("notes", "box")]
        said += [project.run("exec", "box", "--", "true"), project.run("delete", "quick", "--yes")]
    assert watcher.looks > 10 and not watcher.shown
    log = said[5].stdout
    assert "whole: *** ***" in log and "ValueError: cannot reach https://ana:***@example.org" in log, log[-2000:]
    assert not holding(client) and not holding(host.home)
    for done in said:
        assert not any(value in done.stdout + done.stderr for value in VALUES), done.args
    assert not list(host.home.rglob("secrets.json"))


RUNS = "; touch {marker} $(touch {marker}) `touch {marker}` && touch {marker}"


@pytest.mark.parametrize("way", [OPENSSH], indirect=True)
def test_no_value_of_a_spec_is_ever_run(host: Host, tmp_path: Path) -> None:
    """G06: variables, a secret, folders and the target hold what a shell would obey; each arrives as it is."""
    client = tmp_path / "client"
    client.mkdir(mode=0o700)
    project = Project(Person(client))
    marker = tmp_path / "ran"
    hostile = RUNS.format(marker=marker)
    folder = RUNS.format(marker="ran").replace("/", "")
    project.person.env.update({VARIABLE: str(host.config), "TOKEN_OF_IT": "token" + hostile})
    (project.folder / "machines.yaml").write_text("version: 1\nmachines:\n  - {name: box, ssh: box}\n")
    (project.folder / folder).mkdir()
    (project.folder / folder / "show.py").write_text(SHOWS)
    (host.home / ("data" + folder)).mkdir()
    quoted = {name: value.replace("'", "''") for name, value in (("value", hostile), ("folder", folder))}
    project.write(command="python3 show.py", more=HOSTILE.format(**quoted))
    done = project.apply("--follow", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    log = project.run("logs", "quick").stdout
    assert f"env: {hostile}" in log and "secret: ***" in log and f"in: {folder}" in log, log
    assert (host.home / ("kept" + folder)).is_dir()
    for words in (["inspect", "--env"], ["checkpoints"], ["inspect", "--json"], ["delete", "--yes"]):
        project.run(words[0], "quick", *words[1:])
    assert not marker.exists()
    ran = [path for top in (client, host.home) for path in top.rglob("ran")]
    assert ran == []


SHOWS = """import os, sys
print("env:", os.environ["VALUE"])
print("secret:", os.environ["TOKEN_OF_IT"])
print("in:", os.path.basename(os.getcwd()))
assert os.path.isdir(os.environ["AICRUN_INPUT_CORPUS"])
with open(os.path.join(os.environ["AICRUN_CHECKPOINT_DIR"], "x"), "w") as stream:
    stream.write("weights")
"""
HOSTILE = """secrets: [TOKEN_OF_IT]
env: {{VALUE: '{value}'}}
cwd: '{folder}'
workspace: '~/w{folder}'
inputs: {{corpus: {{path: '~/data{folder}'}}}}
checkpoints: {{upload: {{to: 'file:~/kept{folder}'}}}}
"""
