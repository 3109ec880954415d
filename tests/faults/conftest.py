"""A host for fault tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_rig import Rig
from freezer import Freezer, can_freeze
from setup_rig import Site
from small_disk import mounted, small


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


@pytest.fixture
def site(rig: Rig) -> Site:
    """A host with uv and a folder of wheels."""
    return Site(rig)


@pytest.fixture
def small_disk(rig: Rig) -> Iterator[Path]:
    """A disk of 4 MiB under the state folder."""
    with small(rig.home / ".local/state", "size=4m", end=rig.close) as state:
        yield state


@pytest.fixture
def few_inodes(rig: Rig, tmp_path: Path) -> Iterator[Path]:
    """A disk under the state folder that has room for bytes and for 128 files."""
    image = tmp_path / "disk.img"
    image.touch()
    os.truncate(image, 16 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-N", "128", image], capture_output=True, check=False)
    with mounted(rig.home / ".local/state", "-o", "loop", str(image), end=rig.close) as state:
        yield state


@pytest.fixture
def work_disk(rig: Rig) -> Iterator[Path]:
    """A disk of 8 MiB and 200 files for the workspaces of a rig; its state folder lies elsewhere."""
    with small(rig.home / "work", "size=8m,nr_inodes=200", end=rig.close) as work:
        yield work


@pytest.fixture
def freezer() -> Iterator[Freezer]:
    """A group whose processes SIGKILL does not end while it is frozen."""
    if not can_freeze():
        pytest.skip("no freezer of version 1 that we may use")
    group = Freezer()
    yield group
    group.close()
