"""A project of a person with an empty home, also on a machine with one card."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_nvml.driver import FakeDriver
from integration.project import Project
from private_locks import emptied, made_private
from support import Person, processes_with, until

ONE_CARD = """
driver 570.124.06
cuda 12080
card GPU-acac NVIDIA RTX A6000
  total 49140
  reserved 600
  bus 00000000:41:00.0
"""


@pytest.fixture
def project(person: Person) -> Iterator[Project]:
    somebodys = Project(person)
    yield somebodys
    while somebodys.kill():
        until(lambda: not processes_with(f"HOME={person.home}"))


@pytest.fixture
def box(project: Project, tmp_path: Path) -> Iterator[Project]:
    """The project, where one card is simulated and the locks of cards are the test's own."""
    if not made_private():
        pytest.skip("the machine's own lock folder cannot be kept out of the test")
    project.person.env.update(FakeDriver(tmp_path / "driver", ONE_CARD).env)
    yield project
    emptied()
