"""Where a test stands between clients and agents of the fleet: told of each place of the protocol, on each machine.

Each host's sshd runs `ssh/gatekeeper.py` in place of every command, which asks here by a socket of the file system: the
only thing that hosts in networks of their own share with the test.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from ssh.trap import ANSWER, GATEKEEPER, REQUEST

__all__ = ["ANSWER", "REQUEST", "Turnstile"]


class Turnstile:
    """`met` has every (machine, place, side) since `set`; `sprung` whether the place that was set was among them."""

    def __init__(self) -> None:
        # A socket's path has 107 characters, and a test's folder is long.
        self._folder = Path(tempfile.mkdtemp(prefix="aicrun-gate-"))
        self._listeners: list[socket.socket] = []
        self._lock = threading.Lock()
        self.met: list[tuple[str, str, str]] = []
        self.sprung = False
        self._at: frozenset[tuple[str, str, str]] = frozenset()
        self._deed: Callable[[], str] = lambda: "go"

    def option(self, name: str) -> str:
        """What the sshd of host `name` must be told."""
        path = self._folder / name
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(64)
        self._listeners.append(listener)
        threading.Thread(target=self._serve, args=(listener, name), daemon=True).start()
        return f"ForceCommand {sys.executable} -I -S {GATEKEEPER} {path}"

    def set(self, *at: tuple[str, str, str], deed: Callable[[], str] = lambda: "go") -> None:
        """At the first of these places do `deed`, once; it says what becomes of the message there."""
        with self._lock:
            self._at, self._deed, self.sprung, self.met = frozenset(at), deed, False, []

    def close(self) -> None:
        """Listen no more."""
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        shutil.rmtree(self._folder)

    def _serve(self, listener: socket.socket, name: str) -> None:
        while True:
            try:
                way, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(way, name), daemon=True).start()

    def _answer(self, way: socket.socket, name: str) -> None:
        with way, contextlib.suppress(OSError, ValueError):
            place, side = way.makefile("rb").readline().decode().split()
            way.sendall(f"{self._came((name, place, side))}\n".encode())

    def _came(self, here: tuple[str, str, str]) -> str:
        with self._lock:
            self.met.append(here)
            if self.sprung or here not in self._at:
                return "go"
            self.sprung = True
            return self._deed()
