"""A step's log from an agent: one slice, or all that comes, asked for ahead so that no answer waits for its question.

It must not know who reads. Following has the connection to itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from aicrun.errors import AgentBroken
from aicrun.hosts.agent_link import AgentLink
from aicrun.hosts.backend import LogSlice
from aicrun.wire.names import FOLLOW_CAP_BYTES, REPLY_CAP_BYTES

FOLLOW_WAIT_S = 10.0
# Slices of a followed log, 1 MiB at most, that are asked for before the first of them has come.
SLICES_AHEAD = 4


def asked(job_id: str, step: str, offset: int | None, limit: int, tail_lines: int, attempt: int) -> dict[str, Any]:
    """The question for a slice; `offset` None means the last `tail_lines` lines."""
    about = {"job_id": job_id, "step": step, "offset": offset, "limit": limit}
    return {**about, "tail_lines": tail_lines, "attempt": attempt, "wait_s": 0}


def one(link: AgentLink, question: dict[str, Any]) -> LogSlice:
    """A slice as it is now; raises what the link raises."""
    return _slice(link, *link.call("log", question))[0]


def followed(link: AgentLink, job_id: str, step: str, offset: int, attempt: int) -> Iterator[LogSlice]:
    """Slices as they grow, until the step has ended and all was read; an empty one after `FOLLOW_WAIT_S` of silence."""
    for found, has_ended in _told(link, asked(job_id, step, offset, REPLY_CAP_BYTES, 0, attempt)):
        if found.data or not has_ended:
            yield found
        if has_ended and found.eof:
            return


def _told(link: AgentLink, body: dict[str, Any]) -> Iterator[tuple[LogSlice, bool]]:
    """Slice after slice, for ever."""
    while True:
        found, has_ended = _slice(link, *link.call("log", dict(body, wait_s=FOLLOW_WAIT_S)))
        # Where nothing has begun the question stays; else it is that step and attempt to the end: a retry is
        # followed by whoever wants it.
        if found.step:
            break
        yield found, has_ended
    on = {"go_on": True, "limit": FOLLOW_CAP_BYTES, "wait_s": FOLLOW_WAIT_S}
    more = link.answers_ahead("log", itertools.repeat((on, b"")), SLICES_AHEAD, is_told=True)
    # What follows is asked for before anybody takes the time to read.
    next(more)
    yield found, has_ended
    for answer, data in more:
        found, has_ended = _onward(link, found, answer, data)
        yield found, has_ended


def _slice(link: AgentLink, answer: Any, data: bytes) -> tuple[LogSlice, bool]:
    try:
        found = LogSlice(
            data=data,
            offset=int(answer["offset"]),
            next_offset=int(answer["next_offset"]),
            eof=bool(answer["eof"]),
            dropped_bytes=int(answer.get("dropped_bytes") or 0),
            gap_bytes=int(answer.get("gap_bytes") or 0),
            step=str(answer.get("step") or ""),
            attempt=int(answer.get("attempt") or 1),
        )
        return found, bool(answer.get("ended"))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _no_slice(link, error) from error


def _onward(link: AgentLink, before: LogSlice, answer: Any, data: bytes) -> tuple[LogSlice, bool]:
    """The slice after `before`: told is only what does not follow from that one (the agent's `logs.py`)."""
    try:
        offset = int(answer.get("offset", before.next_offset))
        found = LogSlice(
            data=data,
            offset=offset,
            next_offset=offset + len(data),
            eof=bool(answer.get("eof", True)),
            dropped_bytes=int(answer.get("dropped_bytes", before.dropped_bytes)),
            gap_bytes=int(answer.get("gap_bytes", 0)),
            step=before.step,
            attempt=before.attempt,
        )
        return found, bool(answer.get("ended"))
    except (AttributeError, TypeError, ValueError) as error:
        raise _no_slice(link, error) from error


def _no_slice(link: AgentLink, error: Exception) -> AgentBroken:
    return AgentBroken("AIC-E512", f"the agent of {link.machine} cannot be understood: a log slice without {error}")
