"""One clock for all that is done when a time has passed: a call to hundreds of machines needs no thread for each.

It must not wait for what it sets off: each deed that is due has a thread of its own, so that none delays another.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable


class Alarm:
    """A deed that will be done once; see `after`."""

    def __init__(self, at: float, deed: Callable[[], None], clock: _Clock) -> None:
        self.at, self.deed = at, deed
        self._clock = clock

    def cancel(self) -> None:
        """Do it no more; one that has begun goes on."""
        self._clock.forget(self)


class _Clock:
    """The thread that waits for the earliest, begun when there is one."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._waiting: set[Alarm] = set()
        self._next_at = math.inf
        self._thread: threading.Thread | None = None

    def add(self, alarm: Alarm) -> None:
        with self._changed:
            self._waiting.add(alarm)
            if self._thread is None or not self._thread.is_alive():
                # Also in a child of a process that had one.
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
            elif alarm.at < self._next_at:
                self._changed.notify()

    def forget(self, alarm: Alarm) -> None:
        with self._changed:
            self._waiting.discard(alarm)

    def _run(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                for alarm in [one for one in self._waiting if one.at <= now]:
                    self._waiting.discard(alarm)
                    threading.Thread(target=alarm.deed, daemon=True).start()
                self._next_at = min((one.at for one in self._waiting), default=math.inf)
                left_s = self._next_at - now
                self._changed.wait(None if left_s == math.inf else min(left_s, threading.TIMEOUT_MAX))


_CLOCK = _Clock()


def after(seconds: float, deed: Callable[[], None]) -> Alarm:
    """Have `deed` done in a thread of its own once `seconds` have passed, unless it is cancelled before."""
    alarm = Alarm(time.monotonic() + seconds, deed, _CLOCK)
    _CLOCK.add(alarm)
    return alarm
