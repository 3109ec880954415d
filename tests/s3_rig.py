"""A real S3 server of this machine (`rclone serve s3`), and the tools that fetch from it, where they are at hand."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

from support import until

# As long as a secret must be.
KEY, SECRET = "test-key-0001", "s3cr3t-key-of-a-test"
LARGE_BYTES = 3 << 20


def rclone() -> Path | None:
    """The program, from its package; None where there is none."""
    found = Path(sys.executable).parent / "rclone"
    other = shutil.which("rclone")
    return found if found.exists() else Path(other) if other else None


def aws() -> Path | None:
    """The AWS command line of this machine, not a wrapper that chooses one by the person's settings."""
    found = shutil.which("aws")
    for place in filter(None, (Path(sys.base_prefix) / "bin" / "aws", Path(found) if found else None)):
        if place.exists() and "shims" not in place.parts:
            return place
    return None


def give(home: Path, *programs: Path | None) -> None:
    """Put programs where every job of the account finds them."""
    tools = home / ".local/bin"
    tools.mkdir(parents=True, exist_ok=True)
    for program in programs:
        if program is not None:
            (tools / program.name).symlink_to(program)


class S3:
    """A server with one bucket, `bucket`; the files lie in `folder`. `close` ends it."""

    def __init__(self, top: Path, address: str = "127.0.0.1") -> None:
        self._top, self._address = top, address
        self.folder = top / "served" / "bucket"
        self.folder.mkdir(parents=True)
        with socket.socket() as probe:
            probe.bind((address, 0))
            self.port = probe.getsockname()[1]
        self.endpoint = f"http://{address}:{self.port}"
        self.log = top / "s3.log"
        self._child = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        program = rclone()
        if program is None:
            raise AssertionError("no rclone")
        address = ["--addr", f"{self._address}:{self.port}", "--auth-key", f"{KEY},{SECRET}"]
        with self.log.open("ab") as stream:
            child = subprocess.Popen(
                [str(program), "serve", "s3", "--config", "/dev/null", *address, str(self.folder.parent)],
                env={"PATH": os.environ["PATH"], "HOME": str(self._top)},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
            )
        until(self._answers)
        return child

    def again(self) -> None:
        """Answer again at the same address, after `close`."""
        self._child = self._started()

    def corpus(self) -> None:
        """A folder of three files, one of them large."""
        (self.folder / "corpus" / "a").mkdir(parents=True)
        (self.folder / "corpus" / "a" / "large.bin").write_bytes(os.urandom(LARGE_BYTES))
        (self.folder / "corpus" / "one.txt").write_text("one\n")
        (self.folder / "corpus" / "two words.txt").write_text("two\n")

    def pause(self) -> None:
        """Who asks waits, until `go_on`."""
        self._child.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Answer again."""
        self._child.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """No more answers."""
        self._child.kill()
        self._child.wait()

    def _answers(self) -> bool:
        try:
            socket.create_connection((self._address, self.port), 1).close()
        except OSError:
            return False
        return True
