"""A job's turn at what all jobs of an account share: waited for, and told. It must not know what is shared."""

import fcntl
import time
from typing import Callable

EACH_S = 0.1


def take(handle: int, waits: Callable[[bool], None]) -> None:
    """Lock the open file `handle` for this process alone; raises `OSError` where the file system cannot.

    While another process has it `waits` is called again and again, with True for the first time. It may raise: then
    nothing is locked.
    """
    is_first = True
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waits(is_first)
            is_first = False
            time.sleep(EACH_S)
        else:
            return
