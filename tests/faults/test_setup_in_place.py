"""A setup with nothing to build runs without an interpreter of its own, and is a step like any other."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path

from agent_rig import Rig, command_line, handles, lives
from freezer import Freezer
from support import until

from aicrun.wire import names
from aicrun.wire.codec import to_json
from aicrun.wire.hashes import tree_hash
from aicrun.wire.jobs import Setup, Source
from aicrun.wire.status import Status, status_of

CONTENT = b"what was pushed\n"


class Hanging:
    """A job whose setup stands still where it reads a file of its source, until somebody writes to that."""

    def __init__(self, rig: Rig, setup: Setup) -> None:
        content = hashlib.sha256(CONTENT).hexdigest()
        tree = tree_hash([("data", "f", content)])
        rig.call("store_missing", json.dumps([["data", "f", content, len(CONTENT)]]).encode(), tree=tree, hashes=[])
        rig.call("store_put", CONTENT, hash=content)
        request = rig.request("slow-run", "cat data", setup=setup, source=Source(tree, 1, len(CONTENT)))
        rig.call("reserve", request=to_json(request))
        self.job = request.job_id
        self.tree = Path(request.workspace, "jobs", self.job)
        self._file = next(path for path in rig.home.rglob(content) if path.is_file())
        self._file.unlink()
        os.mkfifo(self._file)
        rig.call("confirm", job_id=self.job, by="ana")
        self.pid = rig.running(self.job, "setup")

    def go_on(self) -> None:
        """As if the disk had answered at last."""
        self._file.write_bytes(CONTENT)


def environment(rig: Rig, *, is_complete: bool) -> Setup:
    folder = rig.home / ".local/share/aicrun/envs/k1"
    folder.mkdir(parents=True)
    if is_complete:
        (folder / "bin").mkdir()
        (folder / "bin/python").symlink_to("/usr/bin/python3")
        (folder / "complete").write_text(json.dumps({"key": "k1"}))
    return Setup(key="k1", path=str(folder), python="/usr/bin/python3")


def role(pid: int) -> bytes:
    # Empty for a moment while it is being executed.
    return b"".join(command_line(pid)[-3:-2])


def test_it_is_a_fork_of_its_keeper(rig: Rig) -> None:
    hanging = Hanging(rig, Setup())
    assert role(hanging.pid) == b"keeper"
    # Nothing of its keeper's but the name: its lock would outlive the keeper.
    assert names.KEEPER_LOCK not in map(os.path.basename, handles(hanging.pid))
    hanging.go_on()
    assert status_of(rig.ended(hanging.job)).status is Status.SUCCEEDED
    assert rig.log(hanging.job, "setup").decode() == f"working tree {hanging.tree}\n"
    assert rig.log(hanging.job) == CONTENT


def test_so_it_is_when_the_environment_stands(rig: Rig) -> None:
    hanging = Hanging(rig, environment(rig, is_complete=True))
    assert role(hanging.pid) == b"keeper"
    hanging.go_on()
    assert status_of(rig.ended(hanging.job)).status is Status.SUCCEEDED
    assert b"is ready\n" in rig.log(hanging.job, "setup")
    assert not rig.groups(hanging.job)


def test_what_must_build_becomes_a_program_of_its_own(rig: Rig) -> None:
    hanging = Hanging(rig, environment(rig, is_complete=False))
    until(lambda: role(hanging.pid) == b"setup")
    assert rig.report(hanging.job).phase == "setup"


def test_a_stop_ends_it(rig: Rig) -> None:
    hanging = Hanging(rig, Setup())
    rig.call("stop", job_id=hanging.job, by="ana")
    standing = status_of(rig.ended(hanging.job))
    assert (standing.status, standing.signal, standing.step) == (Status.STOPPED, signal.SIGTERM, "setup")
    assert not lives(hanging.pid)


def test_its_timeout_ends_it(rig: Rig) -> None:
    rig.env["AICRUN_TEST_SETUP_GRACE_S"] = "0"
    hanging = Hanging(rig, Setup(timeout_s=1))
    report = rig.ended(hanging.job)
    setup = report.steps[0].exit
    assert (status_of(report).reason, setup is not None and setup.timed_out) == ("setup_failed", True)
    assert not lives(hanging.pid)


def test_one_on_a_disk_that_hangs_is_named_until_it_goes_on(rig: Rig, freezer: Freezer) -> None:
    rig.env["AICRUN_TEST_STUCK_S"] = "1"
    hanging = Hanging(rig, Setup())
    freezer.freeze(hanging.pid)
    rig.call("stop", job_id=hanging.job, by="ana", grace_s=0)
    until(lambda: rig.standing(hanging.job).status is Status.STOP_FAILED)
    assert rig.report(hanging.job).leftover_pids == (hanging.pid,)
    freezer.thaw()
    assert status_of(rig.ended(hanging.job)).status is Status.STOPPED


def test_without_its_keeper_a_stop_ends_it(rig: Rig) -> None:
    hanging = Hanging(rig, Setup())
    os.kill(rig.keeper(hanging.job), signal.SIGKILL)
    until(lambda: not rig.report(hanging.job).supervised)
    assert rig.report(hanging.job).phase == "setup"
    rig.call("stop", job_id=hanging.job, by="ana", grace_s=1)
    assert rig.ended(hanging.job).phase == "never_started"
    assert not lives(hanging.pid)
