"""A host for fault tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A host with the real agent; whatever it started is ended afterwards."""
    host = Rig(tmp_path)
    yield host
    host.close()
