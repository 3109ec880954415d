"""A host for fault tests."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_rig import Rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    """A host with the real agent; whatever it started is ended afterwards.

    On a disk in memory where there is one: every record is made durable, which takes most of a test's time elsewhere.
    """
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None, prefix="aicrun-test-"))
    host = Rig(folder)
    yield host
    host.close()
    shutil.rmtree(folder)
