"""Descriptors as what is held: a lock lives as long as one of them, and a process that shall hold none closes them.

It must not know what a lock means to whoever takes it, nor write to what it opens.
"""

import fcntl
import os
import time
from typing import Any, Optional

from aicrun.wire import names


def keeper_lives(job_dir: str) -> bool:
    """True while a process holds the job's keeper lock; the kernel is the only truth about it."""
    return is_held(os.path.join(job_dir, names.KEEPER_LOCK))


def is_held(path: str) -> bool:
    """True while somebody holds `path` exclusively; a shared probe, so that two who look never disturb each other.

    Also true of one that is there and cannot be looked at: nothing is taken for free, decided or removed on a guess.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def hold(path: str, at_most_s: float) -> Optional[int]:
    """Hold `path` exclusively until this process ends: its descriptor, None when somebody else has it.

    Tried for `at_most_s`, for somebody who only looks holds it shared for a moment.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + at_most_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(handle)
                return None
            time.sleep(0.005)
        else:
            return handle


def close_all_but(keep: Any) -> None:
    """Close every descriptor from 3 on that is not in `keep`, so that no lock or gate lives on in this process."""
    for entry in os.listdir("/proc/self/fd"):
        number = int(entry)
        if number > 2 and number not in keep:
            try:
                os.close(number)
            except OSError:
                # The listing's own descriptor is gone already.
                continue
