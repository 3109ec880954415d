"""A question that may hang or crash whoever asks it, asked in a fork of this process, which has all loaded already.

Only for a process of one thread: of several a fork copies one alone. The fork keeps none of our descriptors, so that
one that hangs for good holds no lock and no connection.
"""

import os
import select
import sys
import time
from typing import TYPE_CHECKING, Callable, List, NoReturn, Optional

from aicrun.agent import later
from aicrun.agent.handles import close_all_but
from aicrun.wire import lean

if TYPE_CHECKING:
    import signal
else:
    signal = later.module("signal")

FAILED = 1
# How long one that was killed is waited for: a process that hangs in a driver may not die.
DIES_WITHIN_S = 1.0
_LOOK_S = (0.0005, 0.05)
_CHUNK_BYTES = 65536


@lean.dataclass(frozen=True)
class Told:
    """`said` is what came back; `code` as of a subprocess, minus a signal's number, None when its time was over."""

    said: bytes
    code: Optional[int]


def can_fork() -> bool:
    """Whether this process has one thread."""
    threading = sys.modules.get("threading")
    return threading is None or threading.active_count() == 1


def ask(question: Callable[[], bytes], deadline_s: float) -> Told:
    """What `question` gives there, or one line about what it raised, with `FAILED`; raises `OSError` without a process.

    What it prints is lost. The whole group of one that is late is killed.
    """
    end = time.monotonic() + deadline_s
    reader, writer = os.pipe()
    try:
        pid = os.fork()
        if not pid:
            _answer(question, writer)
    finally:
        os.close(writer)
    try:
        said = _read(reader, end)
    finally:
        os.close(reader)
    code = _ended(pid, end)
    if code is None:
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            # Gone by now, or not even a group of its own yet.
            pass
        _ended(pid, time.monotonic() + DIES_WITHIN_S)
    return Told(said, code)


def _answer(question: Callable[[], bytes], writer: int) -> NoReturn:
    code = FAILED
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        close_all_but((writer,))
        try:
            said = question()
            code = 0
        except Exception as error:  # noqa: BLE001  the edge of this process
            said = ("%s: %s" % (type(error).__name__, error)).encode("utf-8", "replace")
        while said:
            said = said[os.write(writer, said) :]
    finally:
        # Nothing of what the other process would do at its end is ours to do.
        os._exit(code)


def _read(reader: int, end: float) -> bytes:
    waiting = select.poll()
    waiting.register(reader, select.POLLIN)
    parts: List[bytes] = []
    while True:
        left_s = end - time.monotonic()
        if left_s <= 0 or not waiting.poll(left_s * 1000):
            return b"".join(parts)
        part = os.read(reader, _CHUNK_BYTES)
        if not part:
            return b"".join(parts)
        parts.append(part)


def _ended(pid: int, end: float) -> Optional[int]:
    """How it ended, None when it lives at `end`."""
    pause_s, longest_s = _LOOK_S
    while True:
        try:
            found, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            # Nobody is told how a child ends where SIGCHLD is ignored.
            return 0
        if found:
            return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        if time.monotonic() >= end:
            return None
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, longest_s)
