"""What a disk has free, in bytes and files, beside what is asked of it. It must not know what for."""

import os
from typing import Optional, Tuple

MIB = 1 << 20


def existing(path: str) -> str:
    """The folder, or the nearest one above it that is there."""
    while not os.path.isdir(path) and path != "/":
        path = os.path.dirname(path.rstrip("/"))
    return path


def short(place: str, size: int, files: int) -> str:
    """What `place` lacks, with both numbers; empty when it has enough, or when it cannot be asked."""
    state = _state(place)
    if state is None:
        return ""
    free, inodes = state
    if free < size:
        return "%s free, %s needed" % (amount(free), amount(size))
    if inodes is not None and inodes < files:
        return "%d free inodes, %d needed" % (inodes, files)
    return ""


def _state(place: str) -> Optional[Tuple[int, Optional[int]]]:
    """(free bytes, free inodes or None where the file system counts none)."""
    try:
        state = os.statvfs(place)
    except OSError:
        return None
    return state.f_bavail * state.f_frsize, state.f_favail if state.f_files else None


def amount(size: int) -> str:
    """Bytes in words, with one decimal."""
    return "%.1f GiB" % (size / (1024 * MIB)) if size >= 1024 * MIB else "%.1f MiB" % (size / MIB)
