"""Fixtures that more than one folder shares: a person's home of their own, and no process left behind."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support import Person, end_processes_with, remove_groups_since

pytest_plugins = ["budgets"]

BEGAN = time.time()
# A machine that does other work is no fault of what is tested.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")


def pytest_configure() -> None:
    """A shell that runs the tests in its background makes them, and all that they start, deaf for Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes minutes is skipped, visibly, unless it was asked for by `-m`."""
    if not config.getoption("-m"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: `make slow` runs it"))


def pytest_sessionfinish() -> None:
    """Keepers that tests killed left their control groups behind, and most homes that would sweep them are gone."""
    remove_groups_since(BEGAN)


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    """A person with an empty home; every process that carries this home's mark is ended afterwards."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    someone = Person(home)
    yield someone
    # Keepers carry the mark; jobs have an environment of their own, but the same home.
    for mark in (someone.mark, f"HOME={home}\0"):
        end_processes_with(mark)
