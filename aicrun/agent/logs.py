"""Serves a step's log by byte offsets: bounded slices, the last lines, a long poll. It must not change a byte.

Offsets count recorded bytes; no slice ever repeats or skips one without saying so (`gap_bytes`).
"""

import os
import re
import time
from typing import Any, Dict, List, Optional, Tuple

from aicrun.agent import bodies, decide, log_files
from aicrun.agent.evidence import starts_of, tree_lives
from aicrun.agent.handles import keeper_lives
from aicrun.agent.home import Home, listed
from aicrun.agent.log_growth import Growth, by_kernel
from aicrun.agent.records import Unreadable, read_record
from aicrun.agent.refused import Refused
from aicrun.agent.state import StepSeen
from aicrun.wire import names
from aicrun.wire.jobs import STEPS, StepExit, StepStart
from aicrun.wire.upload import EARLY_STEP

Answer = Tuple[Dict[str, Any], bytes]

WAIT_MOST_S = 60.0
LINES_MOST = 100000
_WAIT_TICK_S = 0.05
# Whether the step has ended is asked that often at most while its log is followed, and once more when nothing was told.
_LOOK_S = 0.05
_QUIET_LOOK_S = 0.5
# A progress bar rewrites its line with carriage returns: each state is a line to whoever wants the last ones.
_LINE_END = re.compile(rb"\r\n|\n|\r")


