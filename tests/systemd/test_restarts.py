"""A machine that restarts, or loses its power, with runs in every state on it."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pynvml
import pytest
from fake_nvml.driver import FakeDriver, can_be_built
from support import until
from systemd.account import WORK, Account
from systemd.machines import Machine

from aicrun.wire.status import Status

pytestmark = [pytest.mark.systemd, pytest.mark.skipif(not can_be_built(), reason="no C compiler for the driver")]

Accounts = Callable[..., Account]

CARD = ("GPU-aaaa",)


class Three:
    """Three runs of one account: one has ended, one holds the card, one waits for it."""

    def __init__(self, machine: Machine, one: Account) -> None:
        driver = FakeDriver(machine.root / "opt/driver")
        machine.run("root", "chmod -R a+rX /opt/driver")
        shutil.copy(pynvml.__file__, one.agent / "pynvml.py")
        (one.agent / "pynvml.py").chmod(0o644)
        # Only what the keeper is given shows it the driver: in a unit the login's variable is lost otherwise.
        one.env["LD_LIBRARY_PATH"] = "/" + str(driver.folder.relative_to(machine.root))
        self.one = one
        self.ended = one.start("ended", "exit 7")
        one.ended(self.ended)
        self.running = one.start_work("running", "trap 'echo saved > saved; exit 0' TERM; " + WORK, cards=CARD)
        self.waiting = one.start("waiting", "echo never", cards=CARD, workspace=f"{one.env['HOME']}/runs/waiting")
        until(lambda: one.standing(self.waiting).status is Status.ENQUEUED)

    def check(self) -> None:
        """What must be told of them after the restart, twice the same."""
        self.one.close()
        for _ in range(2):
            ended = self.one.standing(self.ended)
            assert (ended.status, ended.code) == (Status.FAILED, 7)
            running = self.one.standing(self.running)
            assert (running.status, running.reason) == (Status.UNKNOWN, "reboot")
            waiting = self.one.report(self.waiting)
            assert (waiting.phase, self.one.standing(self.waiting).status) == ("never_started", Status.REJECTED)
        # The card is free again, and so is the run's name.
        again = self.one.start("running", "exit 0", cards=CARD, named=(self.running,))
        assert self.one.ended(again).steps[1].exit is not None
        assert self.one.standing(again).status is Status.SUCCEEDED


@pytest.mark.parametrize("name", ("root", "alice"))
def test_a_reboot_asks_runs_to_end_and_is_told(machine: Machine, account: Accounts, name: str) -> None:
    three = Three(machine, account(name))
    assert three.one.report(three.running).launched.mode == {"root": "A", "alice": "B"}[name]  # type: ignore[union-attr]
    machine.reboot()
    three.check()
    assert "told to end, its command ended with code 0" in three.one.report(three.running).lost_detail
    assert (three.one.home / "runs/running/saved").read_text() == "saved\n"


def test_a_reboot_is_told_for_a_run_in_a_session_too(machine: Machine, account: Accounts) -> None:
    machine.run("root", "systemctl mask --now polkit.service")
    three = Three(machine, account("alice"))
    assert three.one.report(three.running).launched.mode == "C"  # type: ignore[union-attr]
    machine.reboot()
    three.check()


@pytest.mark.parametrize("name", ("root", "alice"))
def test_a_pulled_plug_is_told(machine: Machine, account: Accounts, name: str) -> None:
    three = Three(machine, account(name))
    machine.pull_the_plug()
    machine.power()
    three.check()
