"""The folders that a run writes to, as the survey saw them: nearly full, or a checkpoint folder that holds something.

It must not refuse: what is surely needed is `needed_room.py`'s, and a person may mean the folder as it is.
"""

from __future__ import annotations

import posixpath

from aicrun.plan import words
from aicrun.plan.draft import Site
from aicrun.plan.needed_room import INODES_LEAST, disk_of
from aicrun.plan.places import data, usual_volumes, volume_here, volumes
from aicrun.spec.model import Machine, RunSpec
from aicrun.wire.facts import Disk, HostReading
from aicrun.wire.jobs import JobRequest

# Less than this holds no checkpoint worth the name.
ROOM_LEAST = 1 << 30


def room_warnings(spec: RunSpec, site: Site) -> tuple[str, ...]:
    """One for each volume that the run writes to and that is nearly full."""
    low = nearly_full(spec, site.machine, site.reading)
    return tuple(f"{site.machine.name}: only {told}, where this run writes" for told in low)


def nearly_full(spec: RunSpec, machine: Machine, reading: HostReading) -> tuple[str, ...]:
    """`307.2 MiB free on /data/out` for each such volume, with every folder of the run on it; inodes likewise."""
    written = dict.fromkeys((*volumes(spec), data(machine, reading.home), *usual_volumes(machine)))
    low: dict[object, tuple[Disk, list[str]]] = {}
    folders = (volume_here(one, spec, machine, reading.home) for one in written if one)
    for path in dict.fromkeys((*folders, reading.jobs_root)):
        disk = disk_of(reading, path) if path else None
        if disk is not None and _lacks(disk):
            volume = disk.volume or (disk.free_bytes, disk.total_bytes)
            low.setdefault(volume, (disk, []))[1].append(words.harmless(path))
    return tuple(f"{_lacks(disk)} on {words.joined(_topmost(paths))}" for disk, paths in low.values())


def _topmost(paths: list[str]) -> list[str]:
    return [path for path in paths if not any(path.startswith(f"{other}/") for other in paths)]


def _lacks(disk: Disk) -> str:
    """What is nearly used up; empty when nothing is."""
    found = [f"{words.size(disk.free_bytes)} free"] if disk.free_bytes < ROOM_LEAST else []
    few = disk.total_inodes > 0 and disk.free_inodes < INODES_LEAST
    found += [f"{words.count(disk.free_inodes)} free inodes"] if few else []
    return " and ".join(found)


def filled_warnings(spec: RunSpec, site: Site, made: JobRequest) -> tuple[str, ...]:
    """One where the run begins from nothing in a checkpoint folder that is not, or may not stay, its own."""
    disk = _own_folder(spec, site, made)
    if disk is None or site.run_id or not (disk.filled or spec.resume is not None):
        return ()
    if not disk.filled:
        where = words.harmless(made.checkpoints)
        told = f"checkpoints.path {where}: what another run writes there at the same time would be gone on from"
        return (f"{told}; {posixpath.join(spec.checkpoints.path, '${run.id}')} is its own folder",)
    own = posixpath.join(spec.checkpoints.path, "${run.id}")
    told = f"checkpoints.path {words.harmless(made.checkpoints)} is not empty on {site.machine.name}"
    return (f"{told}: what lies there is left out of its uploads; {own} would be its own folder",)


def _own_folder(spec: RunSpec, site: Site, made: JobRequest) -> Disk | None:
    if not spec.checkpoints.path or "${" in made.checkpoints or made.checkpoint_link:
        return None
    return disk_of(site.reading, made.checkpoints)
