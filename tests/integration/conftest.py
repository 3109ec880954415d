"""A project of a person with an empty home."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from integration.project import Project
from support import Person, processes_with, until


@pytest.fixture
def project(person: Person) -> Iterator[Project]:
    somebodys = Project(person)
    yield somebodys
    while somebodys.kill():
        until(lambda: not processes_with(f"HOME={person.home}"))
