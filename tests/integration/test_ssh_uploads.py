"""Uploads over the machine's own ssh to a real sshd: sent by rsync, compared byte for byte, refused before training."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.project import Project
from integration.test_fetched_inputs import flat
from ssh_rig import SSHD, Sshd

pytestmark = pytest.mark.skipif(
    not (SSHD and shutil.which("rsync")), reason="no sshd or rsync at hand: apt install openssh-server rsync"
)

# Names that a shell, a listing or a pattern would take for something else.
TRAINER = """\
import os
out = os.environ["AICRUN_CHECKPOINT_DIR"]
with open(os.path.join(os.environ["HOME"], "starts"), "a") as stream:
    stream.write(os.environ["AICRUN_JOB_ID"] + chr(10))
os.makedirs(os.path.join(out, "step 10", "-rf"), exist_ok=True)
for name in ("weights", "-rf/$(touch evil) `x`;'q'", "a*[b]?", " two\\nlines\\\\#012 ", "über"):
    with open(os.path.join(out, "step 10", name), "wb") as stream:
        stream.write(name.encode() * 1000)
with open(os.path.join(os.fsencode(out), b"caf\\xe9"), "w"):
    pass
if not os.path.lexists(os.path.join(out, "latest")):
    os.symlink("step 10", os.path.join(out, "latest"))
"""


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Sshd]:
    daemon = Sshd(tmp_path / "there").start()
    (daemon.folder / "kept").mkdir()
    yield daemon
    daemon.close()


@pytest.fixture
def person(project: Project, there: Sshd) -> Project:
    """A person whose account of the machine knows the daemon as `nas`, by its own ssh configuration."""
    knows(project, there)
    (project.folder / "train.py").write_text(TRAINER)
    return project


def knows(project: Project, there: Sshd) -> None:
    config = there.write_client("nas")
    tools = project.person.home / ".local/bin"
    tools.mkdir(parents=True, exist_ok=True)
    # ssh reads the configuration of the account's entry in passwd, whatever HOME says.
    (tools / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {config} "$@"\n')
    (tools / "ssh").chmod(0o755)


def write(project: Project, upload: str, more: str = "") -> None:
    project.write("python3 train.py", more=f"checkpoints: {{upload: {{{upload}}}}}\n{more}")


def log(project: Project, step: str) -> str:
    return project.run("logs", "quick", "--step", step).stdout


def files(folder: Path) -> dict[bytes, bytes]:
    """Every file below, links followed."""
    walked = os.walk(os.fsencode(folder), followlinks=True)
    paths = [os.path.join(above, name) for above, _, names in walked for name in names]
    return {os.path.relpath(path, os.fsencode(folder)): Path(os.fsdecode(path)).read_bytes() for path in paths}


def test_checkpoints_go_over_ssh_and_are_compared_byte_for_byte(person: Project, there: Sshd) -> None:
    write(person, f"to: 'ssh://nas{there.folder}/kept/'")
    planned = flat(person.run("plan", "run.yaml"))
    assert f"to ssh://nas{there.folder}/kept/<run id>/ with rsync; must be verified" in planned, planned
    done = person.run("apply", "run.yaml", "--yes", "--follow", timeout_s=300)
    assert done.returncode == 0, flat(done) + log(person, "setup") + log(person, "upload")
    job = person.job()
    assert job["status"] == "succeeded" and job["job"]["upload"]["verified"] and job["job"]["upload"]["files"] == 11
    folder = there.folder / "kept" / job["job"]["run_id"]
    found, wanted = files(folder), files(Path(job["job"]["checkpoints"]["path"]))
    manifest = json.loads(found.pop(b"aicrun-manifest.json"))
    assert found == wanted and len(wanted) == 11 == len(manifest["files"])
    assert "can be written to" in log(person, "setup")
    assert "11 of 11 files agree read again there, all by their sizes" in log(person, "upload"), log(person, "upload")
    assert not (there.folder / "evil").exists() and not (person.person.home / "evil").exists()
    assert person.run("upload", "quick").returncode == 0 and len(person.starts()) == 1


def test_what_cannot_be_written_to_is_told_before_anything_trains(person: Project, there: Sshd) -> None:
    write(person, f"to: 'ssh://nas{there.folder}/gone/deep/', layout: exact")
    done = person.run("apply", "run.yaml", "--yes", "--follow", timeout_s=300)
    assert done.returncode == 10 and person.job()["reason"] == "setup_failed" and person.starts() == [], flat(done)
    told = log(person, "setup").splitlines()[-1]
    assert f"the folder above must be there: ssh nas 'mkdir -p {there.folder}/gone'" in told, told
    assert list((there.folder / "kept").iterdir()) == []


def test_a_machine_without_ssh_is_rejected_with_how_to_get_it(person: Project, there: Sshd) -> None:
    tools = person.person.home / "rsync-alone"
    tools.mkdir()
    (tools / "rsync").symlink_to(str(shutil.which("rsync")))
    write(person, "to: 'ssh://nas/kept'", more=f"env: {{PATH: {tools}}}\n")
    planned = person.run("plan", "run.yaml")
    assert planned.returncode == 5, flat(planned)
    told = "checkpoints are uploaded with ssh, which is no program there: apt install openssh-client"
    assert told in flat(planned) and "with rsync, which" not in flat(planned), flat(planned)
