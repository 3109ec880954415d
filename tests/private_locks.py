"""A lock folder of this test process's own: a fresh /run/lock in a mount namespace that its children share.

So that tests through the real program, which has no switch for this, leave the machine's own locks alone.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from functools import cache

CLONE_NEWNS = 0x20000
MS_REC, MS_PRIVATE = 0x4000, 0x40000


def emptied() -> None:
    """Nothing that an earlier test left there counts any more: no drain, no ticket, no lock of a card."""
    if made_private():
        shutil.rmtree("/run/lock/aicrun", ignore_errors=True)


@cache
def made_private() -> bool:
    """True once /run/lock is ours alone, for the rest of this process; False where that is not permitted."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0 or not os.path.isdir("/run/lock") or libc.unshare(CLONE_NEWNS):
        return False
    if libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        return False
    return bool(libc.mount(b"tmpfs", b"/run/lock", b"tmpfs", 0, b"mode=1777") == 0)
