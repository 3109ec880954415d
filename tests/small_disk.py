"""A file system of its own for a test: mounted where something of a host lies, and gone however the test ends.

Only root mounts; elsewhere the test is skipped visibly. No product code may import it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from support import until


@contextmanager
def mounted(place: Path, *order: str, end: Callable[[], object]) -> Iterator[Path]:
    """A file system at `place` by `mount ORDER`; `end` ends whatever may work on it."""
    place.mkdir(parents=True, exist_ok=True)
    if subprocess.run(["mount", *order, str(place)], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield place
    finally:
        end()
        until(lambda: subprocess.run(["umount", str(place)], capture_output=True, check=False).returncode == 0)


def small(place: Path, options: str, *, end: Callable[[], object]) -> AbstractContextManager[Path]:
    """One in memory, as small as the `options` of tmpfs say."""
    return mounted(place, "-t", "tmpfs", "-o", options, "tmpfs", end=end)


def fill(path: Path) -> None:
    """Use all the room that is left."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    with pytest.raises(OSError, match="No space"):
        while True:
            os.write(handle, b"x" * 4096)
    os.close(handle)
