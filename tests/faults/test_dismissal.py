"""The service manager ends a keeper: the machine shuts down, a login or a service is ended, somebody stops its unit."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_rig import lives, state_of
from fake_systemd import HANGS, Host, tells
from small_disk import fill, small
from support import until

from aicrun.agent.records import ROOM
from aicrun.wire import names
from aicrun.wire.codec import to_json
from aicrun.wire.jobs import Retry, Setup, Upload
from aicrun.wire.status import Status

STAYS = "touch ready; while :; do sleep 0.1; done"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.close()


def shuts_down(host: Host) -> None:
    """From now on the manager says that it is stopping, with a code of its own, as it does."""
    host.tool("systemctl", tells("echo stopping; exit 1"))


def started(host: Host, command: str) -> str:
    """A run whose command has come as far as `ready`."""
    job_id = host.rig.start("long", command)
    host.rig.running(job_id)
    until((host.rig.home / "work/long/ready").exists)
    return job_id


@pytest.mark.parametrize("runs", (True, False), ids=("unit", "session"))
@pytest.mark.parametrize(
    ("command", "how"),
    (
        (f"trap 'echo saved > saved; exit 0' TERM; {STAYS}", "code 0"),
        (f"trap 'exit 9' TERM; {STAYS}", "code 9"),
        (STAYS, "signal 15"),
    ),
)
def test_a_shutdown_is_no_end_of_the_runs_own(host: Host, runs: bool, command: str, how: str) -> None:
    if not runs:
        host.tool("systemd-run", "exit 1")
    job_id = started(host, command)
    pid = host.rig.running(job_id)
    shuts_down(host)
    host.dismiss(job_id)
    report = host.rig.ended(job_id)
    standing = host.rig.standing(job_id)
    assert (standing.status, standing.reason) == (Status.UNKNOWN, "reboot")
    assert report.lost_detail == f"the machine was shut down; told to end, its command ended with {how}"
    assert not lives(pid)
    assert how != "code 0" or (host.rig.home / "work/long/saved").exists()


def test_an_end_that_comes_together_with_the_shutdown_is_not_taken_for_one(host: Host) -> None:
    """All processes of a session are told at once, by SIGHUP too, and the command may be faster than its keeper."""
    job_id = started(host, f"trap 'exit 0' TERM; {STAYS}")
    keeper, pid = host.rig.keeper(job_id), host.rig.running(job_id)
    shuts_down(host)
    os.kill(keeper, signal.SIGSTOP)
    until(lambda: state_of(keeper) == "T")
    os.kill(pid, signal.SIGTERM)
    until(lambda: not lives(pid))
    os.kill(keeper, signal.SIGHUP)
    host.dismiss(job_id)
    pending(keeper)
    os.kill(keeper, signal.SIGCONT)
    host.rig.ended(job_id)
    assert host.rig.standing(job_id).reason == "reboot"


def pending(pid: int) -> None:
    """Wait until SIGTERM waits for that process."""

    def waits() -> bool:
        rows = Path(f"/proc/{pid}/status").read_text().splitlines()
        masks = [int(row.split()[1], 16) for row in rows if row.startswith(("SigPnd:", "ShdPnd:"))]
        return any(mask >> (signal.SIGTERM - 1) & 1 for mask in masks)

    until(waits)


def test_what_was_building_never_started(host: Host) -> None:
    job_id = host.rig.start("long", "echo began > began", setup=Setup(run=("touch building; sleep 600",)))
    host.rig.running(job_id, "setup")
    shuts_down(host)
    host.dismiss(job_id)
    until(lambda: not lives(host.rig.keeper(job_id)))
    assert host.rig.standing(job_id).status is Status.REJECTED
    assert host.rig.report(job_id).phase == "never_started"
    assert not (host.rig.home / "work/long/began").exists()


def test_what_was_not_decided_is_decided_no(host: Host) -> None:
    request = host.rig.request("long", "echo began > began")
    assert host.rig.call("reserve", request=to_json(request))["answer"] == "ok"
    shuts_down(host)
    host.dismiss(request.job_id)
    until(lambda: not lives(host.rig.keeper(request.job_id)))
    assert host.rig.report(request.job_id).decision == "no"


def test_an_upload_that_was_cut_can_be_made_again(host: Host, tmp_path: Path) -> None:
    target = f"file:{tmp_path}/kept"
    host.rig.env["AICRUN_TEST_HOOK"] = "upload.W5:pause"
    upload = Upload(target, "file", f"{target}/1/")
    kept = host.rig.home / "kept-here"
    job_id = host.rig.start("long", f"echo weights > {kept}/model", upload=upload, checkpoints=str(kept))
    keeper = host.rig.keeper(job_id)
    until(lambda: state_of(keeper) == "T")
    shuts_down(host)
    host.dismiss(job_id)
    pending(keeper)
    os.kill(keeper, signal.SIGCONT)
    until(lambda: not lives(keeper))
    standing = host.rig.standing(job_id)
    assert (standing.status, standing.reason) == (Status.FAILED, "upload_failed")
    with host.rig.link(AICRUN_TEST_HOOK="") as link:
        link.call("upload", job_id=job_id, by="ana")
    until(lambda: host.rig.standing(job_id).status is Status.SUCCEEDED)


def test_an_attempt_that_was_due_is_not_made_and_the_last_one_counts(host: Host) -> None:
    job_id = host.rig.start("long", "exit 75", retry=Retry(3, ("exit:75",), 600, 600))
    until(lambda: host.rig.report(job_id).next_attempt)
    shuts_down(host)
    host.dismiss(job_id)
    until(lambda: not lives(host.rig.keeper(job_id)))
    standing = host.rig.standing(job_id)
    assert (standing.status, standing.code) == (Status.FAILED, 75)


def test_a_stop_before_the_shutdown_is_a_stop(host: Host) -> None:
    job_id = started(host, f"trap 'sleep 1; exit 4' TERM; {STAYS}")
    host.rig.call("stop", job_id=job_id, by="ana", grace_s=20)
    until(lambda: any(event.event == "stop_sent" for event in host.rig.report(job_id).events))
    shuts_down(host)
    host.dismiss(job_id)
    host.rig.ended(job_id)
    standing = host.rig.standing(job_id)
    assert (standing.status, standing.code) == (Status.STOPPED, 4)


def test_a_stopped_unit_is_a_stopped_run(host: Host) -> None:
    job_id = started(host, f"trap 'exit 4' TERM; {STAYS}")
    host.dismiss(job_id)
    report = host.rig.ended(job_id)
    assert host.rig.standing(job_id).status is Status.STOPPED
    assert report.stop is not None
    assert report.stop.by == "systemctl stop"


@pytest.mark.parametrize("room", (True, False), ids=("the kept room", "nothing"))
def test_a_unit_is_stopped_on_a_full_disk(host: Host, room: bool) -> None:
    with small(host.rig.home / ".local/state", "size=4m", end=host.close) as disk:
        job_id = started(host, f"trap 'exit 4' TERM; {STAYS}")
        pid, filler = host.rig.running(job_id), disk / "filler"
        if not room:
            (host.rig.folder(job_id) / (names.STOP + ROOM)).unlink()
        fill(filler)
        host.dismiss(job_id)
        until(lambda: not lives(host.rig.keeper(job_id)))
        assert not lives(pid)
        assert (host.rig.folder(job_id) / names.STOP).exists() == room
        filler.unlink()
        standing, stop = host.rig.standing(job_id), host.rig.report(job_id).stop
        assert (standing.status, standing.code) == (Status.STOPPED, 4)
        assert stop is not None
        assert stop.by == "systemctl stop"


MUTE = ("echo 'Failed to connect to bus: Connection refused' >&2; exit 1", "echo offline; exit 1", HANGS)


@pytest.mark.parametrize("says", MUTE, ids=("no bus", "offline", "hangs"))
def test_an_end_that_nobody_explains_is_no_stop(host: Host, says: str) -> None:
    job_id = started(host, f"trap 'exit 0' TERM; {STAYS}")
    pid = host.rig.running(job_id)
    host.tool("systemctl", tells(says))
    host.dismiss(job_id)
    until(lambda: not lives(host.rig.keeper(job_id)))
    assert not lives(pid)
    standing, report = host.rig.standing(job_id), host.rig.report(job_id)
    assert (standing.status, standing.reason, report.stop) == (Status.UNKNOWN, "supervisor_lost", None)


@pytest.mark.parametrize("runs", (True, False), ids=("unit", "session"))
def test_an_end_that_nobody_explains_is_a_reboot_after_one(host: Host, runs: bool) -> None:
    if not runs:
        host.tool("systemd-run", "exit 1")
    job_id = started(host, f"trap 'exit 0' TERM; {STAYS}")
    keeper, folder = host.rig.keeper(job_id), host.rig.folder(job_id)
    host.tool("systemctl", tells(MUTE[0]))
    host.dismiss(job_id)
    until(lambda: not lives(keeper))
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for path in (folder / names.LAUNCH, *folder.rglob(names.STEP_START)):
        path.write_text(path.read_text().replace(boot, "00000000-0000-0000-0000-000000000000"))
    standing = host.rig.standing(job_id)
    assert (standing.status, standing.reason) == (Status.UNKNOWN, "reboot")
    assert b"systemctl did not tell for what" in (folder / names.KEEPER_ERR).read_bytes()


def test_a_session_that_is_ended_is_unknown_and_named(host: Host) -> None:
    host.tool("systemd-run", "exit 1")
    job_id = started(host, STAYS)
    host.dismiss(job_id)
    report = host.rig.ended(job_id)
    assert (report.lost, host.rig.standing(job_id).status) == ("supervisor_lost", Status.UNKNOWN)
    assert report.lost_detail.startswith("the service manager ended all that was in session-3.scope; told to end,")


def test_nobody_else_ends_a_keeper(host: Host) -> None:
    job_id = started(host, STAYS)
    shuts_down(host)
    os.kill(host.rig.keeper(job_id), signal.SIGTERM)
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 1.5)
    assert host.rig.standing(job_id).status is Status.IN_PROGRESS
    assert host.rig.report(job_id).supervised
