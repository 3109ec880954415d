"""What a job's source differs in from its commit: kept beside its record, without secrets, for whoever asks later.

It must not be read for meaning: it is a person's text.
"""

import os
from typing import Any, Dict, Iterable, Tuple

from aicrun.agent import bodies, decide
from aicrun.agent.home import Home
from aicrun.agent.redact import Redactor
from aicrun.agent.refused import Refused
from aicrun.wire import names


def taken(payload: bytes) -> bytes:
    """The text that came with a request; raises `Refused` (invalid_request) for one that is too long."""
    if len(payload) > names.DIFF_CAP_BYTES:
        raise Refused("invalid_request", "the difference of the source is over %d bytes" % names.DIFF_CAP_BYTES)
    return payload


def put(folder: str, text: bytes, values: Iterable[str]) -> None:
    """Keep it in the record that is being made; none where there is nothing to tell. Raises `OSError`."""
    if not text:
        return
    place = os.path.join(folder, names.SOURCE_DIFF)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(place, flags, 0o600), "wb") as stream:
        stream.write(Redactor(values).whole(text))
        stream.flush()
        os.fsync(stream.fileno())


def read(home: Home, body: Dict[str, Any], payload: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Call `source_diff`: {job_id} -> {kept} and the text, none where the source was its commit."""
    job_id = bodies.job_id(body)
    run = decide.run_of(home, job_id)
    try:
        place = os.path.join(home.record_dir(run, job_id), names.SOURCE_DIFF)
        with open(os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as stream:
            return {"kept": True}, stream.read(2 * names.DIFF_CAP_BYTES)
    except FileNotFoundError:
        return {"kept": False}, b""
