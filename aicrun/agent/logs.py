"""Serves a step's log by byte offsets: bounded slices, the last lines, a long poll. It must not change a byte.

Offsets count recorded bytes; no slice ever repeats or skips one without saying so (`gap_bytes`).
"""

import os
import re
import time
from typing import Any, Dict, Optional, Tuple

from aicrun.agent import bodies, decide, log_files
from aicrun.agent.evidence import starts_of, tree_lives
from aicrun.agent.home import Home, listed
from aicrun.agent.launch import keeper_lives
from aicrun.agent.records import Unreadable, read_record
from aicrun.agent.refused import Refused
from aicrun.agent.state import StepSeen
from aicrun.wire import names
from aicrun.wire.jobs import STEPS, StepExit, StepStart

Answer = Tuple[Dict[str, Any], bytes]

WAIT_MOST_S = 60.0
LINES_MOST = 100000
_WAIT_TICK_S = 0.05
# Between two full looks only the log's own files are looked at: what a person follows is told at once, the more so the
# shorter ago the last of it was.
_GROWTH_TICKS_S = (0.001, 0.01)
# A progress bar rewrites its line with carriage returns: each state is a line to whoever wants the last ones.
_LINE_END = re.compile(rb"\r\n|\n|\r")


def log(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{job_id, step, offset | null, limit, tail_lines, attempt, wait_s} -> a slice, its bytes as payload.

    `offset` null: the last `tail_lines` lines. `step` empty: the newest step; `attempt` 0: the newest that has the
    step, which for a setup is the first. `limit` up to
    256 KiB. An offset past the end gives an empty slice at the end. `wait_s`: until there is something or the step
    has ended. Raises `Refused` (not_found, invalid_request).
    """
    job_id, step = bodies.job_id(body), bodies.text(body, "step", "")
    if step and step not in STEPS:
        raise Refused("invalid_request", "there is no step %s" % step[:40], {"field": "step"})
    limit = bodies.number(body, "limit", names.REPLY_CAP_BYTES, names.REPLY_CAP_BYTES) or names.REPLY_CAP_BYTES
    offset = None if body.get("offset") is None else bodies.number(body, "offset", 0, 1 << 62)
    lines = bodies.number(body, "tail_lines", names.TAIL_LINES, LINES_MOST)
    attempt = bodies.number(body, "attempt", 0, 1 << 20)
    deadline = time.monotonic() + bodies.seconds(body, "wait_s", 0.0, WAIT_MOST_S)
    decide.run_of(home, job_id)
    if not os.path.isdir(home.job_dir(job_id)):
        raise Refused(
            "not_found", "the log of job %s is gone: its private files were swept or lost" % job_id, {"job": job_id}
        )
    tick_s = _GROWTH_TICKS_S[0]
    while True:
        found = _slice(home, job_id, _Wanted(step, attempt, offset, limit, lines))
        if found[1] or found[0]["ended"] or time.monotonic() >= deadline:
            return found
        if found[0]["step"]:
            tick_s = _until_grown(home.step_dir(job_id, found[0]["attempt"], found[0]["step"]), found[0], tick_s)
        else:
            time.sleep(_WAIT_TICK_S)


def _until_grown(folder: str, told: Dict[str, Any], tick_s: float) -> float:
    """Wait until the log is longer than was told, at most one tick of the full look; the next tick of this one."""
    look_again = time.monotonic() + _WAIT_TICK_S
    while time.monotonic() < look_again:
        time.sleep(tick_s)
        tick_s = min(tick_s * 1.5, _GROWTH_TICKS_S[1])
        state = log_files.read_state(folder)
        if state is not None and state.total > told["next_offset"]:
            break
    return tick_s


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
        begun = [step for step in STEPS if step in listed(os.path.join(attempts, str(attempt)))]
        if begun and (not wanted.step or wanted.step in begun):
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
