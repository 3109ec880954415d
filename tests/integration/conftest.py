"""A project of a person with an empty home."""

from __future__ import annotations

import pytest
from integration.project import Project
from support import Person


@pytest.fixture
def project(person: Person) -> Project:
    return Project(person)
