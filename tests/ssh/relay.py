"""A TCP relay that counts what passes and breaks on demand: after so many bytes, with a reset, or by silence."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

_RESET = struct.pack("ii", 1, 0)


class Relay:
    """Listens on `port` and passes everything on to another one of loopback.

    `left`: connections that are still dropped at once. `budget`: bytes that may pass, both ways together, until all
    connections are reset and new ones are dropped; None: no end. `delay_s` holds every piece back that long.
    """

    def __init__(self, to: int, *, left: int = 0, budget: int | None = None, delay_s: float = 0.0) -> None:
        self.to, self.left, self.budget, self.delay_s = to, left, budget, delay_s
        self.dropped = self.passed = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def heal(self) -> None:
        """Let everything pass from now on."""
        with self._lock:
            self.budget, self.left = None, 0

    def close(self) -> None:
        """End everything."""
        # A thread that waits in accept is woken by a shutdown, not by a close.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._reset()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
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
            with self._lock:
                self._open += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._pipe, args=(source, target), daemon=True).start()

    def _pipe(self, source: socket.socket, target: socket.socket) -> None:
        wait = threading.Event()
        try:
            while data := source.recv(65536):
                if self.delay_s:
                    wait.wait(self.delay_s)
                with self._lock:
                    may = len(data) if self.budget is None else min(len(data), self.budget)
                    self.budget = None if self.budget is None else self.budget - may
                    self.passed += may
                    is_over = self.budget == 0
                target.sendall(data[:may])
                if is_over:
                    self._reset()
                    return
            target.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def _reset(self) -> None:
        with self._lock:
            ended, self._open = self._open, []
        for one in ended:
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
