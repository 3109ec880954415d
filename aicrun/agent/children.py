"""The keeper's one place to wait: for its children and for signals. It must never reap a child it was not told to.

`subprocess` is not used here: it reports 0 for a child that somebody else reaped (measured on CPython 3.11).
"""

import os
import signal
from typing import Callable, FrozenSet, List, Optional, Set

from aicrun.wire import lean

WAKE = (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT)


class Lost(Exception):
    """How the child ended cannot be known, or is no end of its own; `reason` is a token of `status.UNKNOWN_REASONS`."""

    def __init__(self, message: str, reason: str = "supervisor_lost") -> None:
        super().__init__(message)
        self.reason = reason


class Leave(Exception):
    """All around this process is being ended, and it with it; `reason` as in `Lost`, "" when nobody can say yet."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


# What to do when somebody asks this process to end; at most one, for a process keeps one job.
_on_term: List[Callable[[int], None]] = []


@lean.dataclass(frozen=True)
class Ended:
    """How the kernel says a child ended: a code, or a signal."""

    code: Optional[int] = None
    signal: Optional[int] = None


def prepare() -> None:
    """Undo what this process may have inherited: no signal ignored, exactly `WAKE` blocked, so that none is missed.

    But for two, which say what a refused write says as well, and would end who writes: a reader is gone (SIGPIPE), or
    the login limits the size of files (SIGXFSZ).
    """
    for number in signal.valid_signals():
        # 32 and 33 belong to the C library's threads.
        if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
            signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, WAKE)


def default_signals() -> None:
    """What a step's program must find after the exec: every signal default, none blocked."""
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def heed(on_term: Callable[[int], None]) -> None:
    """From now on `wait` calls this with the sender's pid when SIGTERM came; it may raise `Leave`."""
    _on_term[:] = [on_term]


def wait(timeout_s: float) -> None:
    """Sleep until a child ends, somebody pokes, or `timeout_s` passed; a lost wake-up costs at most that time.

    Raises `Leave`, once, when that was said to whoever heeds SIGTERM.
    """
    came = signal.sigtimedwait(WAKE, max(0.0, timeout_s))
    if came is not None and came.si_signo == signal.SIGTERM:
        for on_term in list(_on_term):
            try:
                on_term(came.si_pid)
            except Leave:
                # What is left to do is seen to its end; nobody says it twice.
                _on_term.clear()
                raise


def ended(pid: int) -> Optional[Ended]:
    """How the child `pid` ended, None while it lives; it stays unreaped, so its pid stays its own.

    Raises `Lost` when the kernel does not know it any more.
    """
    try:
        result = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError as error:
        raise Lost("process %d was reaped by somebody else" % pid) from error
    if result is None:
        return None
    if result.si_code == os.CLD_EXITED:
        return Ended(code=result.si_status)
    return Ended(signal=result.si_status)


def reap(pid: int) -> None:
    """Let the kernel forget the ended child `pid`."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return


def reap_orphans(but: FrozenSet[int]) -> None:
    """Reap every ended child that is not in `but` (those are waited for by pid)."""
    while True:
        try:
            result = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if result is None or result.si_pid in but:
            return
        reap(result.si_pid)


def pids() -> Set[int]:
    """Every child of this process, adopted and ended ones too; empty where the kernel keeps no list."""
    try:
        with open("/proc/self/task/%d/children" % os.getpid(), encoding="ascii") as stream:
            return {int(pid) for pid in stream.read().split()}
    except (OSError, ValueError):
        return set()


def left(but: FrozenSet[int]) -> bool:
    """True when there is a child that is not in `but`, adopted ones counted; those of them that ended are reaped.

    This is certain where a look at processes is not: whoever forks on below us is our child or has a living parent
    that is, and a child stays in the kernel's list until we reap it.
    """
    for pid in pids() - but:
        reap(pid)
    return bool(pids() - but)
