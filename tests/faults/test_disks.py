"""Disks that refuse: full, read-only, over quota, out of inodes, at the start of a run and at its end."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from agent_rig import Refusal, Rig, lives, state_of
from odd_disk.disk import OddDisk, can_be_built
from support import until

from aicrun.wire import names
from aicrun.wire.codec import to_json
from aicrun.wire.hashes import canonical, tree_hash
from aicrun.wire.jobs import Setup, Upload
from aicrun.wire.room import Room
from aicrun.wire.status import Status, status_of

WAITS = "while [ ! -e go ]; do sleep 0.05; done; exit 7"


@pytest.fixture
def disk(rig: Rig, tmp_path: Path) -> OddDisk:
    """The disk of the state folder, which refuses what it is told to."""
    if not can_be_built():
        pytest.skip("no C compiler for the disk that refuses")
    found = OddDisk(tmp_path / "disk", rig.home / ".local/state")
    rig.env.update(found.env)
    return found


def use_up(folder: Path) -> list[Path]:
    """Make files until there is none to be had."""
    made = []
    with pytest.raises(OSError, match="No space"):
        while True:
            path = folder / f"filler-{len(made)}"
            path.touch()
            made.append(path)
    return made


def fill(folder: Path) -> Path:
    """Use all the room that is left; the file that takes it."""
    path = folder / "filler"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    with pytest.raises(OSError, match="No space"):
        while True:
            os.write(handle, b"x" * 4096)
    os.close(handle)
    return path


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_refuses_the_end_of_a_run_gets_it_when_it_takes_it_again(
    rig: Rig, disk: OddDisk, number: int
) -> None:
    job = rig.start("end-run", WAITS)
    main, keeper = rig.running(job), rig.keeper(job)
    until(lambda: rig.standing(job).phase == "training")
    disk.refuse(number)
    (rig.home / "work/end-run/go").touch()
    # Its end is known to its keeper alone, who stays until it is written; nobody calls it lost meanwhile.
    until(lambda: _is_zombie(main))
    for _ in range(3):
        standing = rig.standing(job)
        assert standing.status is Status.IN_PROGRESS
    assert lives(keeper)
    assert not (rig.step(job) / names.STEP_EXIT).exists()
    disk.allow()
    standing = status_of(rig.ended(job, 40))
    assert (standing.status, standing.code) == (Status.FAILED, 7)
    until(lambda: not lives(keeper))


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() and not lives(pid)


def test_a_disk_that_is_full_at_the_end_has_room_for_the_end(rig: Rig, small_disk: Path) -> None:
    job = rig.start("end-run", WAITS)
    rig.running(job)
    until(lambda: rig.standing(job).phase == "training")
    fill(small_disk)
    (rig.home / "work/end-run/go").touch()
    standing = status_of(rig.ended(job, 40))
    assert (standing.status, standing.code) == (Status.FAILED, 7)
    assert os.statvfs(small_disk).f_bavail * 4096 < 64 * 1024, "it was never full"


@pytest.mark.parametrize("number", [errno.EROFS, errno.EDQUOT, errno.EIO])
def test_a_start_that_the_disk_refuses_says_so_and_leaves_nothing(rig: Rig, disk: OddDisk, number: int) -> None:
    rig.call("jobs")
    disk.refuse(number)
    with pytest.raises(Refusal) as caught:
        rig.start("no-disk", "touch ran")
    assert caught.value.token in ("state_unusable", "start_failed")
    assert os.strerror(number) in str(caught.value)
    assert str(rig.home / ".local/state") in str(caught.value)
    disk.allow()
    assert [one["job_id"] for one in rig.call("jobs")["reports"]] == []
    job = rig.start("no-disk", "exit 7")
    assert status_of(rig.ended(job)).code == 7
    assert not (rig.home / "work/no-disk/ran").exists()


def test_what_runs_is_told_and_stopped_though_the_disk_is_read_only(rig: Rig, disk: OddDisk) -> None:
    job = rig.start("ro-run", "echo here; sleep 600")
    main = rig.running(job)
    until(lambda: rig.log(job) == b"here\n")
    disk.refuse(errno.EROFS)
    assert rig.standing(job).status is Status.IN_PROGRESS
    assert [one["job_id"] for one in rig.call("jobs")["reports"]] == [job]
    with pytest.raises(Refusal, match="Read-only"):
        rig.call("stop", job_id=job, by="ana@laptop", grace_s=1)
    assert lives(main)
    disk.allow()
    rig.call("stop", job_id=job, by="ana@laptop", grace_s=1)
    assert status_of(rig.ended(job)).status is Status.STOPPED


def test_without_an_inode_a_start_is_refused_and_a_run_still_ends(rig: Rig, few_inodes: Path) -> None:
    job = rig.start("inode-run", WAITS)
    rig.running(job)
    until(lambda: rig.standing(job).phase == "training")
    fillers = use_up(few_inodes)
    with pytest.raises(Refusal) as caught:
        rig.start("no-inode", "touch ran")
    assert caught.value.token in ("state_unusable", "start_failed")
    assert "No space left" in str(caught.value)
    (rig.home / "work/inode-run/go").touch()
    standing = status_of(rig.ended(job, 40))
    assert (standing.status, standing.code) == (Status.FAILED, 7)
    for filler in fillers:
        filler.unlink()
    assert status_of(rig.ended(rig.start("no-inode", "exit 8"))).code == 8


def test_a_reservation_that_a_full_disk_refuses_to_start_is_a_reservation_no_more(rig: Rig, small_disk: Path) -> None:
    rig.ended(rig.start("again-run", "exit 3"))
    named = (rig.report("again-run").job_id,)
    request = rig.request("again-run", "exit 4", named=named)
    rig.call("reserve", request=to_json(request), confirm=False)
    keeper = rig.keeper(request.job_id)
    filler = fill(small_disk)
    with pytest.raises(Refusal, match="No space"):
        rig.call("confirm", job_id=request.job_id, by="ana@laptop")
    until(lambda: not lives(keeper))
    assert rig.standing(request.job_id).status is Status.REJECTED
    filler.unlink()
    again = rig.start("again-run", "exit 4", named=named)
    assert status_of(rig.ended(again)).code == 4


def test_a_start_that_a_full_disk_refuses_at_its_last_step_leaves_nothing_reserved(rig: Rig, small_disk: Path) -> None:
    rig.call("jobs")
    request = rig.request("last-run", "touch ran")
    with rig.link(AICRUN_TEST_HOOK="reserve.ready:pause") as link, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(link.call, "reserve", request=to_json(request), confirm=True)
        until(lambda: state_of(link.process.pid) == "T")
        filler = fill(small_disk)
        os.kill(link.process.pid, signal.SIGCONT)
        with pytest.raises(Refusal, match="No space"):
            asked.result()
    until(lambda: not lives(rig.keeper(request.job_id)))
    filler.unlink()
    assert rig.standing(request.job_id).status is Status.REJECTED
    assert rig.call("look", run="last-run") == {"reports": [], "unreadable": []}
    assert status_of(rig.ended(rig.start("last-run", "exit 5"))).code == 5
    assert not (rig.home / "work/last-run/ran").exists()


@pytest.mark.parametrize("kept", [True, False])
def test_an_upload_on_a_full_disk_tells_why_it_failed_and_can_be_done_again(
    rig: Rig, small_disk: Path, kept: bool
) -> None:
    checkpoints, target = rig.home / "work/up-run/checkpoints", rig.home / "target"
    checkpoints.mkdir(parents=True)
    upload = Upload(to=f"file:{target}", scheme="file", destination=str(target))
    saves = f"echo weights >{checkpoints}/model.bin; " if kept else ""
    wait = "while [ ! -e go ]; do sleep 0.05; done"
    job = rig.start("up-run", saves + wait, checkpoints=str(checkpoints), upload=upload)
    rig.running(job)
    until(lambda: rig.standing(job).phase == "training")
    filler = fill(small_disk)
    (rig.home / "work/up-run/go").touch()
    standing = status_of(rig.ended(job, 40))
    assert (standing.status, standing.reason) == (Status.FAILED, "upload_failed")
    assert "No space left on device" in standing.why
    until(lambda: not lives(rig.keeper(job)))
    filler.unlink()
    rig.call("upload", job_id=job, by="ana@laptop")
    until(lambda: not lives(rig.keeper(job)))
    standing = rig.standing(job)
    assert standing.status is (Status.SUCCEEDED if kept else Status.FAILED)
    assert kept or "nothing to upload" in standing.why


def test_a_run_that_filled_the_disk_is_stopped_though_it_is_full(rig: Rig, small_disk: Path) -> None:
    job = rig.start("full-run", "echo here; sleep 600")
    main = rig.running(job)
    until(lambda: rig.log(job) == b"here\n")
    fill(small_disk)
    rig.call("stop", job_id=job, by="ana@laptop", grace_s=1)
    standing = status_of(rig.ended(job, 40))
    assert (standing.status, standing.signal) == (Status.STOPPED, signal.SIGTERM)
    assert not lives(main)


MIB = 1 << 20


def rooms(work: Path, *sizes: int, files: int = 0) -> tuple[Room, ...]:
    return tuple(Room(f"part {place}", str(work / f"part{place}"), size, files) for place, size in enumerate(sizes))


def test_a_disk_that_filled_after_the_plan_refuses_the_start_with_the_sum_and_leaves_nothing(
    rig: Rig, work_disk: Path
) -> None:
    (work_disk / "since").write_bytes(b"x" * 3 * MIB)
    with pytest.raises(Refusal) as caught:
        rig.start("big-run", "touch ran", room=rooms(work_disk, 3 * MIB, 3 * MIB))
    assert caught.value.token == "disk_full"
    assert "5.0 MiB free, 6.0 MiB needed" in str(caught.value)
    assert "3.0 MiB for part 0, 3.0 MiB for part 1" in str(caught.value)
    assert [one["job_id"] for one in rig.call("jobs")["reports"]] == []
    assert not (work_disk / "big-run").exists()
    # Apart from each other each has enough, and what is on another disk does not count here.
    elsewhere = Room("the rest", str(rig.home / "else"), 3 * MIB)
    job = rig.start("big-run", "exit 7", room=(*rooms(work_disk, 3 * MIB), elsewhere))
    assert status_of(rig.ended(job)).code == 7


def test_few_inodes_refuse_the_start_with_both_numbers(rig: Rig, work_disk: Path) -> None:
    with pytest.raises(Refusal, match=r"free inodes, 150 needed") as caught:
        for number in range(100):
            (work_disk / str(number)).touch()
        rig.start("many-run", "touch ran", room=rooms(work_disk, MIB, files=150))
    assert caught.value.token == "disk_full"
    job = rig.start("many-run", "exit 7", room=rooms(work_disk, MIB, files=50))
    assert status_of(rig.ended(job)).code == 7


def test_an_environment_that_stands_by_now_needs_no_room(rig: Rig, work_disk: Path) -> None:
    wanted = Room("the environment", str(work_disk), 60 * MIB, 0, "cafe")
    with pytest.raises(Refusal, match=r"60\.0 MiB needed"):
        rig.start("env-run", "touch ran", room=(wanted,))
    (work_disk / "cafe/bin").mkdir(parents=True)
    (work_disk / "cafe/bin/python").touch()
    (work_disk / "cafe/complete").write_text('{"schema": 1, "key": "cafe"}')
    job = rig.start("env-run", "exit 7", room=(wanted,))
    assert status_of(rig.ended(job)).code == 7


def test_a_disk_that_filled_while_a_run_was_set_up_fails_it_before_its_command(rig: Rig, work_disk: Path) -> None:
    """As in a line of a day: what would die at its first write does not begin, and says why."""
    held = "while [ ! -e %s ]; do sleep 0.05; done" % (rig.home / "go")
    job = rig.start("late-run", "touch %s" % (rig.home / "ran"), setup=Setup(run=(held,)))
    rig.running(job, "setup")
    fill(work_disk)
    (rig.home / "go").touch()
    standing = status_of(rig.ended(job, 40))
    assert (standing.status, standing.reason) == (Status.FAILED, "disk_full")
    assert "0.0 MiB free" in standing.why
    assert str(work_disk) in standing.why
    assert not (rig.home / "ran").exists()


def test_the_doctor_tells_a_disk_on_which_no_file_can_be_made(rig: Rig, work_disk: Path) -> None:
    """None free is a number where there is a count of them, and no number elsewhere."""
    use_up(work_disk)
    rows = {row["topic"]: row for row in rig.call("doctor", data=str(work_disk))["findings"]}
    assert (rows["envs"]["word"], ", 0 inodes" in rows["envs"]["text"]) == ("note", True), rows["envs"]
    assert rows["envs"]["help"].startswith("df -h ")


def test_a_source_that_would_fill_the_disk_is_refused_before_any_of_it_is_sent(rig: Rig, small_disk: Path) -> None:
    large, small = os.urandom(2 * MIB), b"print(1)\n"
    files = [("a.py", small), ("big.bin", large), ("same.bin", large)]
    entries = [(name, "f", hashlib.sha256(raw).hexdigest(), len(raw)) for name, raw in files]
    tree, manifest = tree_hash([entry[:3] for entry in entries]), canonical([list(entry) for entry in entries])
    # Of two files of one content one is sent.
    assert len(rig.call("store_missing", manifest, tree=tree, hashes=[])["missing"]) == 2
    (small_disk / "filler").write_bytes(b"x" * MIB)
    with pytest.raises(Refusal) as caught:
        rig.call("store_missing", manifest, tree=tree, hashes=[])
    assert caught.value.token == "disk_full"
    assert "3.0 MiB needed" in str(caught.value) and "for 2 files that would be sent" in str(caught.value)
    # What is here already needs no room.
    (small_disk / "filler").unlink()
    rig.call("store_put", large, hash=entries[1][2])
    (small_disk / "filler").write_bytes(b"x" * (MIB // 2))
    assert rig.call("store_missing", manifest, tree=tree, hashes=[])["missing"] == [entries[0][2]]
