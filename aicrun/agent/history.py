"""The history of a job: one JSON line for each thing that happened, with who asked for it. It must not decide.

No command, environment or output is ever in it. A line that is torn or foreign is skipped.
"""

import os
import time
from typing import List, Tuple

from aicrun.wire import names
from aicrun.wire.codec import WireError, dump, load
from aicrun.wire.seen import Event

KEPT = 200
_READ_BYTES = 256 * 1024


def note(job_dir: str, event: str, by: str = "", detail: str = "") -> None:
    """Append one event (a token of `status.EVENTS`); a full disk loses the line, never the deed."""
    line = dump({"event": event, "at": time.time(), "by": by[:200], "detail": detail[:500]}) + b"\n"
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(os.path.join(job_dir, names.EVENTS), flags, 0o600)
    except OSError:
        return
    try:
        os.write(handle, line)
    except OSError:
        return
    finally:
        os.close(handle)


def read(job_dir: str, now: float) -> Tuple[Event, ...]:
    """The newest `KEPT` events, oldest first; ages in seconds of this host's clock at `now`."""
    try:
        with open(os.path.join(job_dir, names.EVENTS), "rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - _READ_BYTES))
            lines = stream.read(_READ_BYTES).split(b"\n")
    except OSError:
        return ()
    found: List[Event] = []
    for line in lines:
        try:
            data = load(line)
            at = float(data["at"])
            event = Event(str(data["event"]), at, max(0.0, now - at), str(data["by"]), str(data["detail"]))
        except (WireError, KeyError, TypeError, ValueError):
            continue
        found.append(event)
    return tuple(found[-KEPT:])
