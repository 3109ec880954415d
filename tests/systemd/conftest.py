"""Machines for the tests of this folder, each gone with its test; skipped, visibly, where there can be none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from systemd.account import Account
from systemd.machines import Machine, lacking

MINE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The whole folder is a group of its own, marked in each of its files."""
    reason = "" if "systemd" in (config.getoption("-m") or "") else "`make systemd` runs it"
    reason = reason or lacking()
    for item in items:
        if reason and MINE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=f"systemd: {reason}"))


@pytest.fixture
def off(tmp_path: Path) -> Iterator[Machine]:
    """A machine that is switched off, to be changed first."""
    machine = Machine(tmp_path / "machine")
    try:
        yield machine
    finally:
        machine.remove()


@pytest.fixture
def machine(off: Machine) -> Machine:
    """A machine that runs."""
    off.power()
    return off


@pytest.fixture
def account(off: Machine) -> Iterator[Callable[..., Account]]:
    """Makes accounts of the machine, which must run by then; what they hold open is closed afterwards."""
    made: list[Account] = []

    def of(name: str, become: str = "") -> Account:
        made.append(Account(off, name, become))
        return made[-1]

    yield of
    for one in made:
        one.close()
