"""A program in a pseudo-terminal of its own, typed at and read as a person would. It must not know what is run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path

from support import REPOSITORY, Person

_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-_])")
CTRL_C, CTRL_D = "\x03", "\x04"


class Terminal:
    """`argv` in a terminal of 80 columns and 24 rows; `text` is all that it showed, without colours and moves."""

    def __init__(self, argv: list[str], cwd: Path, env: Mapping[str, str]) -> None:
        self.pid, self._handle = pty.fork()
        if not self.pid:
            try:
                os.chdir(cwd)
                os.execve(argv[0], argv, dict(env))
            finally:
                os._exit(127)
        fcntl.ioctl(self._handle, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self._raw = b""
        self._read_to = 0
        self.code: int | None = None

    @property
    def raw(self) -> str:
        """All that it showed, with colours and moves."""
        return self._raw.decode("utf-8", "replace")

    @property
    def text(self) -> str:
        """All that it showed, as plain lines."""
        return _SEQUENCES.sub("", self.raw).replace("\r\n", "\n")

    def shows(self, words: str, at_most_s: float = 120.0) -> None:
        """Read on until `words` stand behind what was waited for before; fails when they do not come."""
        deadline = time.monotonic() + at_most_s
        while words not in self.text[self._read_to :]:
            ended = not self._take(deadline - time.monotonic())
            if words in self.text[self._read_to :]:
                break
            if ended or time.monotonic() > deadline:
                raise AssertionError(f"{words!r} was not shown; this was:\n{self.text}")
        self._read_to = self.text.index(words, self._read_to) + len(words)

    def type(self, text: str) -> None:
        """Type `text`; the end of a line is `\\n`."""
        os.write(self._handle, text.encode())

    def end(self, at_most_s: float = 120.0) -> tuple[int, str]:
        """Wait for its end: (exit code, all that it showed); a signal counts as 128 and its number."""
        deadline = time.monotonic() + at_most_s
        while self._take(deadline - time.monotonic()):
            if time.monotonic() > deadline:
                raise AssertionError(f"it does not end; it showed:\n{self.text}")
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self.code = code if code >= 0 else 128 - code
        return self.code, self.text

    def close(self) -> None:
        """End it, whatever it does."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
        os.close(self._handle)

    def _take(self, wait_s: float) -> bool:
        """Read what is there within `wait_s`; False at the end of the terminal."""
        ready, _, _ = select.select([self._handle], [], [], max(0.0, wait_s))
        if not ready:
            return True
        try:
            data = os.read(self._handle, 65536)
        except OSError:
            # The kernel's way to say that the last program on it has ended.
            return False
        self._raw += data
        return bool(data)


def aicrun(person: Person, *args: str, cwd: Path | None = None) -> Terminal:
    """`aicrun ARGS` in a terminal, as `person`."""
    env = {name: value for name, value in person.env.items() if name != "COLUMNS"}
    env |= {"PYTHONPATH": str(REPOSITORY), "TERM": "xterm"}
    return Terminal([sys.executable, "-m", "aicrun", *args], cwd or person.home, env)
