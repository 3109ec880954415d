"""Where a test decides what happens to a connection, and when: at a place of the agent's protocol, on either way.

A place is a call of the agent (`reserve`, `confirm`, …), or `bootstrap` (its first lines), `push` (its archive, half
of it), `close` (the client's end of input). `gatekeeper.py` on the machine's side asks here before it passes on.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass
from pathlib import Path

from ssh.relay import Relay

GATEKEEPER = Path(__file__).with_name("gatekeeper.py")
# The words by which an agent is known among processes.
AGENT = "import sys;s=sys.stdin.buffer"
REQUEST, ANSWER = "request", "answer"
# A reset; silence; everything late by a little; a request that arrives after the client gave it up; a slow line.
CUT, DROP, STALL, LATE, DELAY = "cut", "drop", "stall", "late", "delay"
FAULTS = (CUT, DROP, STALL, LATE, DELAY)
# How long a silence is taken for a slow line; what is late comes after that, what stalls before.
SILENCE_S = 10
STALL_S, LATE_S, DELAY_S = 1.5, 15.0, 0.05


@dataclass(frozen=True)
class Snare:
    """A fault at a place, before its request or its answer has passed; `lasting`: until the relay is healed."""

    place: str
    side: str
    fault: str
    lasting: bool = False

    def __str__(self) -> str:
        return f"{self.place}-{self.side}-{self.fault}{'-lasting' if self.lasting else ''}"


class Trap:
    """Listens for gatekeepers; `met` has all (place, side) since `set`, `sprung` whether the snare's was among them."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.met: list[tuple[str, str]] = []
        self.sprung = False
        self._snare: Snare | None = None
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        relay.reached = lambda place: self._came((place, REQUEST)) and None
        threading.Thread(target=self._serve, daemon=True).start()

    def set(self, snare: Snare | None) -> None:
        """Wait for this one, once; None: for nothing."""
        with self._lock:
            self._snare, self.sprung, self.met = snare, False, []

    def close(self) -> None:
        """Listen no more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                way, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(way,), daemon=True).start()

    def _answer(self, way: socket.socket) -> None:
        with way, contextlib.suppress(OSError, ValueError):
            place, side = way.makefile("rb").readline().decode().split()
            way.sendall(f"{self._came((place, side))}\n".encode())

    def _came(self, here: tuple[str, str]) -> str:
        """What is to be done with what came to this place."""
        with self._lock:
            self.met.append(here)
            snare = self._snare
            if snare is None or self.sprung or (snare.place, snare.side) != here:
                return "go"
            self.sprung = True
            return self._spring(snare)

    def _spring(self, snare: Snare) -> str:
        relay, is_request = self.relay, snare.side == REQUEST
        if snare.fault == CUT:
            relay.cut(lasting=snare.lasting)
            return "withhold" if is_request else "go"
        if snare.fault == DROP:
            relay.drop(lasting=snare.lasting)
            return "withhold" if is_request else "go"
        if snare.fault == STALL:
            relay.stall(STALL_S)
            return f"hold {STALL_S}" if is_request else "go"
        if snare.fault == LATE:
            relay.stall(LATE_S, alone=True)
            return f"hold {LATE_S}" if is_request else "go"
        relay.delay_s = DELAY_S
        return "go"
