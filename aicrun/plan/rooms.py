"""The folders that a run writes to, as the survey saw them: nearly full, or a checkpoint folder that holds something.

It must not refuse: what a run needs is said by `machine.disk`, and a person may mean the folder as it is.
"""

from __future__ import annotations

import posixpath

from aicrun.plan import words
from aicrun.plan.admit import disk_of
from aicrun.plan.draft import Site
from aicrun.plan.places import data, volume_here, volumes
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
    """`307.2 MiB free on /data/out` for each such volume, with every folder of the run on it."""
    asked = [volume_here(written, spec, machine, reading.home) for written in volumes(spec)]
    low: dict[tuple[int, int], list[str]] = {}
    for path in dict.fromkeys((*asked, data(machine, reading.home))):
        disk = disk_of(reading, path) if path else None
        if disk is not None and disk.free_bytes < ROOM_LEAST:
            low.setdefault((disk.free_bytes, disk.total_bytes), []).append(words.harmless(path))
    return tuple(f"{words.size(free)} free on {words.joined(paths)}" for (free, _), paths in low.items())


def filled_warnings(spec: RunSpec, site: Site, made: JobRequest) -> tuple[str, ...]:
    """One where the run begins from nothing in a checkpoint folder of its spec that holds something already."""
    disk = _own_folder(spec, site, made)
    if disk is None or not disk.filled or site.run_id:
        return ()
    own = posixpath.join(spec.checkpoints.path, "${run.id}")
    told = f"checkpoints.path {words.harmless(made.checkpoints)} is not empty on {site.machine.name}"
    return (f"{told}: what lies there counts as this run's, also for its upload; {own} would be its own folder",)


def _own_folder(spec: RunSpec, site: Site, made: JobRequest) -> Disk | None:
    if not spec.checkpoints.path or "${" in made.checkpoints or made.checkpoint_link:
        return None
    return disk_of(site.reading, made.checkpoints)
