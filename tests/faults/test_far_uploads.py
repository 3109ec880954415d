"""Uploads to a host behind ssh and to the hub that fail: the run's end says so, and the next try sends what lacks."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import hub_rig
import pytest
from agent_rig import Rig
from faults.test_uploads import starts, trained
from hub_rig import TOKEN, Hub
from ssh_rig import SSHD, Sshd
from support import until

from aicrun.wire.jobs import Upload
from aicrun.wire.status import Status, status_of

WAITS = 'while [ ! -e "$HOME/go" ]; do sleep 0.05; done'


@pytest.fixture
def there(rig: Rig, tmp_path: Path) -> Iterator[Sshd]:
    """A host behind ssh that the account of the rig knows as `nas`."""
    if not (SSHD and shutil.which("rsync")):
        pytest.skip("no sshd or no rsync at hand")
    daemon = Sshd(tmp_path / "there").start()
    (daemon.folder / "kept").mkdir()
    tool(rig, "ssh", f'#!/bin/sh\nexec {shutil.which("ssh")} -F {daemon.write_client("nas")} "$@"\n')
    yield daemon
    daemon.close()


def tool(rig: Rig, name: str, text: str) -> None:
    tools = rig.home / ".local/bin"
    tools.mkdir(parents=True, exist_ok=True)
    (tools / name).write_text(text)
    (tools / name).chmod(0o755)


def test_a_host_behind_ssh_that_is_gone_fails_no_run_that_does_not_require_it(rig: Rig, there: Sshd) -> None:
    address = f"ssh://nas{there.folder}/kept/x/"
    upload = Upload(address, "ssh", address, "exact", tool="rsync", required=False)
    job = trained(rig, WAITS, upload)
    rig.running(job)
    there.close()
    (rig.home / "go").touch()
    report = rig.ended(job, 120)
    assert report.upload is not None and "this host does not reach it" in report.upload.error, report.upload
    assert not report.upload.verified and rig.log(job, "upload").count(b"trying again in") == 5
    assert status_of(report).status is Status.SUCCEEDED, status_of(report)
    there.start()
    rig.call("upload", job_id=job, by="ana")
    until(lambda: (found := rig.report(job).upload) is not None and found.verified, 60)
    assert (there.folder / "kept/x/step-2/model").read_text() == "1234567\n" and starts(rig) == 1


def test_a_token_goes_to_the_tool_and_to_no_log_record_or_command_line(rig: Rig) -> None:
    tool(rig, "hf", hub_rig.TOOL.replace("PYTHON", sys.executable))
    hub = Hub()
    try:
        upload = Upload("hf:me/model/x", "hf", "hf:me/model/x", "exact", tool="hf")
        secrets = {"HF_TOKEN": {"value": TOKEN, "for": "upload"}}
        job = trained(rig, "true", upload, secrets=secrets, variables={"HF_ENDPOINT": hub.endpoint})
        report = rig.ended(job, 120)
        assert status_of(report).status is Status.SUCCEEDED, rig.log(job, "setup") + rig.log(job, "upload")
        assert hub.files["x/step-2/model"] == b"1234567\n" and "x/aicrun-manifest.json" in hub.files
        assert b"can be written to" in rig.log(job, "setup")
        kept = [path for path in rig.home.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
        assert kept == []
    finally:
        hub.close()
