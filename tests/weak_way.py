"""A weak way to a server: a relay of TCP that cuts, slows, refuses, or spoils what was stored, as a test tells it.

It changes no byte of a request that it passes on. It must not know how aicrun uploads.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable

_CHUNK = 1 << 16
_REFUSAL = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>ExpiredToken</Code>'
    b"<Message>The provided token has expired.</Message></Error>"
)
_PUT = re.compile(rb"PUT /([^ ?]*)\S* HTTP/1\.1\r\n")


class WeakWay:
    """Listens at `port` and passes on to `server_port`; all fields may be set while it works.

    `cut_every`: after each so many bytes of all clients, the connection that brought the last one is cut; `holds_out`:
    each connection is cut once it brought so many; 0 for never. `refuses_after`: with `refuses` true, 403 is answered
    once so many bytes came in all. `bytes_per_s`: how fast a connection's bytes pass, 0 for as they come. `stored` is
    called with `bucket/key` after each PUT that was answered, before the client hears of it.
    """

    def __init__(self, server_port: int, address: str = "127.0.0.1") -> None:
        self._server_port, self._address = server_port, address
        self.cut_every = self.holds_out = 0
        self.refuses_after = 0
        self.refuses: Callable[[], bool] = lambda: False
        self.bytes_per_s = 0
        self.stored: Callable[[str], None] = lambda _key: None
        self.passed = 0
        self.refused = self.cuts = 0
        self._count = threading.Lock()
        self._listener = socket.create_server((address, 0))
        self.port = int(self._listener.getsockname()[1])
        self.endpoint = f"http://{address}:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=_Connection(self, client).run, daemon=True).start()

    def connect(self) -> socket.socket:
        """A connection to the server."""
        return socket.create_connection((self._address, self._server_port), 10)

    def count(self, size: int) -> int:
        """All bytes that came from clients, with these."""
        with self._count:
            self.passed += size
            return self.passed


class _Connection:
    def __init__(self, way: WeakWay, client: socket.socket) -> None:
        self._way, self._client = way, client
        self._put = ""
        self._is_over = False

    def run(self) -> None:
        with contextlib.suppress(OSError), self._client:
            self._server = self._way.connect()
            with self._server:
                threading.Thread(target=self._down, daemon=True).start()
                self._up()

    def _up(self) -> None:
        way, seen = self._way, 0
        while chunk := self._client.recv(_CHUNK):
            total, seen = way.count(len(chunk)), seen + len(chunk)
            if total > way.refuses_after and way.refuses():
                return self._refuse()
            is_its_turn = way.cut_every and total // way.cut_every > (total - len(chunk)) // way.cut_every
            if is_its_turn or (way.holds_out and seen > way.holds_out):
                way.cuts += 1
                self._server.close()
                return None
            found = _PUT.match(chunk)
            if found:
                self._put = found.group(1).decode()
            if way.bytes_per_s:
                # The way itself is slow; nothing is waited for.
                threading.Event().wait(len(chunk) / way.bytes_per_s)
            self._server.sendall(chunk)
        return None

    def _refuse(self) -> None:
        self._way.refused += 1
        self._is_over = True
        self._server.close()
        head = f"HTTP/1.1 403 Forbidden\r\nContent-Type: application/xml\r\nContent-Length: {len(_REFUSAL)}\r\n"
        self._client.sendall(head.encode() + b"Connection: close\r\n\r\n" + _REFUSAL)
        self._client.shutdown(socket.SHUT_WR)
        # Closed with bytes unread, the answer would be lost on its way.
        self._client.settimeout(10)
        while self._client.recv(_CHUNK):
            pass

    def _down(self) -> None:
        with contextlib.suppress(OSError):
            while chunk := self._server.recv(_CHUNK):
                key, is_final = self._put, not chunk.startswith(b"HTTP/1.1 100")
                if key and is_final:
                    self._put = ""
                    if chunk.startswith(b"HTTP/1.1 2"):
                        self._way.stored(key)
                self._client.sendall(chunk)
            if not self._is_over:
                self._client.shutdown(socket.SHUT_WR)
