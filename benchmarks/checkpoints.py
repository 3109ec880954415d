"""Checkpoints to their target and back: the upload step of a run and `aicrun fetch`, beside the bare tools.

A checkpoint of 8 large files and 12 small ones goes to an S3 server (`rclone serve s3`) with each tool, and to a
folder behind ssh and to one of the machine; the upload step's own time, from its start to the verified end, stands
beside `aws s3 cp --recursive`, `rclone copy`, `rsync -r` and `cp -r` of the same files, which verify little or nothing.
Back it comes as a whole `aicrun fetch`, from the machine over ssh beside `scp -r`, and out of the uploads beside the
same tools. Everything shares this machine's processors and its disk in memory, or the folder of the third argument. It
must not be a test.

    python benchmarks/checkpoints.py [MIB [ROUNDS [FOLDER]]]
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent.parent / "tests")]

import s3_rig  # noqa: E402  the rigs of the tests
from s3_rig import KEY, S3, SECRET  # noqa: E402
from ssh_rig import Sshd  # noqa: E402
from support import Person, end_processes_with  # noqa: E402

from aicrun.hosts.ssh_route import VARIABLE  # noqa: E402

LARGE, SMALL = 8, 12
SMALL_BYTES = 20_000
SECRETS = "secrets: [{AWS_ACCESS_KEY_ID: {for: upload}}, {AWS_SECRET_ACCESS_KEY: {for: upload}}]\n"

Times = dict[str, list[float]]


class Site:
    """A person with the tools, a machine over ssh with the files of a checkpoint, and an S3 server."""

    def __init__(self, folder: Path, mib: int) -> None:
        self.folder, self.home, self.there = folder, folder / "client", folder / "home"
        for path in (self.home, self.there):
            path.mkdir(mode=0o700)
            s3_rig.give(path, s3_rig.rclone(), s3_rig.aws())
        self.data = folder / "data"
        (self.data / "checkpoint-1").mkdir(parents=True)
        for at in range(LARGE):
            with (self.data / f"checkpoint-1/model-{at}.bin").open("wb") as stream:
                for _ in range(mib // LARGE):
                    stream.write(os.urandom(1 << 20))
        for at in range(SMALL):
            (self.data / f"checkpoint-1/state-{at}.json").write_bytes(os.urandom(SMALL_BYTES))
        self.person = Person(self.home)
        self.daemon = Sshd(folder / "sshd", env={"HOME": str(self.there), "PATH": "/usr/bin:/bin"}).start()
        self.config = self.daemon.write_client()
        for path in (self.home, self.there):
            # ssh reads the configuration of the account's entry in passwd, whatever HOME says.
            ssh = path / ".local/bin/ssh"
            ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {self.config} "$@"\n')
            ssh.chmod(0o755)
        self.s3 = S3(folder)
        self.env = dict(
            self.person.env,
            PYTHONPATH=str(Path(__file__).resolve().parent.parent),
            PATH=f"{self.home}/.local/bin:/usr/local/bin:/usr/bin:/bin",
            AWS_ACCESS_KEY_ID=KEY,
            AWS_SECRET_ACCESS_KEY=SECRET,
            RCLONE_S3_ENV_AUTH="true",
            RCLONE_S3_PROVIDER="Other",
            RCLONE_S3_ENDPOINT=self.s3.endpoint,
        )
        self.env[VARIABLE] = str(self.config)
        (self.home / "machines.yaml").write_text("version: 1\nmachines: [{name: box, ssh: box}]\n")

    def upload(self, to: str) -> float:
        """Seconds of the upload step of a run that made these files; `to` is the rest of its upload."""
        (self.home / "run.yaml").write_text(
            f"version: 1\nname: bench\ncommand: cp -r {self.data}/. $AICRUN_CHECKPOINT_DIR\n"
            f"checkpoints: {{upload: {{{to}}}}}\n{SECRETS}"
        )
        self.said("apply", "run.yaml", "--yes", "--follow", "--again")
        job = json.loads(self.said("inspect", "bench", "--json"))["job"]
        return next(float(step["exit"]["duration_s"]) for step in job["steps"] if step["step"] == "upload")

    def fetch(self, *more: str) -> float:
        """Seconds of a whole fetch into a new folder."""
        return self.timed((sys.executable, "-m", "aicrun", "fetch", "bench", "checkpoint-1", "-o", "got", *more))

    def said(self, *words: str) -> str:
        """What an aicrun command prints; one that fails is no measurement."""
        return self.ran((sys.executable, "-m", "aicrun", *words)).stdout

    def ran(self, argv: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        """`argv` to its end, in the person's home."""
        none = subprocess.DEVNULL
        done = subprocess.run(
            argv, cwd=self.home, env=self.env, stdin=none, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(argv)}\n{done.stdout}{done.stderr}")
        return done

    def timed(self, argv: tuple[str, ...]) -> float:
        """Seconds of `argv`."""
        began = time.perf_counter()
        self.ran(argv)
        return time.perf_counter() - began

    def aws(self, *words: str) -> float:
        """Seconds of `aws s3 cp --recursive`."""
        return self.timed(
            ("aws", "s3", "--endpoint-url", self.s3.endpoint, "cp", "--recursive", "--no-progress", *words)
        )

    def rclone(self, *words: str) -> float:
        """Seconds of `rclone copy` with as many transfers as ours."""
        return self.timed(("rclone", "copy", "--config", "/dev/null", "--transfers", "8", *words))

    def clear(self) -> None:
        """Room for the next: what went to targets and came back is gone; runs, records and the agent stay."""
        gone = (*self.there.glob("kept*"), *self.there.glob("peer*"), *self.s3.folder.iterdir())
        for path in (self.home / "got", *gone):
            shutil.rmtree(path, ignore_errors=True)
        for path in self.there.glob("aic-jobs/bench/checkpoints/*"):
            shutil.rmtree(path)
        os.sync()

    def close(self) -> None:
        """End everything."""
        self.s3.close()
        for home in (self.home, self.there):
            end_processes_with(f"HOME={home}\0")
        self.daemon.close()


