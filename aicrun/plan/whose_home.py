"""Root in somebody's folder: the run's home is that of the workspace's owner, and the plan says so.

It must not decide who runs what: the machine's account is as the inventory has it.
"""

from __future__ import annotations

from aicrun.plan import words
from aicrun.plan.needed_room import disk_of
from aicrun.plan.places import volume_here, workspace_volume
from aicrun.spec.model import Machine, RunSpec
from aicrun.wire.facts import Disk, HostReading


def home_of(spec: RunSpec, machine: Machine, reading: HostReading) -> str:
    """HOME of the run's command: the account's own, or the one of the workspace's owner where the account is root."""
    disk = _theirs(spec, machine, reading)
    return disk.owner_home if disk is not None else reading.home


def owner_rows(spec: RunSpec, machine: Machine, reading: HostReading) -> tuple[tuple[str, str], ...]:
    """One row where the account is root and the workspace another's."""
    disk = _theirs(spec, machine, reading)
    if disk is None:
        return ()
    owner, home = words.name(disk.owner), words.harmless(disk.owner_home)
    told = f"root, in a workspace of {owner}: HOME is {home}; what aicrun makes there is {owner}'s"
    return (("account", f"{told}, what the command makes is root's"),)


def _theirs(spec: RunSpec, machine: Machine, reading: HostReading) -> Disk | None:
    disk = disk_of(reading, volume_here(workspace_volume(spec), spec, machine, reading.home))
    return disk if reading.uid == 0 and disk is not None and disk.owner_home else None
