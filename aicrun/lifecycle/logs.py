"""What a step's log holds now. Following one as it grows is `follow.py`'s."""

from __future__ import annotations

from collections.abc import Iterator

from aicrun.hosts.backend import LogSlice
from aicrun.lifecycle.find import Found
from aicrun.lifecycle.session import Session
from aicrun.wire.names import REPLY_CAP_BYTES


def log(
    session: Session, found: Found, step: str, offset: int | None, tail_lines: int, attempt: int = 0
) -> Iterator[bytes]:
    """What a step's log holds now, in slices: from `offset` on, or its last lines; `attempt` 0 is the newest of now."""
    while True:
        part = log_slice(session, found, step, offset, tail_lines, attempt)
        yield part.data
        if part.eof or (offset is not None and part.next_offset <= offset):
            return
        offset, attempt = part.next_offset, part.attempt


def log_slice(
    session: Session, found: Found, step: str, offset: int | None, tail_lines: int, attempt: int = 0
) -> LogSlice:
    """One slice of a step's log, of at most 256 KiB; with `offset` None its last lines; `attempt` 0 is the newest."""
    job_id = found.report.job_id
    return session.backend(found.machine).log(job_id, step, offset, REPLY_CAP_BYTES, tail_lines, attempt)
