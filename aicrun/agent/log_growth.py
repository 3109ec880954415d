"""Waits until something happens in a step's folder: the kernel tells it at once, else it is looked for in ticks.

Where the kernel cannot tell (no library for it, the account's watches are used up, a file system that keeps quiet) a
tick is short while the log grows and long while it does not. It must not read what is written there.
"""

import os
import select
import time
from typing import Callable

from aicrun.wire.calls import ConnectionEnded

# inotify(7), of the kernel's include/uapi/linux/inotify.h.
_MODIFY, _MOVED_TO, _CREATE = 0x2, 0x80, 0x100
_EVENTS_BYTES = 65536

TICKS_S = (0.001, 0.05)
# A tick is that part of the time since the last growth, so that one line is late by no more than that.
_PART = 1 / 16
# So often may it have grown untold: once in a long while it is told just after it was looked at.
_UNTOLD_MOST = 3
_STDIN = 0
_LEFT = select.POLLHUP | select.POLLERR | select.POLLNVAL | getattr(select, "POLLRDHUP", 0)


class Growth:
    """One folder, which must be there; `close` gives the watch back."""

    def __init__(self, folder: str, watched: Callable[[str], int]) -> None:
        """`watched` makes the descriptor that tells of the folder, or -1 (`by_kernel`, `by_nobody`)."""
        self._handle = watched(folder)
        self._grown_at = time.monotonic()
        self._was_told, self._untold = True, 0
        self._poll = select.poll()
        # Only whether the client is still there: what it says meanwhile is read by others.
        self._poll.register(_STDIN, _LEFT)
        if self._handle >= 0:
            self._poll.register(self._handle, select.POLLIN)

    @property
    def is_told(self) -> bool:
        """True while the kernel tells."""
        return self._handle >= 0

    def close(self) -> None:
        """Give the watch back."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def grew(self) -> None:
        """The log was longer than before: there may soon be more."""
        self._grown_at = time.monotonic()
        self._untold = 0 if self._was_told else self._untold + 1
        if self._untold == _UNTOLD_MOST and self.is_told:
            self._poll.unregister(self._handle)
            self.close()

    def wait(self, most_s: float) -> bool:
        """Return after something happened there (True), after a tick where nobody tells, at the latest after `most_s`.

        Raises `ConnectionEnded` once the client has left: nobody waits for what would be found.
        """
        if not self.is_told:
            since_s = time.monotonic() - self._grown_at
            most_s = min(most_s, max(TICKS_S[0], min(since_s * _PART, TICKS_S[1])))
        ready = [handle for handle, _ in self._poll.poll(max(0.0, most_s) * 1000)]
        if _STDIN in ready:
            raise ConnectionEnded()
        self._was_told = bool(ready)
        if ready:
            try:
                os.read(self._handle, _EVENTS_BYTES)
            except BlockingIOError:
                return False
        return self._was_told


def by_kernel(folder: str) -> int:
    """A descriptor that becomes readable when something in the folder is written, made or moved there; -1: none."""
    try:
        # Imported here: it is dear, and few connections follow a log.
        import ctypes

        library = ctypes.CDLL(None)
        handle = int(library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        is_watched = library.inotify_add_watch(handle, os.fsencode(folder), _MODIFY | _MOVED_TO | _CREATE) >= 0
    except (ImportError, OSError, AttributeError):
        return -1
    if not is_watched and handle >= 0:
        os.close(handle)
    return handle if is_watched else -1


def by_nobody(folder: str) -> int:
    """No descriptor: the log is looked at in ticks."""
    return -1