def log(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{job_id, step, offset | null, limit, tail_lines, attempt, wait_s} -> a slice, its bytes as payload.

    `offset` null: the last `tail_lines` lines. `step` empty: the newest step; `attempt` 0: the newest that has the
    step, which for a setup is the first. `limit` up to
    256 KiB. An offset past the end gives an empty slice at the end. `wait_s`: until there is something or the step
    has ended. {go_on: true, limit, wait_s}: where the answer before ended, up to 1 MiB; of the answer only what does
    not follow from the one before is told (`_Followed.slice`).
    Raises `Refused` (not_found, invalid_request).
    """
    cap = names.FOLLOW_CAP_BYTES if body.get("go_on") is True else names.REPLY_CAP_BYTES
    limit = bodies.number(body, "limit", cap, cap) or cap
    deadline = time.monotonic() + bodies.seconds(body, "wait_s", 0.0, WAIT_MOST_S)
    if body.get("go_on") is True:
        if not _followed:
            raise Refused("invalid_request", "no log was asked for on this connection", {"field": "go_on"})
        return _followed[0].slice(limit, deadline)
    job_id, wanted = bodies.job_id(body), _wanted(body, limit)
    decide.run_of(home, job_id)
    if not os.path.isdir(home.job_dir(job_id)):
        raise Refused(
            "not_found", "the log of job %s is gone: its private files were swept or lost" % job_id, {"job": job_id}
        )
    found = _slice(home, job_id, wanted)
    while not (found[1] or found[0]["ended"] or found[0]["step"]) and time.monotonic() < deadline:
        time.sleep(_WAIT_TICK_S)
        found = _slice(home, job_id, wanted)
    if found[0]["step"]:
        _follow(_Followed(home, job_id, found[0]))
        if not found[1] and not found[0]["ended"]:
            more, data = _followed[0].slice(limit, deadline)
            return _in_full(found[0], more, len(data)), data
    return found


def _in_full(before: Dict[str, Any], more: Dict[str, Any], size: int) -> Dict[str, Any]:
    """The answer `more`, whose payload has `size` bytes, with what follows from the one before it."""
    offset = more.get("offset", before["next_offset"])
    plain = {"offset": offset, "next_offset": offset + size, "eof": True, "ended": False, "gap_bytes": 0}
    return {**before, **plain, **more}


def _follow(followed: "_Followed") -> None:
    for before in _followed:
        before.close()
    _followed[:] = [followed]


class _Followed:
    """Where the reader of this connection stands in the log of a step that has begun."""

    def __init__(self, home: Home, job_id: str, told: Dict[str, Any]) -> None:
        self._home = home
        self._where = (job_id, told["attempt"], told["step"])
        self._offset = told["next_offset"]
        self._dropped = told["dropped_bytes"]
        self._folder = home.step_dir(*self._where)
        self._reader = log_files.LogReader(self._folder)
        self._growth: Optional[Growth] = None
        self._looked_at = self._grown_at = 0.0
        # Whether anything has happened since it was asked whether the step has ended.
        self._is_looked = False

    def close(self) -> None:
        """Give the files back."""
        self._reader.close()
        if self._growth is not None:
            self._growth.close()

    def slice(self, limit: int, deadline: float) -> Answer:
        """What follows, once there is something; an empty slice at the deadline, and when the step has ended.

        Of the answer only: `offset` and `gap_bytes` where it does not begin at the end of the one before, `eof` and
        `ended` where that is not true and false, `dropped_bytes` where there are more. Mostly that is nothing, and a
        lone line need not wait for two sides that write and read it.
        """
        ended = False
        while True:
            state = self._reader.state()
            if state is not None and state.total > self._offset:
                data, at = self._reader.read_of(state, self._offset, limit)
                if data:
                    return self._grown(state, at, data)
            if ended or time.monotonic() >= deadline:
                return self._answer(state, self._offset, b"", ended)
            ended = self._has_ended()
            if not ended:
                self._wait(state, deadline)

    def _has_ended(self) -> bool:
        # Asked before the bytes are looked at again: what is ended then has no byte that comes later.
        if time.monotonic() < self._look_at():
            return False
        self._looked_at, self._is_looked = time.monotonic(), True
        return _has_ended(self._home, *self._where)

    def _look_at(self) -> float:
        told = self._growth is not None and self._growth.is_told
        # Not between two lines that follow each other: the second would wait for it.
        return max(self._looked_at, self._grown_at) + (_QUIET_LOOK_S if told and self._is_looked else _LOOK_S)

    def _wait(self, state: Optional[log_files.LogState], deadline: float) -> None:
        if state is None:
            time.sleep(_WAIT_TICK_S)
        elif self._growth is None:
            # What came before it was made is found by another look.
            self._growth = Growth(self._folder, by_kernel)
        elif self._growth.wait(min(deadline, self._look_at()) - time.monotonic()):
            self._is_looked = False

    def _grown(self, state: log_files.LogState, at: int, data: bytes) -> Answer:
        self._grown_at, self._is_looked = time.monotonic(), False
        if self._growth is not None:
            self._growth.grew()
        return self._answer(state, at, data, False)

    def _answer(self, state: Optional[log_files.LogState], at: int, data: bytes, ended: bool) -> Answer:
        answer: Dict[str, Any] = {}
        if at != self._offset:
            answer["offset"], answer["gap_bytes"] = at, at - self._offset
        self._offset = at + len(data)
        if ended:
            # What cannot be read after the end never will be: that is the end of the log too.
            answer["ended"] = True
        elif state is not None and self._offset < state.total:
            answer["eof"] = False
        dropped = state.dropped + log_files.fallen_out(state) if state is not None else self._dropped
        if dropped != self._dropped:
            answer["dropped_bytes"] = self._dropped = dropped
        return answer, data


# The log that this connection asked for last.
_followed: List[_Followed] = []


def _wanted(body: Dict[str, Any], limit: int) -> "_Wanted":
    step = bodies.text(body, "step", "")
    if step and step not in (*STEPS, EARLY_STEP):
        raise Refused("invalid_request", "there is no step %s" % step[:40], {"field": "step"})
    offset = None if body.get("offset") is None else bodies.number(body, "offset", 0, 1 << 62)
    lines = bodies.number(body, "tail_lines", names.TAIL_LINES, LINES_MOST)
    return _Wanted(step, bodies.number(body, "attempt", 0, 1 << 20), offset, limit, lines)


class _Wanted:
    def __init__(self, step: str, attempt: int, offset: Optional[int], limit: int, lines: int) -> None:
        self.step = step
        self.attempt = attempt
        self.offset = offset
        self.limit = limit
        self.lines = lines


def _slice(home: Home, job_id: str, wanted: _Wanted) -> Answer:
    attempt, step = _where(home, job_id, wanted)
    folder = home.step_dir(job_id, attempt, step or "setup")
    # Asked before the bytes are read: what is ended then has no byte that comes later.
    ended = _has_ended(home, job_id, attempt, step) if step else not keeper_lives(home.job_dir(job_id))
    state = log_files.read_state(folder)
    total = state.total if state is not None else 0
    if wanted.offset is None:
        offset, data, gap = _tail(folder, state, wanted)
    elif wanted.offset >= total:
        offset, data, gap = total, b"", 0
    else:
        data, offset = log_files.read_bytes(folder, wanted.offset, wanted.limit)
        gap = offset - wanted.offset
    dropped = state.dropped + log_files.fallen_out(state) if state is not None else 0
    answer = {
        "offset": offset,
        "next_offset": offset + len(data),
        "eof": offset + len(data) >= total,
        "ended": ended,
        "dropped_bytes": dropped,
        "gap_bytes": gap,
        "step": step,
        "attempt": attempt,
    }
    return answer, data


def _tail(folder: str, state: Optional[log_files.LogState], wanted: _Wanted) -> Tuple[int, bytes, int]:
    """The last lines, from one bounded read at the end: (offset, bytes, bytes that are missing before)."""
    if state is None or not wanted.lines:
        return (state.total if state is not None else 0), b"", 0
    data, offset = log_files.read_bytes(folder, max(0, state.total - wanted.limit), wanted.limit)
    if offset + len(data) < state.total:
        # The window began in the head and ended at its end: what is newest lies in the ring.
        ring, at = log_files.read_bytes(folder, max(offset + len(data), log_files.oldest(state)), wanted.limit)
        gap = at - offset - len(data)
        data, offset = (data + ring, offset) if not gap else (ring, at)
    ends = [match.end() for match in _LINE_END.finditer(data)]
    if ends and ends[-1] == len(data):
        ends.pop()
    start = ends[-wanted.lines] if len(ends) >= wanted.lines else 0
    start = max(start, len(data) - wanted.limit)
    data, offset = data[start:], offset + start
    missing = log_files.fallen_out(state) if offset == log_files.oldest(state) else 0
    return offset, data, missing


def _where(home: Home, job_id: str, wanted: _Wanted) -> Tuple[int, str]:
    """(attempt, step) that is meant; step "" when none has begun."""
    attempts = os.path.join(home.job_dir(job_id), names.ATTEMPTS)
    numbers = sorted((int(name) for name in listed(attempts) if name.isdigit()), reverse=True)
    for attempt in [wanted.attempt] if wanted.attempt else numbers:
        there = listed(os.path.join(attempts, str(attempt)))
        begun = [step for step in STEPS if step in there]
        if begun and (not wanted.step or wanted.step in there):
            return attempt, wanted.step or begun[-1]
    return wanted.attempt or max(numbers, default=1), wanted.step


def _has_ended(home: Home, job_id: str, attempt: int, step: str) -> bool:
    """True when no byte can come any more to this step's log."""
    folder = home.step_dir(job_id, attempt, step)
    kept = keeper_lives(home.job_dir(job_id))
    state = log_files.read_state(folder)
    try:
        end = read_record(os.path.join(folder, names.STEP_EXIT), StepExit)
        start = read_record(os.path.join(folder, names.STEP_START), StepStart)
    except Unreadable:
        end, start = None, None
    if end is not None and (state is None or state.done or end.spawn_error):
        return True
    if kept:
        return False
    seen = (StepSeen(step, start),) if start is not None else ()
    return not seen or not tree_lives(job_id, seen) or bool(starts_of(seen) and state is not None and state.done)
