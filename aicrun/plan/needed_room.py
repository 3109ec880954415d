"""How much room a start needs, folder by folder, as far as it is sure, and which file systems have not that much.

It must not count what may be written, nor guess high: each number is a lower bound, so that nothing is refused that
would have found its room. What a command writes is known to its author alone, who says it in `machine.disk`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from aicrun.plan import words
from aicrun.plan.environment import lock_of, setup_on
from aicrun.plan.inputs import fetches, ready
from aicrun.plan.locks import download_bytes
from aicrun.plan.model import Rejection, Wanted
from aicrun.plan.places import absolute, environments, volume_here, workspace_volume
from aicrun.spec.model import Machine
from aicrun.wire.facts import Disk, HostReading
from aicrun.wire.jobs import Setup
from aicrun.wire.room import Room

MIB = 1 << 20
# Below this many free inodes not even a small environment can be unpacked.
INODES_LEAST = 1024
# What the author asked for; the rest is ours to know.
ASKED = "machine.disk"
# An empty environment, and the files of a small one.
ENVIRONMENT = (32 * MIB, 256)
# What torch takes at the very least once it is unpacked, with the libraries of CUDA and without (2.0 to 2.8 measured
# 4 to 8 GiB and 0.6 to 1 GiB), and how many files it has.
TORCH_CUDA, TORCH, TORCH_FILES = 3072 * MIB, 512 * MIB, 5000
# The records of a job and the beginning of its logs; a log that finds no room is cut, and the run goes on.
RECORDS = (MIB, 64)
_NAMES_TORCH = re.compile(r"^torch(?![\w.-])", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Volume:
    """One file system of a machine: all that will be written on it, and what it has."""

    rooms: tuple[Room, ...]
    disk: Disk

    @property
    def folders(self) -> tuple[str, ...]:
        """Its folders that matter; where an author asked for one, that one stands for all."""
        paths = [room.path for room in self.rooms if room.what == ASKED]
        paths = paths or [room.path for room in self.rooms if room.bytes]
        return tuple(dict.fromkeys(paths or [self.rooms[0].path]))

    @property
    def rejections(self) -> tuple[Rejection, ...]:
        """Why it cannot take all that; empty when it can."""
        return (*self._too_small(), *self._too_few())

    def _too_small(self) -> Iterator[Rejection]:
        asked = sum(room.bytes for room in self.rooms)
        if self.disk.free_bytes >= asked:
            return
        first, second = words.asked_size(asked), words.size(self.disk.free_bytes)
        if first == second:
            first, second = (f"{words.count(amount // MIB)} MiB" for amount in (asked, self.disk.free_bytes))
        told = f"asks {first} free on {self._shown()}, has {second}"
        parts = [f"{words.asked_size(room.bytes)} for {room.what}" for room in self.rooms if room.bytes]
        is_plain = all(room.what == ASKED for room in self.rooms if room.bytes)
        told += "" if is_plain else f": {words.joined(parts)}"
        yield Rejection("disk", first, second, self.disk.total_bytes < asked, told)

    def _too_few(self) -> Iterator[Rejection]:
        # Where the file system counts none, 0 free is no number.
        asked = max(INODES_LEAST, sum(room.files for room in self.rooms))
        if not self.disk.total_inodes or self.disk.free_inodes >= asked:
            return
        first, second = words.count(asked), words.count(self.disk.free_inodes)
        told = f"asks {first} free inodes on {self._shown()}, has {second}"
        yield Rejection("inodes", first, second, self.disk.total_inodes < asked, told)

    def _shown(self) -> str:
        return words.harmless(words.joined(self.folders))


def disk_of(reading: HostReading, path: str) -> Disk | None:
    """The volume that was read for `path` (an absolute folder)."""
    return next((disk for disk in reading.disks if absolute(disk.path, reading.home) == path), None)


def volumes_needed(wanted: Wanted, machine: Machine, reading: HostReading) -> tuple[Volume, ...]:
    """Each file system that a start writes to, once, however many folders of it; one that was not read is left out."""
    found: dict[str, list[tuple[Room, Disk]]] = {}
    for room in needed_room(wanted, machine, reading):
        disk = _disk_below(reading, room.path)
        if disk is not None:
            found.setdefault(disk.volume or room.path, []).append((room, disk))
    return tuple(
        Volume(tuple(room for room, _ in pairs), _fullest(disk for _, disk in pairs)) for pairs in found.values()
    )


def there(reading: HostReading, path: str) -> str:
    """The folder `path` of a volume that is needed, or the nearest one above it that is known to be there."""
    disk = _disk_below(reading, path)
    return disk.place if disk is not None and disk.place else path


def _disk_below(reading: HostReading, path: str) -> Disk | None:
    # What is ours lies in folders of one folder, which was asked about.
    return disk_of(reading, path) or disk_of(reading, posixpath.dirname(path))


def _fullest(disks: Iterable[Disk]) -> Disk:
    # Data sets of one pool may have quotas of their own.
    return min(disks, key=lambda disk: disk.free_bytes)


def needed_room(wanted: Wanted, machine: Machine, reading: HostReading) -> tuple[Room, ...]:
    """The room of records, tree, environment, inputs and `machine.disk`; what is there already needs none."""
    spec, home = wanted.spec, reading.home
    found = [Room("records and logs", reading.jobs_root, *RECORDS)]
    source, tree = wanted.source, volume_here(workspace_volume(spec), spec, machine, home)
    if tree and source is not None and not source.git:
        found.append(Room("the working tree", tree, source.bytes, source.files))
    elif tree:
        found.append(Room("the workspace", tree))
    setup = setup_on(wanted, machine, reading)
    if setup.key and setup.key not in reading.envs_ready:
        size, files = _environment(wanted, setup, reading)
        found.append(Room("the environment", environments(machine, home), size, files, setup.key))
    for one in fetches(wanted, machine, home):
        if one.bytes and ready(one, reading) is None:
            found.append(Room(f"input {one.input}", posixpath.dirname(one.folder), one.bytes, one.files))
    asked = spec.machine.disk
    path = volume_here(asked.path, spec, machine, home) if asked is not None else ""
    if asked is not None and path:
        found.append(Room(ASKED, path, asked.free_bytes))
    return tuple(found)


def _environment(wanted: Wanted, setup: Setup, reading: HostReading) -> tuple[int, int]:
    """(bytes, files) of an environment that is still to be built."""
    size, files = ENVIRONMENT
    if setup.lock or setup.project:
        return size + download_bytes(lock_of(wanted), reading.architecture), files
    if not _NAMES_TORCH.search("\n".join((*setup.packages, setup.requirements))):
        return size, files
    for_cards = setup.torch_backend.startswith("cu") or (setup.torch_backend == "auto" and bool(reading.cards.driver))
    return size + (TORCH_CUDA if for_cards else TORCH), files + TORCH_FILES
