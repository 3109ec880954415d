"""A run that is tried again with its cards: others may have them in the pause, its place in line stays its own."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_rig import lives
from fake_nvml.driver import can_be_built
from faults.test_cards_and_line import A, B, Box
from odd_disk.disk import OddDisk
from odd_disk.disk import can_be_built as disk_can_be_built
from support import P38, until

from aicrun.agent import lock_folder, tickets
from aicrun.agent.card_users import can_be_known
from aicrun.agent.line import HOLDS
from aicrun.agent.lock_folder import Places
from aicrun.wire.codec import to_json
from aicrun.wire.jobs import Retry, Upload
from aicrun.wire.status import Status, status_of

pytestmark = pytest.mark.skipif(not can_be_built(), reason="no C compiler for the simulated driver")


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    # On the oldest Python that a host may have, where it is there: the other suites take the newest.
    host = Box(tmp_path, str(P38 or sys.executable))
    yield host
    host.rig.close()
    subprocess.run(["umount", str(host.locks)], capture_output=True, check=False)
    host.close()


# The pause lasts until a test ends it.
RULE = Retry(1, ("exit:75",), 3600, 3600)
AGAIN = '[ "$AICRUN_ATTEMPT" -ge 2 ] || exit 75'


def test_a_retry_frees_its_card_in_the_pause_and_waits_for_it_at_its_old_place(box: Box) -> None:
    first = box.start(AGAIN, retry=RULE)
    until(lambda: box.rig.report(first).next_attempt is not None)
    assert (box.status(first), box.tickets()) == (Status.ENQUEUED, 1)
    until(lambda: not box.held())
    number = _number(box, first)
    # Another one gets the card in the pause; a third stands behind the retry, though it came before the pause ended.
    ends = box.rig.home / "ends"
    second = box.start(f"until [ -e {ends} ]; do sleep 0.1; done")
    box.rig.running(second)
    third = box.start("true")
    box.waiting(third)
    go_on(box, first)
    over = until(lambda: found if (found := box.rig.report(first).next_attempt) and not found.in_s else None)
    assert (over.attempt, over.not_made) == (2, "")
    line = until(lambda: found if (found := box.rig.report(first).line) and found.holder_job_id else None)
    assert (line.holder_job_id, line.position, line.granted) == (second, 1, False)
    assert _number(box, first) == number
    assert until(lambda: box.rig.report(third).line.position == 2)
    ends.touch()
    ended = [box.rig.ended(job) for job in (second, first, third)]
    assert [status_of(report).status for report in ended] == [Status.SUCCEEDED] * 3
    assert ended[1].attempt == 2
    taken = {job: _at(box, job, "card_taken") for job in (first, third)}
    assert len(taken[first]) == 2
    assert taken[first][1] < taken[third][0]
    assert (box.held(), box.tickets()) == (False, 0)


def go_on(box: Box, job_id: str) -> None:
    """End the pause."""
    rule = to_json(Retry(1, ("exit:75",), 1, 1))
    box.rig.call("supervise", job_id=job_id, supervision={}, limits={"grace_s": 1}, retry=rule, by="ana")


def _number(box: Box, job_id: str) -> str:
    return next(path.name for path in box.locks.rglob("t-*") if path.name.endswith(job_id))


def _at(box: Box, job_id: str, event: str) -> list[float]:
    return [item.at for item in box.rig.report(job_id).events if item.event == event]


@pytest.mark.skipif(not can_be_known(), reason="the driver's pids are not this namespace's")
def test_a_stranger_that_came_in_the_pause_is_seen_before_the_next_attempt(box: Box) -> None:
    job = box.start(AGAIN, retry=RULE)
    until(lambda: box.rig.report(job).next_attempt is not None)
    stranger = subprocess.Popen(["sleep", "100"])
    try:
        plain = (box.driver.folder / "nvml.state").read_text()
        box.driver.write(plain.replace("card GPU-bbbb", f"  holder {stranger.pid} compute 900\ncard GPU-bbbb"))
        go_on(box, job)
        line = until(lambda: found if (found := box.rig.report(job).line) and found.granted and found.why else None)
        assert str(stranger.pid) in line.why
        assert box.status(job) is Status.ENQUEUED
        assert str(stranger.pid) in box.rig.standing(job).why
        box.driver.write(plain)
        report = box.rig.ended(job)
        assert (status_of(report).status, report.attempt) == (Status.SUCCEEDED, 2)
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("wait_s", [0, 1])
def test_a_retry_that_waited_for_its_card_too_long_leaves_the_end_of_the_first_attempt(box: Box, wait_s: int) -> None:
    job = box.start(AGAIN, retry=RULE, queue_wait_s=wait_s)
    until(lambda: box.rig.report(job).next_attempt is not None and not box.held())
    second = box.start("sleep 60")
    box.rig.running(second)
    go_on(box, job)
    standing = status_of(box.rig.ended(job))
    assert (standing.status, standing.code) == (Status.FAILED, 75)
    assert "attempt 2 of 2 was not made (its cards could not be had), after exit code 75: " in standing.why
    assert "run-2" in standing.why


def test_a_stop_while_a_retry_waits_for_its_card_is_a_stop(box: Box) -> None:
    job = box.start(AGAIN, retry=RULE)
    until(lambda: box.rig.report(job).next_attempt is not None and not box.held())
    second = box.start("sleep 60")
    box.rig.running(second)
    go_on(box, job)
    until(lambda: box.rig.report(job).line.holder_job_id == second)
    box.rig.call("stop", job_id=job, by="ana", grace_s=1)
    standing = status_of(box.rig.ended(job))
    assert (standing.status, standing.code, standing.card_allocated) == (Status.STOPPED, 75, True)
    assert box.tickets() == 1


def test_a_keeper_that_is_killed_in_the_pause_holds_no_card_and_no_place(box: Box) -> None:
    job = box.start(AGAIN, retry=RULE)
    until(lambda: box.rig.report(job).next_attempt is not None)
    os.kill(box.rig.keeper(job), signal.SIGKILL)
    assert status_of(box.rig.ended(job)).code == 75
    assert (box.held(), box.tickets()) == (False, 0)
    second = box.start("true")
    assert status_of(box.rig.ended(second)).status is Status.SUCCEEDED


@pytest.mark.parametrize("trouble", ["full", "gone"])
def test_a_lock_folder_that_takes_no_words_any_more_ends_no_run_and_keeps_none(box: Box, trouble: str) -> None:
    if trouble == "full":
        _small_disk(box.locks)
    target = box.rig.home / "target"
    ends = box.rig.home / "ends"
    saves = 'echo w > "$AICRUN_CHECKPOINT_DIR/w"; echo > saved'
    job = box.start(
        f"{saves}; until [ -e {ends} ]; do sleep 0.05; done",
        checkpoints=str(box.rig.home / "saved"),
        upload=Upload(f"file:{target}", "file", f"file:{target}"),
    )
    tried = box.start("exit 75", cards=(B,), retry=RULE)
    until(lambda: (box.rig.home / "work/run-1/saved").exists() and box.rig.report(tried).next_attempt is not None)
    until(lambda: not box.held(B))
    _spoil(box.locks, trouble)
    ends.touch()
    assert status_of(box.rig.ended(job)).status is Status.SUCCEEDED
    assert (target / "w").exists()
    # The one that is tried again: a full folder takes its card, of one that is gone there is none to take.
    go_on(box, tried)
    ended = box.rig.ended(tried)
    assert ended.attempt == (2 if trouble == "full" else 1)
    assert ended.next_attempt is None or ended.next_attempt.not_made == "card"
    assert not list(box.locks.rglob(".w-*"))


@pytest.mark.skipif(not disk_can_be_built(), reason="no C compiler for the disk that refuses")
def test_a_full_disk_at_its_turn_loses_no_keeper(box: Box, tmp_path: Path) -> None:
    disk = OddDisk(tmp_path / "disk", box.rig.home / ".local/state")
    box.rig.env.update(disk.env)
    tried = box.start(AGAIN, retry=RULE)
    until(lambda: box.rig.report(tried).next_attempt is not None and not box.held())
    first = box.start("exec sleep 600", cards=(A, B))
    holders = (box.rig.running(first), box.rig.keeper(first))
    fresh = box.start("true", cards=(B,))
    box.waiting(fresh)
    keepers = [box.rig.keeper(job) for job in (tried, fresh)]
    go_on(box, tried)
    until(lambda: box.rig.report(tried).line.holder_job_id == first)
    disk.refuse(errno.ENOSPC)
    # On this disk nobody can be told to stop.
    for pid in holders:
        os.kill(pid, signal.SIGKILL)
    # The further attempt was begun, and left the line when the disk refused it.
    until(lambda: _in_line(box) == {fresh: HOLDS})
    assert all(lives(pid) for pid in keepers)
    disk.allow()
    # The mark of the one stood already: its attempt met the disk. The other one's is written late.
    ended = [status_of(box.rig.ended(job, 60)) for job in (tried, fresh)]
    assert [one.status for one in ended] == [Status.FAILED, Status.SUCCEEDED]
    assert box.rig.report(tried).attempt == 2
    assert box.rig.report(tried).lost == ""


def _in_line(box: Box) -> dict[str, str]:
    """What the ticket of each living job says."""
    with lock_folder.opened(Places(str(box.locks), lasting=str(box.locks))) as folder:
        return {one.job_id: one.says for one in tickets.read(folder) if one.live}


def _small_disk(folder: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can mount")
    words = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=1777", "tmpfs", str(folder)]
    subprocess.run(words, check=True)


def _spoil(folder: Path, trouble: str) -> None:
    if trouble == "gone":
        shutil.rmtree(folder / "aicrun")
        return
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as stream:
        while True:
            stream.write(b"x" * 4096)
