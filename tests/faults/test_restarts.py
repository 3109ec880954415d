"""A container that restarts over the same state folder: a real pid namespace that dies, and a new one with new pids.

The boot id stays the same and pids begin anew, so that a recorded pid soon is somebody else's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_rig import Rig, children
from fake_nvml.driver import can_be_built
from faults.test_cards_and_line import A, Box
from support import until

from aicrun.wire import names
from aicrun.wire.codec import to_json
from aicrun.wire.status import Status


class Container:
    """A pid namespace in which every agent of a rig runs; PID 1 never reaps, as in many rented ones."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.python = rig.python
        self.outer: subprocess.Popen[bytes] | None = None

    def boot(self) -> bool:
        """Start it; False where no namespace can be had."""
        order = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sleep", "infinity"]
        self.outer = subprocess.Popen(order, stderr=subprocess.DEVNULL)
        init = until(lambda: self.outer and (self.outer.poll() is not None or children(self.outer.pid)))
        if init is True:
            return False
        until(lambda: b"sleep" in Path(f"/proc/{init[0]}/cmdline").read_bytes())
        wrapper = self.rig.home / "python-inside"
        wrapper.write_text(f'#!/bin/sh\nexec nsenter -t {init[0]} -p -m "{self.python}" "$@"\n')
        wrapper.chmod(0o755)
        self.rig.python = str(wrapper)
        return True

    def inside(self, *order: str) -> subprocess.CompletedProcess[str]:
        """Run a command in it, to its end."""
        inner = Path(self.rig.python).read_text().splitlines()[1].split()[1:6]
        return subprocess.run([*inner, *order], capture_output=True, text=True, check=False)

    def end(self) -> None:
        """Its PID 1 is killed, and the kernel kills all that lived in it."""
        assert self.outer is not None
        for pid in children(self.outer.pid):
            os.kill(pid, 9)
        self.outer.wait()
        self.rig.close()

    def restart(self) -> None:
        """It ends and comes back."""
        self.end()
        assert self.boot()


@pytest.fixture
def container(rig: Rig) -> Iterator[Container]:
    found = Container(rig)
    if not found.boot():
        pytest.skip("no pid namespace can be made here")
    yield found
    found.end()


def test_after_a_restart_running_is_unknown_ended_stays_and_reserved_may_start(rig: Rig, container: Container) -> None:
    ended = rig.start("ended-run", "exit 3")
    rig.ended(ended)
    running = rig.start("running-run", "echo here; sleep 600")
    rig.running(running)
    until(lambda: rig.log(running) == b"here\n")
    reserved = rig.request("reserved-run", "true")
    rig.call("reserve", request=to_json(reserved), confirm=False)
    boot = json.loads((rig.folder(running) / names.LAUNCH).read_text())["boot"]
    container.restart()
    standing = rig.standing(running)
    assert (standing.status, standing.reason, standing.code) == (Status.UNKNOWN, "reboot", None)
    assert rig.log(running) == b"here\n"
    assert rig.standing(ended).code == 3
    assert rig.standing(reserved.job_id).status is Status.REJECTED
    again = rig.start("reserved-run", "exit 4")
    assert rig.standing(again).status is not Status.REJECTED
    rig.ended(again)
    other = json.loads((rig.folder(again) / names.LAUNCH).read_text())["boot"]
    assert (other["boot_id"], other == boot) == (boot["boot_id"], False)
    container.restart()
    assert rig.standing(running) == standing
    assert rig.standing(again).code == 4


def test_whoever_got_the_pid_of_a_job_of_the_last_container_is_not_stopped(rig: Rig, container: Container) -> None:
    job = rig.start("old-run", "sleep 600")
    pids = {rig.running(job), rig.keeper(job)}
    container.restart()
    loop = f"while true; do setsid sleep 600 >/dev/null 2>&1 & test $! -ge {max(pids)} && break; done"
    assert container.inside("sh", "-c", loop).returncode == 0
    taken = [pid for pid in pids if container.inside("kill", "-0", str(pid)).returncode == 0]
    assert taken, "no pid came back"
    assert rig.standing(job).status is Status.UNKNOWN
    rig.call("stop", job_id=job, by="ana@laptop", grace_s=0)
    rig.call("jobs")
    assert [pid for pid in taken if container.inside("kill", "-0", str(pid)).returncode] == []


def test_a_run_in_a_container_ends_with_its_code_though_nobody_reaps(rig: Rig, container: Container) -> None:
    job = rig.start("plain-run", "(sleep 0.2 &) ; exit 9")
    rig.ended(job)
    assert rig.standing(job).code == 9
    stopped = rig.start("stopped-run", "echo here; sleep 600")
    until(lambda: rig.running(stopped) and rig.log(stopped) == b"here\n")
    rig.call("stop", job_id=stopped, by="ana@laptop", grace_s=1)
    rig.ended(stopped)
    assert rig.standing(stopped).status is Status.STOPPED


@pytest.mark.skipif(not can_be_built(), reason="no C compiler for the simulated driver")
def test_who_stood_in_line_when_the_container_went_never_started_and_the_card_is_free(tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="aicrun-test-"))
    box = Box(folder)
    container = Container(box.rig)
    try:
        if not container.boot():
            pytest.skip("no pid namespace can be made here")
        holder, waiter = box.start(), box.start("true")
        box.rig.running(holder)
        assert box.waiting(waiter).holder_job_id == holder
        container.restart()
        assert (box.status(holder), box.status(waiter)) == (Status.UNKNOWN, Status.REJECTED)
        assert box.rig.standing(holder).reason == "reboot"
        assert (box.held(A), box.tickets()) == (False, 0)
        third = box.start("exit 2")
        box.rig.ended(third)
        assert box.rig.standing(third).code == 2
    finally:
        container.end()
        box.close()
        shutil.rmtree(folder)
