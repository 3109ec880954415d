"""A line of so many milliseconds: passes on what comes, each piece so much later, however many are on their way.

For `reach.py`; what the relay of the tests delays stands in a queue, which a line of that length does not do.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time


class Far:
    """Listens on `port` and passes everything on to the port `to` of loopback, `delay_s` later each way."""

    def __init__(self, to: int, delay_s: float) -> None:
        self._to, self._delay_s = to, delay_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Take no new connection."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                for source, target in ((near, far), (far, near)):
                    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    pieces: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
                    threading.Thread(target=self._read, args=(source, pieces), daemon=True).start()
                    threading.Thread(target=self._write, args=(target, pieces), daemon=True).start()

    def _read(self, source: socket.socket, pieces: queue.SimpleQueue[tuple[float, bytes]]) -> None:
        data = b"-"
        while data:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            pieces.put((time.monotonic() + self._delay_s, data))

    def _write(self, target: socket.socket, pieces: queue.SimpleQueue[tuple[float, bytes]]) -> None:
        with contextlib.suppress(OSError):
            while True:
                due, data = pieces.get()
                time.sleep(max(0.0, due - time.monotonic()))
                if not data:
                    target.shutdown(socket.SHUT_WR)
                    return
                target.sendall(data)
