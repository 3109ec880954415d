"""Runs one tool of a fetch: what it says goes into the step's log, its last words are kept, its time is the fetch's.

It must not decide whether what failed is tried again.
"""

import os
import re
import signal
from typing import IO, TYPE_CHECKING, List, Sequence

from aicrun.agent import later
from aicrun.agent.build import Listener, SetupFailed, Workshop

if TYPE_CHECKING:
    import subprocess
    import threading
else:
    subprocess, threading = later.module("subprocess"), later.module("threading")

_WHY_CHARACTERS = 300
# What rsync says only because something before went wrong, and what would be taken for a network's fault.
_ECHO = re.compile(
    r"rsync error: |rsync: (?:\[\w+\] )?(?:connection unexpectedly closed|write error: Broken pipe)|"
    r"\(see the rsync manpage"
)


class NoRoom(Exception):
    """What is fetched does not fit, in words."""


class ToolFailed(Exception):
    """A tool ended badly: `said` are its last words, `why` one line of them; `passing`: it is surely worth a try."""

    def __init__(self, why: str, said: str = "", passing: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.said = said
        self.passing = passing


def run(argv: Sequence[str], shop: Workshop, doing: str, captures: bool = False) -> bytes:
    """Run `argv` to its end; with `captures` what it writes to stdout, which is in no log then.

    Raises `ToolFailed` for any end but exit code 0, `SetupFailed` when the time is over (then its group is ended).
    """
    left_s = shop.left_s(doing)
    try:
        child = subprocess.Popen(
            list(argv),
            cwd="/",
            env=shop.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if captures else subprocess.STDOUT,
            pass_fds=shop.held,
            preexec_fn=os.setpgrp,
        )
    except OSError as error:
        raise SetupFailed("%s: %s cannot be started: %s" % (doing, argv[0], error.strerror)) from error
    shop.running = child.pid
    said = Listener(child.stderr if captures else child.stdout)
    collected = _Collector(child.stdout) if captures and child.stdout else None
    try:
        code = child.wait(left_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        said.last_words()
        shop.left_s(doing)
        raise
    finally:
        shop.running = 0
    last, out = _without_echoes(said.last_words()), collected.all() if collected else b""
    if code != 0:
        ended = "it was ended by signal %d" % -code if code < 0 else "it ended with exit code %d" % code
        raise ToolFailed("%s says: %s" % (os.path.basename(argv[0]), _line(last) or ended), last)
    return out


class _Collector:
    """Everything that a program writes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._parts: List[bytes] = []
        self._thread = threading.Thread(target=self._collect, args=(stream,), daemon=True)
        self._thread.start()

    def all(self) -> bytes:
        """All of it, once the program is gone."""
        self._thread.join()
        return b"".join(self._parts)

    def _collect(self, stream: IO[bytes]) -> None:
        with stream:
            for part in iter(lambda: stream.read(1 << 16), b""):
                self._parts.append(part)


def _without_echoes(said: str) -> str:
    lines = said.splitlines(True)
    return "".join(line for line in lines if not _ECHO.match(line)) or said


def _line(said: str) -> str:
    """The last line that says something; a hint how to see more is none."""
    lines = [" ".join(line.split()) for line in said.replace("\r", "\n").splitlines() if line.strip()]
    lines = [line for line in lines if not line.lower().startswith("hint:")] or lines
    return lines[-1][:_WHY_CHARACTERS] if lines else ""
