"""Whether the other side of a connection is still there: asked after a silence, and ended when it does not answer.

A network that drops packets says nothing, and a call would wait for its own deadline, which may be an hour. It must not
know what carries: it is told how to ask.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from aicrun.hosts.alarm import after

# In the time after which is asked.
_LOOKS_EACH = 8
_AHEAD_BYTES = 64 * 1024


class _Heard:
    """A socket that notes when something came through it last, by the monotonic clock, and reads ahead.

    A packet is asked for as its head and its rest: two calls of the kernel, each behind a wait, where one does.
    """

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._ahead = memoryview(b"")
        self.heard_at = time.monotonic()

    def recv(self, most: int) -> bytes:
        """What has come, at most that many bytes."""
        if not self._ahead:
            self._ahead = memoryview(self._sock.recv(max(most, _AHEAD_BYTES)))
            self.heard_at = time.monotonic()
        data, self._ahead = bytes(self._ahead[:most]), self._ahead[most:]
        return data

    def close(self) -> None:
        """Close it; behind a hop it may be a channel of a connection that is gone already."""
        # Its reader closes it as the last thing it does: nobody could catch what is raised there.
        with contextlib.suppress(OSError, EOFError):
            self._sock.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def heard_of(sock: Any) -> Any:
    """The same socket, or what stands for one, as a `Pulse` needs it."""
    return _Heard(sock)


class Carried(Protocol):
    """A connection: `sock` is one that `heard_of` made."""

    sock: Any

    def close(self) -> None:
        """End it."""
        ...


class Pulse:
    """Asks after `every_s` of silence, again and again; ends the connection when nothing comes for `most` times that.

    `ask` may block until it is answered or the connection is over; what it raises is no answer.
    """

    def __init__(self, ask: Callable[[], None], connection: Carried, every_s: float, most: int) -> None:
        self.said = ""
        self._ask, self._connection, self._every_s, self._most = ask, connection, every_s, most
        self._over = threading.Event()
        self._asking: threading.Thread | None = None
        # Most connections are over before their first silence: none has a thread until then.
        self._alarm = after(every_s, self._look)

    def stop(self) -> None:
        """Ask no more."""
        self._over.set()
        self._alarm.cancel()

    def _look(self) -> None:
        sock = self._connection.sock
        if sock.heard_at + self._every_s <= time.monotonic() and not self._over.is_set() and not self._answered():
            # Why it ended, for whoever finds it so.
            self.said = f"nothing was heard for {self._every_s * self._most:.0f}s"
            self._connection.close()
        elif not self._over.is_set():
            self._alarm = after(max(sock.heard_at + self._every_s - time.monotonic(), 0.0), self._look)
            if self._over.is_set():
                # Stopped meanwhile, when this one was not there to be cancelled.
                self._alarm.cancel()

    def _answered(self) -> bool:
        """True as soon as anything came since the question, or nobody wants to know any more.

        Looks are counted, not seconds: a time in which this process stood still is nobody's silence.
        """
        sock = self._connection.sock
        # Before the question: its answer may be here before this thread goes on.
        heard_at = sock.heard_at
        for look in range(self._most * _LOOKS_EACH):
            if look % _LOOKS_EACH == 0 and (self._asking is None or not self._asking.is_alive()):
                self._asking = threading.Thread(target=self._asked, daemon=True)
                self._asking.start()
            if self._over.wait(self._every_s / _LOOKS_EACH) or sock.heard_at != heard_at:
                return True
        return False

    def _asked(self) -> None:
        # Any fault: it is the silence that decides.
        with contextlib.suppress(Exception):
            self._ask()
