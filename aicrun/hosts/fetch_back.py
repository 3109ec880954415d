"""Brings files of an upload here with a tool of this machine: the agent's own program does it, as a child of ours.

The child has this process's environment, where a person's credentials are; it ends with us. Nothing of the agent is
imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO

from aicrun.errors import TransferFailed
from aicrun.hosts.bundle import PACKAGE
from aicrun.wire.codec import WireError, from_json, load, to_json
from aicrun.wire.fetch import Back, Brought

_TICK_S = 0.25
_LAST_BYTES = 2000


def fetch_back(back: Back, held: int, tick: Callable[[], None]) -> Brought:
    """Copy what `back` names; the child and its tools keep the lock of the descriptor `held`. `tick` comes meanwhile.

    Raises `TransferFailed` (AIC-E647) when the program dies without an answer.
    """
    answer, theirs = os.pipe()
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", str(PACKAGE / "agent" / "boot.py"), "back"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(theirs, held),
            # Ctrl-C is for us: we end, it sees that, and ends its tool.
            start_new_session=True,
        )
    except OSError as error:
        os.close(answer)
        raise TransferFailed("AIC-E647", f"{sys.executable} cannot be started: {error.strerror}") from error
    finally:
        os.close(theirs)
    with child, open(answer, "rb") as told:
        assert child.stdin is not None and child.stdout is not None
        said = _Last(child.stdout)
        child.stdin.write(json.dumps({"back": to_json(back), "answer": theirs, "held": [held]}).encode() + b"\n")
        child.stdin.flush()
        while _runs(child):
            tick()
        raw = told.read()
    try:
        return from_json(Brought, load(raw))
    except WireError as error:
        why = said.words or f"it ended with {child.returncode}"
        raise TransferFailed("AIC-E647", f"{back.subject}: the program that fetches ended badly: {why}") from error


def _runs(child: subprocess.Popen[bytes]) -> bool:
    try:
        child.wait(_TICK_S)
    except subprocess.TimeoutExpired:
        return True
    return False


class _Last:
    """The last words of a program, read to its end beside us."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._raw = b""
        self._reading = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._reading.start()

    @property
    def words(self) -> str:
        """Its last line."""
        self._reading.join()
        lines = self._raw.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""

    def _read(self, stream: IO[bytes]) -> None:
        for part in iter(lambda: os.read(stream.fileno(), 1 << 16), b""):
            self._raw = (self._raw + part)[-_LAST_BYTES:]
