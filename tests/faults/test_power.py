"""The power goes: what was told before stays told, what was not durable is lost whole, and nothing is ever torn.

A real ext4 on a loop device, stopped by the kernel at once and without its cache (what `EXT4_IOC_SHUTDOWN` does), then
mounted again, so that its journal is replayed as after a power cut.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import struct
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from agent_rig import Refusal, Rig, state_of
from faults.test_kills import AFTER
from odd_disk.disk import OddDisk, can_be_built
from support import until

from aicrun.wire.codec import to_json
from aicrun.wire.status import Status, status_of

SHUTDOWN, WITHOUT_FLUSH = 0x8004587D, 2


class Outlet:
    """A disk under the state folder of a rig, whose power a test cuts."""

    def __init__(self, rig: Rig, image: Path) -> None:
        self.rig = rig
        self.image = image
        self.cuts = 0
        self.state = rig.home / ".local/state"
        self.state.mkdir(parents=True)

    def mount(self) -> bool:
        """The disk, as its journal says; commits of its own come far too late to help anybody."""
        order = ["mount", "-o", "loop,commit=900", self.image, self.state]
        return subprocess.run(order, capture_output=True, check=False).returncode == 0

    def unmount(self) -> None:
        """Once nobody uses it any more."""
        order = ["umount", self.state]
        until(lambda: subprocess.run(order, capture_output=True, check=False).returncode == 0)

    def cut(self) -> None:
        """The power goes, everything that ran is gone, the disk comes back."""
        handle = os.open(self.state, os.O_RDONLY)
        fcntl.ioctl(handle, SHUTDOWN, struct.pack("I", WITHOUT_FLUSH))
        os.close(handle)
        self.rig.close()
        self.unmount()
        # Another process that began meanwhile may still have the dead disk mounted: a copy is a disk of its own.
        self.cuts += 1
        fresh = self.image.with_name(f"{self.image.name}.{self.cuts}")
        shutil.copyfile(self.image, fresh)
        self.image.unlink()
        self.image = fresh
        assert self.mount()


@pytest.fixture
def outlet(rig: Rig, tmp_path: Path) -> Iterator[Outlet]:
    image = tmp_path / "disk.img"
    image.touch()
    os.truncate(image, 32 << 20)
    made = subprocess.run(["mkfs.ext4", "-q", "-F", image], capture_output=True, check=False)
    found = Outlet(rig, image)
    if made.returncode or not found.mount():
        pytest.skip("no file system can be made on a loop device here")
    yield found
    rig.close()
    found.unmount()


@pytest.mark.parametrize("place", list(AFTER))
def test_whatever_moment_the_power_goes_the_answer_is_true_and_stays(rig: Rig, outlet: Outlet, place: str) -> None:
    rig.ended(rig.start("earlier-run", "exit 3"))
    request = rig.request("moment-run", "echo x >> ran; exit 6")
    with rig.link(AICRUN_TEST_HOOK=f"{place}:pause") as link:
        link.call("reserve", request=to_json(request), confirm=place != "W1")
    keeper = rig.keeper(request.job_id)
    until(lambda: state_of(keeper) == "T")
    outlet.cut()
    standing = rig.standing(request.job_id)
    assert (standing.status, standing.code) == AFTER[place]
    assert replace(rig.standing(request.job_id), why="") == replace(standing, why="")
    assert rig.standing("earlier-run").code == 3
    busy = rig.call("reserve", request=to_json(rig.request("moment-run", "exit 6")), confirm=True)
    assert busy["answer"] == ("ok" if standing.status is Status.REJECTED else "busy")


def test_a_job_whose_making_was_cut_is_there_whole_or_not_at_all(rig: Rig, outlet: Outlet) -> None:
    for place in ("reserve.begin", "reserve.folder", "reserve.record", "reserve.launched", "reserve.ready"):
        request = rig.request(f"cut-{place.partition('.')[2]}", "exit 6")
        with rig.link(AICRUN_TEST_HOOK=f"{place}:pause") as link:
            assert link.process.stdin
            link.process.stdin.write(_framed(to_json(request)))
            link.process.stdin.flush()
            until(lambda found=link: state_of(found.process.pid) == "T")
            outlet.cut()
        _there_or_not(rig, request.job_id)
        # Whatever is left of it keeps nobody from starting the run.
        again = rig.request(request.run, "exit 6")
        assert rig.call("reserve", request=to_json(again), confirm=True)["answer"] == "ok"
        assert status_of(rig.ended(again.job_id)).code == 6


def _framed(request: object) -> bytes:
    raw = json.dumps({"call": "reserve", "request": request, "confirm": True}).encode()
    return b"%d 0\n" % len(raw) + raw


def _there_or_not(rig: Rig, job: str) -> None:
    try:
        assert rig.standing(job).status is Status.REJECTED
    except Refusal as refusal:
        assert refusal.token == "not_found"


def test_an_end_that_was_told_is_told_again_after_the_power_came_back(rig: Rig, outlet: Outlet) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    choice = random.Random(seed)
    for number in range(4):
        job = rig.start(f"told-{number}", f"sleep {choice.random() / 2:.3f}; exit 5")
        told = None
        for _ in range(choice.randrange(1, 40)):
            told = rig.standing(job)
            if told.status.terminal:
                break
        assert told is not None
        outlet.cut()
        after = until(lambda one=job: (seen := rig.standing(one)).status.terminal and seen)
        if told.status.terminal:
            assert (after.status, after.code) == (told.status, told.code), seed
        else:
            assert (after.status, after.code) in ((Status.UNKNOWN, None), (Status.FAILED, 5), (Status.REJECTED, None))


@pytest.mark.skipif(not can_be_built(), reason="no C compiler for the disk that writes down its changes")
def test_no_record_stands_under_its_name_before_its_bytes_are_on_the_disk(rig: Rig, tmp_path: Path) -> None:
    disk = OddDisk(tmp_path / "disk", rig.home / ".local/state")
    disk.watch()
    rig.env.update(disk.env)
    job = rig.start("durable-run", "echo x; exit 6")
    rig.ended(job)
    unsynced: dict[str, bool] = defaultdict(bool)
    named: list[str] = []
    open_folders: dict[str, list[str]] = defaultdict(list)
    for change in disk.changes():
        if change.what in ("write", "truncate"):
            unsynced[change.path] = True
        elif change.what == "fsync":
            unsynced[change.path] = False
            open_folders.pop(change.path, None)
        elif change.what in ("rename", "link") and change.to.endswith(".json"):
            assert not unsynced[change.path], change
            named.append(Path(change.to).name)
            open_folders[str(Path(change.to).parent)].append(change.to)
    kinds = ("request", "record", "decision", "launch", "start", "exit", "end")
    assert {f"{kind}.json" for kind in kinds} <= set(named)
    assert dict(open_folders) == {}, "names that no later sync of their folder made durable"
