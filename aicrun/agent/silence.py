"""A step that says nothing for long: told, once for each silence, and never acted upon. It must not end anything.

A step may work for an hour without a word, and one whose other half has died waits for ever: a person decides.
"""

import dataclasses
import os
import time
from typing import Optional

from aicrun.agent.history import note
from aicrun.agent.records import Unreadable, read_record, write_record
from aicrun.wire import names
from aicrun.wire.jobs import SCHEMA


@dataclasses.dataclass(frozen=True)
class Quiet:
    """Since when a step has said nothing, on the clock that counts from the boot and that nobody sets."""

    since_s: float
    schema: int = SCHEMA


class Silence:
    """Watches one step for its keeper; `beats` is any number that changes when output comes."""

    def __init__(self, job_dir: str, folder: str) -> None:
        self._job_dir = job_dir
        self._path = os.path.join(folder, names.QUIET)
        self._beats = -1
        self._since = time.monotonic()
        self._is_told = False

    def look(self, beats: int, stall_s: Optional[int]) -> None:
        """Tell a silence of `stall_s` seconds (None: no silence is too long), take it back when output came."""
        now = time.monotonic()
        if beats != self._beats:
            self._beats, self._since = beats, now
            if self._is_told:
                self._is_told = False
                _remove(self._path)
        elif stall_s is not None and not self._is_told and now - self._since >= stall_s:
            self._is_told = True
            note(self._job_dir, "stalled", detail="no output for %d s" % (now - self._since))
            try:
                write_record(self._path, Quiet(time.clock_gettime(time.CLOCK_BOOTTIME) - (now - self._since)))
            except OSError:
                # A warning: a disk that refuses it changes nothing else.
                pass


def quiet_s(folder: str) -> Optional[float]:
    """How long the step in this folder has said nothing, once that is longer than its spec allows; None before."""
    try:
        told = read_record(os.path.join(folder, names.QUIET), Quiet)
    except Unreadable:
        return None
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - told.since_s) if told is not None else None


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
