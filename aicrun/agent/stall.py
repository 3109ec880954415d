"""A command that shows no sign of life: neither its log nor its checkpoint folder grew. Told, and never acted on.

A run may be silent for good reasons; nothing here may end, slow or judge it.
"""

import os
import time
from typing import Callable, Optional

from aicrun.agent import outlook
from aicrun.agent.history import note
from aicrun.wire import names
from aicrun.wire.jobs import Limits
from aicrun.wire.status import silence_words

LOOK_S = 1.0
_FILES = (names.LOG, names.LOG_TAIL, names.LOG_STATE)


def silent_s(folder: str, checkpoints: str, since: float, now: float, ran_s: Optional[float] = None) -> float:
    """For how long neither the log in a step's `folder` nor the `checkpoints` folder (empty: none) grew.

    At most since `since`, the step's start; all by this host's clock, never below zero. `ran_s`: how long the step
    runs by a clock that nobody sets. Where the two differ the clock was set meanwhile, and the shorter silence is told.
    """
    newest = max([since] + [_changed_at(os.path.join(folder, name)) for name in _FILES])
    seen = outlook.checkpoints(checkpoints, now)
    if seen is not None:
        # The folder itself: what was put there with an old time of its own is new all the same.
        newest = max(newest, _changed_at(checkpoints))
        newest = max(newest, now - seen.newest_age_s if seen.newest_age_s is not None else 0.0)
    set_s = now - since - ran_s if ran_s is not None else 0.0
    return max(0.0, min(now - newest, now - newest - set_s))


class Watch:
    """What the keeper does about it: one event when the silence has lasted for the limit, one when it is over."""

    def __init__(self, job_dir: str, folder: str, checkpoints: str, limits: Callable[[], Limits]) -> None:
        self._job_dir = job_dir
        self._folder = folder
        self._checkpoints = checkpoints
        self._limits = limits
        self._since, self._began = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)
        self._due = 0.0
        self._told = False

    def look(self) -> float:
        """Look if it is time to; in how many seconds to ask again. Reads a few file times, most of the time none."""
        limit_s, now = self._limits().stall_s, time.monotonic()
        if limit_s is None:
            return LOOK_S
        # As fine as a tenth of the limit, so that a short silence after a long one is not missed.
        every_s = min(15.0, limit_s / 10.0)
        if now < self._due:
            return min(LOOK_S, every_s)
        ran = time.clock_gettime(time.CLOCK_BOOTTIME) - self._began
        silent = silent_s(self._folder, self._checkpoints, self._since, time.time(), ran)
        if silent >= limit_s and not self._told:
            note(self._job_dir, "stalled", detail=silence_words(silent, limit_s))
        elif silent < limit_s and self._told:
            note(self._job_dir, "stall_over")
        self._told = silent >= limit_s
        self._due = now + every_s
        return min(LOOK_S, every_s)


def _changed_at(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
