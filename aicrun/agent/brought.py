"""What was brought to this host for jobs to read: where it lies, and whether it is whole.

Each input has a folder of its own, named by its key; it is there only once it is whole, with a mark in it. It must not
bring anything (see `bringing.py`).
"""

import os
import time
from typing import Any, Dict, List

from aicrun.wire.codec import load
from aicrun.wire.facts import InputReady
from aicrun.wire.jobs import Fetch, JobRequest
from aicrun.wire.patterns import pattern

MARK = ".aicrun-input.json"
LOCAL = "local"
ASKED_MOST = 1000
BELOW = os.path.join("aicrun", "inputs")
_KEY = pattern(r"[0-9a-f]{16}\Z")


def folder(data: str, home_folder: str) -> str:
    """Where inputs lie: below the data volume, else below the account's own share."""
    top = home_folder + data[1:] if data == "~" or data.startswith("~/") else data
    return os.path.join(top or os.path.join(home_folder, ".local", "share"), BELOW)


def known(place: str, key: str) -> Dict[str, Any]:
    """What was written down when the input of `key` was brought to the folder `place`; empty when it is not there."""
    try:
        with open(os.path.join(place, MARK), "rb") as stream:
            mark = load(stream.read())
    except (OSError, ValueError):
        return {}
    return mark if isinstance(mark, dict) and mark.get("key") == key else {}


def is_ready(fetch: Fetch) -> bool:
    """True when the input is here, whole."""
    return bool(known(fetch.folder, fetch.key))


def has_begun(fetch: Fetch, host_id: str) -> bool:
    """True when it is here, or partly from this host: then what it needs of the disk is not all of it any more."""
    return is_ready(fetch) or os.path.isdir(growing(fetch, host_id))


def growing(fetch: Fetch, host_id: str) -> str:
    """The folder that becomes the input's once it is whole; each host that shares the volume has one of its own."""
    return "%s.%s.part" % (fetch.folder, host_id)


def ready(top: str, keys: Any) -> List[InputReady]:
    """An answer for each of `keys` that is here, below the folder `top`."""
    asked = [key for key in keys if isinstance(key, str) and _KEY.match(key)] if isinstance(keys, (list, tuple)) else []
    found = []
    for key in asked[:ASKED_MOST]:
        mark = known(os.path.join(top, key), key)
        if mark:
            age_s = max(0.0, round(time.time() - float(mark.get("at", 0.0)), 1))
            revision = str(mark.get("revision", ""))
            found.append(InputReady(key, int(mark.get("files", 0)), int(mark.get("bytes", 0)), age_s, revision))
    return found


def from_elsewhere(request: JobRequest) -> bool:
    """Whether the job reads what this host fetches from another place."""
    return any(one.scheme != LOCAL for one in request.fetches)


def waits_for(request: JobRequest) -> bool:
    """Whether something is still to be fetched, which may take hours: no card shall be held meanwhile."""
    return any(one.scheme != LOCAL and not is_ready(one) for one in request.fetches)


def faults(request: JobRequest) -> List[str]:
    """What is wrong with the fetches of a request that a client sent; empty when nothing is."""
    found = []
    for one in request.fetches:
        inside = os.path.isabs(one.folder) and os.path.dirname(one.folder).endswith(os.sep + BELOW)
        if not (_KEY.match(one.key) and inside and os.path.basename(one.folder) == one.key):
            found.append("the folder of input %s is not one of inputs" % one.input)
        if not one.name or os.sep in one.name or "\0" in one.name or one.name.startswith("."):
            found.append("the name of input %s is no name" % one.input)
    return found
