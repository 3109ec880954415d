"""A TCP relay that counts what passes and breaks on demand: cut by a reset, dropped in silence, stalled, delayed."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable

_RESET = struct.pack("ii", 1, 0)
FOR_GOOD = float("inf")
# Places before a word of ours is said: a new connection, and the middle of its key exchange.
CONNECT, HANDSHAKE = "connect", "handshake"
_HANDSHAKE_BYTES = 1200


class _Pair:
    """Both ends of one connection; nothing passes before `held_until` (of the monotonic clock)."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near, self.far = near, far
        self.held_until = 0.0
        self.passed = 0

    def reset(self) -> None:
        """End both ends at once, as a router does that forgot the connection."""
        for end in (self.near, self.far):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Relay:
    """Listens on `port` and passes everything on to another one of loopback.

    `left`: connections that are still dropped at once. `budget`: bytes that may pass, both ways together, until all
    connections are reset and new ones are dropped; None: no end. `delay_s` holds every piece back that long. Of each
    connection nothing passes for good from the piece on that would make it more than `mute_after` bytes.
    """

    def __init__(
        self,
        to: int,
        *,
        left: int = 0,
        budget: int | None = None,
        delay_s: float = 0.0,
        mute_after: float = FOR_GOOD,
    ) -> None:
        self.to, self.left, self.budget, self.delay_s, self.mute_after = to, left, budget, delay_s, mute_after
        self.dropped = self.passed = 0
        # Told of each `CONNECT` and `HANDSHAKE` before what follows passes.
        self.reached: Callable[[str], None] = lambda place: None
        self._changed = threading.Condition()
        self._path_held_until = 0.0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: list[_Pair] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def cut(self, *, lasting: bool = False) -> None:
        """Reset every connection; `lasting`: new ones are dropped too, until `heal`."""
        with self._changed:
            self.budget = 0 if lasting else self.budget
        self._reset()

    def drop(self, *, lasting: bool = False) -> None:
        """From now on nothing passes on the connections that are open, which stay open; `lasting`: nor on new ones."""
        self.stall(FOR_GOOD, alone=not lasting)

    def stall(self, seconds: float, *, alone: bool = False) -> None:
        """Hold everything back that long, then let it pass; `alone`: only on the connections that are open now."""
        end = time.monotonic() + seconds
        with self._changed:
            if not alone:
                self._path_held_until = end
            for pair in self._open:
                pair.held_until = end
            self._changed.notify_all()

    def heal(self) -> None:
        """Let everything pass from now on; what was dropped is found to be dead at last."""
        with self._changed:
            self.budget, self.left, self.delay_s, self._path_held_until = None, 0, 0.0, 0.0
            dead = [pair for pair in self._open if pair.held_until == FOR_GOOD]
            self._open = [pair for pair in self._open if pair not in dead]
            for pair in dead:
                pair.held_until = 0.0
            self._changed.notify_all()
        for pair in dead:
            pair.reset()

    def close(self) -> None:
        """End everything."""
        # A thread that waits in accept is woken by a shutdown, not by a close.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.heal()
        self._reset()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._changed:
                drops = self.left > 0 or self.budget == 0
                self.left = max(0, self.left - 1)
            if drops:
                self.dropped += 1
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                near.close()
                continue
            pair = _Pair(near, far)
            with self._changed:
                pair.held_until = self._path_held_until
                self._open.append(pair)
            self.reached(CONNECT)
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._pipe, args=(pair, source, target), daemon=True).start()

    def _pipe(self, pair: _Pair, source: socket.socket, target: socket.socket) -> None:
        wait = threading.Event()
        try:
            while data := source.recv(65536):
                if self.delay_s:
                    wait.wait(self.delay_s)
                if pair.passed < _HANDSHAKE_BYTES <= pair.passed + len(data):
                    self.reached(HANDSHAKE)
                with self._changed:
                    if pair.passed + len(data) > self.mute_after:
                        pair.held_until = FOR_GOOD
                    pair.passed += len(data)
                    self._until_let_through(pair)
                    may = len(data) if self.budget is None else min(len(data), self.budget)
                    self.budget = None if self.budget is None else self.budget - may
                    self.passed += may
                    is_over = self.budget == 0
                target.sendall(data[:may])
                if is_over:
                    self._reset()
                    return
            with self._changed:
                self._until_let_through(pair)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def _until_let_through(self, pair: _Pair) -> None:
        while (left := pair.held_until - time.monotonic()) > 0:
            self._changed.wait(min(left, 3600.0))

    def _reset(self) -> None:
        with self._changed:
            ended, self._open = self._open, []
        for pair in ended:
            pair.reset()