Deed = Callable[[], float]
Pair = tuple[str, Deed, str, Deed]


def pairs(site: Site, number: int) -> list[Pair]:
    """(ours, its deed, the bare tool, its deed); each fetch comes after the upload that it is of."""
    data, scp = str(site.data), ("scp", "-rq", "-F", str(site.config), f"box:{site.data}", "got")
    copy = partial(site.timed, ("cp", "-r", data, f"{site.there}/peer"))
    sync = partial(site.timed, ("rsync", "-r", f"{data}/", f"box:{site.there}/peer-{number}/"))
    back = partial(site.timed, ("rsync", "-r", f"box:{site.there}/peer-{number}/", "got/"))
    at = f"ssh://box{site.there}/kept-{number}"
    found: list[Pair] = [
        ("upload over ssh", partial(site.upload, f"to: '{at}', layout: exact"), "rsync -r", sync),
        ("fetch over ssh out of it", partial(site.fetch, "--from", at), "rsync -r", back),
        ("upload to a folder", partial(site.upload, "to: 'file:~/kept/'"), "cp -r", copy),
        ("fetch over ssh", site.fetch, "scp -r", partial(site.timed, scp)),
    ]
    tools: list[tuple[str, Callable[..., float], str, str]] = [("rclone", site.rclone, ":s3:bucket/", "rclone copy")]
    tools += [("aws", site.aws, "s3://bucket/", "aws s3 cp --recursive")] if s3_rig.aws() else []
    for tool, deed, bucket, bare in tools:
        # Names of their own for each round: the server remembers for a while what lay there.
        to, peer = f"s3://bucket/{tool}-{number}/", f"{bucket}peer-{tool}-{number}"
        put = partial(site.upload, f"to: {to}, with: {tool}, endpoint: '{site.s3.endpoint}'")
        found.append((f"upload to S3 with {tool}", put, bare, partial(deed, data, peer)))
        back = partial(_with, site, tool, ("--from", to, "--endpoint", site.s3.endpoint))
        found.append((f"fetch out of S3 with {tool}", back, bare, partial(deed, peer, "got")))
    return found


def _with(site: Site, tool: str, back: tuple[str, ...]) -> float:
    """A fetch while the other tool is not at hand."""
    other = site.home / ".local/bin" / {"rclone": "aws", "aws": "rclone"}[tool]
    aside = other.with_suffix(".aside")
    if other.is_symlink():
        other.rename(aside)
    try:
        return site.fetch(*back)
    finally:
        if aside.is_symlink():
            aside.rename(other)


def measured(site: Site, rounds: int) -> dict[tuple[str, str], tuple[list[float], list[float]]]:
    """The seconds of each pair, who goes first alternating; the first round warms up."""
    taken: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
    for number in range(rounds + 1):
        for ours, mine, bare, theirs in pairs(site, number):
            if ours.startswith("upload"):
                site.clear()
            first, second = (mine, theirs) if number % 2 else (theirs, mine)
            one = first()
            shutil.rmtree(site.home / "got", ignore_errors=True)
            two = second()
            shutil.rmtree(site.home / "got", ignore_errors=True)
            if number:
                times = taken.setdefault((ours, bare), ([], []))
                for place, took in enumerate((one, two) if number % 2 else (two, one)):
                    times[place].append(took)
    return taken


def main() -> None:
    """Measure and print."""
    numbers = [int(word) for word in sys.argv[1:3]]
    mib, rounds = (*numbers, *(2048, 3)[len(numbers) :])
    shared = "/dev/shm" if os.path.isdir("/dev/shm") else None
    parent: Any = sys.argv[3] if len(sys.argv) > 3 else shared
    if s3_rig.rclone() is None:
        raise SystemExit("SKIPPED: there is no rclone here, which serves and is compared with")
    folder = Path(tempfile.mkdtemp(prefix="aicrun-checkpoints-", dir=parent))
    site = Site(folder, mib)
    try:
        taken = measured(site, rounds)
    finally:
        site.close()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"a checkpoint of {mib:,} MiB, {rounds} rounds, medians; in {parent or 'the folder for temporary files'}")
    for (ours, bare), (mine, theirs) in taken.items():
        ratios = sorted(one / other for one, other in zip(mine, theirs, strict=True))
        ratio = statistics.median(mine) / statistics.median(theirs)
        line = f"  {ours:30}{statistics.median(mine):8.2f} s   {ratio:5.2f} x"
        print(f"{line} {bare} ({statistics.median(theirs):.2f} s; {ratios[0]:.2f} to {ratios[-1]:.2f} x)", flush=True)


if __name__ == "__main__":
    main()
