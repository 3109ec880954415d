"""A child of this process with its pipes, as a channel: what the local way and OpenSSH share. It knows neither."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from typing import IO

from aicrun.errors import AicrunError

STDERR_CAP_BYTES = 4096
PIPE_BYTES = 1024 * 1024


def _widen(handle: int) -> None:
    """Let a pipe hold more, so that neither end waits for each piece; where that is not to be had, nothing."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(handle, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


class PipedChannel:
    """A program with its pipes; raises `OSError` when it cannot be started. `cwd` None: where this process is."""

    def __init__(self, argv: tuple[str, ...], env: Mapping[str, str], cwd: str | None = None) -> None:
        # In a file, not a pipe: nobody has to read it for the program to go on.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `close`
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,
            )
        except OSError:
            self._stderr.close()
            raise
        if self._process.stdin is None or self._process.stdout is None:
            raise AssertionError("both pipes were asked for")
        for pipe in (self._process.stdin, self._process.stdout):
            _widen(pipe.fileno())
        self.stdin: IO[bytes] = self._process.stdin
        self.stdout: IO[bytes] = self._process.stdout

    def stderr_text(self) -> str:
        """What the program wrote on stderr so far, at most 4 KiB; nothing once the channel is closed."""
        if self._stderr.closed:
            return ""
        return os.pread(self._stderr.fileno(), STDERR_CAP_BYTES, 0).decode("utf-8", "replace")

    def fault(self, seen: bytes | None = None) -> AicrunError | None:  # noqa: ARG002
        """None: nothing lies between this process and its child that could fail."""
        return None

    def abort(self) -> None:
        """End the child at once, so that a read that is going on sees the end."""
        self._process.kill()

    def close(self, timeout_s: float = 5.0) -> int | None:
        """Close both pipes; the exit code, or None when the child did not end in time (`_leave` says what then)."""
        for stream in (self.stdin, self.stdout):
            try:
                stream.close()
            except BrokenPipeError:
                continue
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._leave()
            # Whenever it ends, it is no zombie of ours.
            threading.Thread(target=self._process.wait, daemon=True).start()
            return None
        finally:
            self._stderr.close()

    def _leave(self) -> None:
        """The child is left alone."""
