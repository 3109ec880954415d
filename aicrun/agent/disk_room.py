"""Whether the disks have what a job asks for, now: a plan looked some time ago. It must not make room, nor write."""

import os
from typing import Dict, Iterable, List

from aicrun.agent import brought
from aicrun.agent.free_room import MIB, amount, existing, short
from aicrun.agent.refused import Refused
from aicrun.wire.jobs import JobRequest
from aicrun.wire.room import Room

# With less than this a command cannot even begin to write.
LEAST_BYTES, LEAST_FILES = MIB, 16


def check(request: JobRequest, host_id: str) -> None:
    """Raises `Refused` (disk_full) when a file system has less than the sum of what the job will write on it."""
    if not request.room:
        return
    # Imported here: the keeper asks less.
    from aicrun.agent.built import is_complete

    # What another job has brought since the plan, or is bringing now, has its room already.
    begun = {"input %s" % one.input for one in request.fetches if brought.has_begun(one, host_id)}
    due = [one for one in request.room if not (one.env and is_complete(os.path.join(one.path, one.env), one.env))]
    due = [one for one in due if one.what not in begun]
    for rooms in _by_volume(due):
        place = existing(rooms[0].path)
        size, files = sum(one.bytes for one in rooms), sum(one.files for one in rooms)
        lacks = short(place, size, files)
        if lacks:
            parts = ", ".join("%s for %s" % (amount(one.bytes), one.what) for one in rooms if one.bytes)
            paths = " and ".join(dict.fromkeys(one.path for one in rooms))
            told = "%s on the disk of %s%s" % (lacks, paths, ": " + parts if parts else "")
            raise Refused("disk_full", told, {"path": rooms[0].path})


def check_full(folders: Iterable[str]) -> None:
    """Raises `Refused` (disk_full) for a folder whose disk takes nothing more; a command is begun behind it."""
    for folder in folders:
        lacks = short(existing(folder), LEAST_BYTES, LEAST_FILES) if folder else ""
        if lacks:
            raise Refused("disk_full", "%s on the disk of %s" % (lacks, folder), {"path": folder})


def _by_volume(rooms: List[Room]) -> List[List[Room]]:
    found: Dict[str, List[Room]] = {}
    for one in rooms:
        found.setdefault(_volume(existing(one.path)), []).append(one)
    return list(found.values())


def _volume(place: str) -> str:
    # Imported here: only a job that asks for room needs to tell file systems apart.
    from aicrun.agent.home import mounted
    from aicrun.agent.machine import volume

    return volume(os.stat(place).st_dev, *mounted(place))
