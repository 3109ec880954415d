"""Each common shape of a project, from its clone to a run that ended well on a machine that only ssh reaches.

The spec is what a person types: less than fifteen lines. The second apply builds nothing, asks no index, and sends what
changed and no more. The machine has a python3 and a git, and nothing else: uv comes from the client.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import packages
import pytest
from git_rig import Repository
from integration.project import Project
from ssh_rig import Sshd
from ssh_ways import ALL, FABRIC, OPENSSH, WAYS, Host, laid
from support import Person

from aicrun.hosts.ssh_route import VARIABLE

TRY = "import sys, tiny\nprint('prefix', sys.prefix, tiny.WORD)\n"
PLAIN = "import sys\nprint('prefix', sys.prefix)\n"


@dataclass
class Bench:
    """A person, a machine `box` behind ssh, and an index that has `tiny`; nothing of it is a client's own."""

    person: Person
    host: Host
    index: packages.Index
    folder: Path

    @property
    def wheel(self) -> Path:
        """The one package that there is."""
        return self.index.folder / "tiny-1.0-py3-none-any.whl"

    def clone(self, there: Repository, name: str) -> Project:
        """The repository as the person has cloned it, not applied yet."""
        subprocess.run(["git", "clone", "-q", there.url, str(self.folder / name)], check=True)
        found = Project.__new__(Project)
        found.person, found.folder = self.person, self.folder / name
        (found.folder / "machines.yaml").write_text("version: 1\nmachines:\n  - {name: box, ssh: box}\n")
        return found


@pytest.fixture(scope="module", params=[FABRIC, OPENSSH] if ALL else [FABRIC])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("shapes")
    client = folder / "client"
    # The client has fetched uv before; that it sends it is part of the way.
    (client / ".cache/aicrun").mkdir(parents=True)
    kept = packages.pinned_uv()
    (client / ".cache/aicrun" / kept.name).symlink_to(kept)
    packages.wheel(folder / "wheels")
    with laid(WAYS[request.param]) as host:
        person = Person(client)
        person.env[VARIABLE] = str(host.config)
        index = packages.Index(folder / "wheels")
        yield Bench(person, host, index, folder)
        index.close()


def requirements(bench: Bench, there: Repository) -> str:
    there.commit(requirements_DOT_txt="tiny\n")
    return f"setup: {{requirements: requirements.txt, index: '{bench.index.address}'}}\n"


def uv_lock(bench: Bench, there: Repository) -> str:
    pyproject = packages.PYPROJECT
    text = packages.lock(bench.wheel, bench.index.address)
    there.commit(pyproject_DOT_toml=pyproject, uv_DOT_lock=text)
    return "setup: {lock: uv.lock}\n"


def pyproject(bench: Bench, there: Repository) -> str:
    uv_lock(bench, there)
    there.commit(backend_DOT_py=packages.BACKEND, demo_DOT_py="")
    return "setup: {project: true}\n"


def environment(bench: Bench, there: Repository) -> str:
    venv = bench.host.home / "venv"
    if not venv.exists():
        subprocess.run([str(packages.pinned_uv()), "venv", "-q", "--python", "/usr/bin/python3", str(venv)], check=True)
        (next((venv / "lib").glob("python*/site-packages")) / "tiny.py").write_text("WORD = 'here'\n")
    return "setup: {venv: ~/venv}\n"


SHAPES = {"requirements.txt": requirements, "uv.lock": uv_lock, "pyproject": pyproject, "existing venv": environment}


def applied(project: Project, *more: str) -> tuple[str, str]:
    """(what the run printed, what was told of its way there); the run has succeeded."""
    done = project.run("apply", "--follow", "--yes", *more, timeout_s=180)
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("│ ")]
    return "\n".join(said), " ".join(done.stderr.split())


def write(project: Project, name: str, more: str) -> None:
    text = f"version: 1\nname: {name}\nsource: {{path: .}}\n{more}"
    (project.folder / "run.yaml").write_text(text)
    assert len(text.splitlines()) < 15


@pytest.mark.parametrize("shape", SHAPES)
def test_from_the_clone_to_a_run_and_again(bench: Bench, tmp_path: Path, shape: str) -> None:
    there = Repository(tmp_path / "there")
    setup = SHAPES[shape](bench, there)
    there.commit(train_DOT_py=TRY)
    name = f"shape-{shape.split()[-1].replace('.', '-')}"
    project = bench.clone(there, name)
    write(project, name, f"{setup}command: python train.py\n")
    said, told = applied(project)
    assert "here" in said
    assert f"prefix {bench.host.home}/" in said
    is_ours = shape != "existing venv"
    assert ("built" in told) == is_ours, told

    asked = len(bench.index.asked)
    (project.folder / "train.py").write_text(f"{TRY}# changed {name}\n")
    said, told = applied(project, "--again")
    assert "here" in said
    # The code of a project is part of its environment; that is its own promise.
    if shape != "pyproject":
        assert "reused" in told, told
        assert len(bench.index.asked) == asked
    files = len(there("ls-files").splitlines())
    sent = f"1 of {files} files, " if files > 1 else "1 file, "
    assert f"push {sent}{len(TRY) + len(name) + 11} B to box" in told, told
    assert "reused" in applied(project, "--again")[1]
    assert len(bench.index.asked) == asked or shape == "pyproject"


def test_without_an_environment(bench: Bench, tmp_path: Path) -> None:
    there = Repository(tmp_path / "there")
    there.commit(train_DOT_py=PLAIN, other_DOT_py="")
    project = bench.clone(there, "shape-none")
    write(project, "shape-none", "command: python3 train.py\n")
    assert "prefix /usr" in applied(project)[0]
    (project.folder / "train.py").write_text(PLAIN + "# changed\n")
    assert "push 1 of 2 files, " in applied(project, "--again")[1]


def test_a_folder_of_the_client_is_sent_once_as_an_input(bench: Bench, tmp_path: Path) -> None:
    there = Repository(tmp_path / "there")
    there.commit(train_DOT_py="import os\nprint('read', os.listdir(os.environ['AICRUN_INPUT_DATA']))\n")
    data = tmp_path / "data"
    data.mkdir()
    for name in ("one", "two"):
        (data / name).write_bytes(os.urandom(2 << 20))
    project = bench.clone(there, "shape-inputs")
    write(project, "shape-inputs", f"inputs: {{data: {{from: {data}}}}}\ncommand: python3 train.py\n")
    said, told = applied(project)
    assert "one" in said
    assert "push input data: 2 files, 4.0 MiB to box" in told, told
    assert "input data" not in applied(project, "--again")[1]
    (data / "two").write_text("another")
    assert "push input data: 1 of 2 files, 7 B to box" in applied(project, "--again")[1]
    kept = project.json("inspect", "shape-inputs")["job"]["facts"]["setup"]["inputs"]["data"]
    assert (kept["files"], kept["new"]) == (2, True)


@pytest.mark.skipif(os.getuid() != 0, reason="needs an sshd that serves this account")
def test_from_a_repository_that_only_the_machine_may_read(bench: Bench, tmp_path: Path) -> None:
    """Its key is the machine's: the client has no way to it, and never learns it."""
    there = Repository(tmp_path / "there")
    there.commit(requirements_DOT_txt="tiny\n", train_DOT_py=TRY)
    git_host = Sshd(bench.host.home / "git-host").start()
    try:
        config = git_host.write_client("git-host")
        (bench.host.home / ".gitconfig").write_text(f"[core]\n\tsshCommand = ssh -F {config}\n")
        folder = tmp_path / "mine"
        folder.mkdir()
        project = Project.__new__(Project)
        project.person, project.folder = bench.person, folder
        shutil.copy(_machines(bench), folder)
        write(project, "shape-git", f"setup: {{requirements: requirements.txt, index: '{bench.index.address}'}}\n")
        text = (folder / "run.yaml").read_text().replace("{path: .}", f"{{git: 'ssh://git-host{there.folder}'}}")
        (folder / "run.yaml").write_text(text + "command: python train.py\n")
        said, told = applied(project)
        assert "here" in said
        asked = len(bench.index.asked)
        first = there("rev-parse", "main")
        there.commit(train_DOT_py=TRY + "print('two')\n")
        fetched = len((git_host.folder / "sshd.log").read_text())
        said, told = applied(project, "--again")
        assert "two" in said
        assert "reused" in told
        assert len(bench.index.asked) == asked
        assert len((git_host.folder / "sshd.log").read_text()) > fetched
        assert first != project.json("inspect", "shape-git")["job"]["source"]["commit"] == there("rev-parse", "main")
    finally:
        git_host.close()


def _machines(bench: Bench) -> Path:
    path = bench.folder / "machines.yaml"
    path.write_text("version: 1\nmachines:\n  - {name: box, ssh: box}\n")
    return path
