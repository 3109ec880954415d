"""Processes of this host by identity: a pid alone is never trusted, a pid with its start ticks on one boot is.

It must not decide what to do with a process. A zombie counts as dead: on hosts whose PID 1 never reaps it would
otherwise live for ever.
"""

import os
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Optional, Set

from aicrun.agent import later
from aicrun.wire import lean
from aicrun.wire.facts import BootIdentity

if TYPE_CHECKING:
    import signal
else:
    signal = later.module("signal")

# Numbers shared by all architectures since Linux 5.1 (include/uapi/asm-generic/unistd.h); prctl(2).
_SYS_PIDFD_SEND_SIGNAL = 424
_SYS_PIDFD_OPEN = 434
_PR_SET_CHILD_SUBREAPER = 36
_ENVIRON_CAP_BYTES = 1 << 20


@lean.dataclass(frozen=True)
class Proc:
    """One row of the process table; `ticks` is the start in clock ticks after boot, field 22 of proc(5)'s stat."""

    pid: int
    parent: int
    group: int
    session: int
    state: str
    ticks: int

    @property
    def lives(self) -> bool:
        """False for a zombie and for what is just being removed."""
        return self.state not in ("Z", "X", "x")


def boot_identity() -> BootIdentity:
    """The boot of this host or container: boot id, pid namespace, start ticks of PID 1 (0 where it is hidden)."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as stream:
            boot_id = stream.read().strip()
    except OSError:
        boot_id = ""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    first = look(1)
    return BootIdentity(boot_id, namespace, first.ticks if first else 0)


def look(pid: int) -> Optional[Proc]:
    """The process `pid` as the kernel shows it now, zombies included; None when there is none."""
    # Without a stream: a host has hundreds of processes, and every running job has them looked at again and again.
    try:
        handle = os.open("/proc/%d/stat" % pid, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        raw = os.read(handle, 4096)
    except OSError:
        return None
    finally:
        os.close(handle)
    # The name may hold blanks and parentheses, so the fields are counted from the last one.
    fields = raw.rpartition(b")")[2].split(None, 20)
    if len(fields) < 20:
        return None
    parent, group, session, ticks = int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19])
    return Proc(pid, parent, group, session, fields[0].decode("ascii", "replace"), ticks)


def start_ticks(pid: int) -> Optional[int]:
    """The start ticks of a living process, None when it is gone or a zombie."""
    proc = look(pid)
    return proc.ticks if proc is not None and proc.lives else None


def alive(pid: int, ticks: int, boot: BootIdentity) -> bool:
    """True when the process recorded as (pid, ticks) on `boot` still lives."""
    return boot == boot_identity() and start_ticks(pid) == ticks


def table() -> Dict[int, Proc]:
    """Every living process that this account may see, by pid."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            proc = look(int(entry))
            if proc is not None and proc.lives:
                found[proc.pid] = proc
    return found


def below(roots: Iterable[int], processes: Dict[int, Proc], cut: Optional[Callable[[int], bool]] = None) -> Set[int]:
    """All pids of `processes` that descend from `roots`; the roots, and what `cut` says with all below it, left out."""
    children: Dict[int, List[int]] = {}
    for proc in processes.values():
        children.setdefault(proc.parent, []).append(proc.pid)
    found: Set[int] = set()
    left = list(roots)
    while left:
        for child in children.get(left.pop(), ()):
            if child not in found and not (cut is not None and cut(child)):
                found.add(child)
                left.append(child)
    return found


def descendants(root: int, cut: Callable[[int], bool]) -> Set[int]:
    """All pids below `root`, but what `cut` says with all below it; one may be missing that is just being born.

    The kernel is asked for the children of each process of the tree, where it tells them: a host has hundreds of
    others, which `table` looks at too. Good for measuring; who must find everybody asks `table`.
    """
    if not os.path.exists("/proc/self/task/%d/children" % os.getpid()):
        return below([root], table(), cut)
    found: Set[int] = set()
    left = [root]
    while left:
        for child in _children(left.pop()):
            if child not in found and not cut(child):
                found.add(child)
                left.append(child)
    return found


def _children(pid: int) -> List[int]:
    found: List[int] = []
    folder = "/proc/%d/task" % pid
    try:
        threads = os.listdir(folder)
    except OSError:
        return found
    for thread in threads:
        try:
            with open("%s/%s/children" % (folder, thread), "rb", buffering=0) as stream:
                found += [int(word) for word in stream.read().split()]
        except OSError:
            # This thread has ended.
            continue
    return found


def carries(pid: int, mark: str) -> bool:
    """True when the process was started with `mark` (`NAME=value`) in its environment; it may have hidden it since."""
    # Without a stream, as in `look`: all processes of a host are asked, again and again.
    try:
        handle = os.open("/proc/%d/environ" % pid, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    raw = b""
    try:
        while len(raw) < _ENVIRON_CAP_BYTES:
            part = os.read(handle, 65536)
            if not part:
                break
            raw += part
    except OSError:
        return False
    finally:
        os.close(handle)
    return mark.encode("ascii") in raw.split(b"\0")


def send_signal(pid: int, ticks: int, number: int) -> bool:
    """Signal exactly the process (pid, ticks): True when it was delivered to it, False when it is gone.

    A descriptor of the process is opened first and its ticks are compared after, so that a recycled pid is never hit.
    Raises `PermissionError` when the kernel forbids it (a child that changed its account).
    """
    try:
        handle = _open_pidfd(pid)
    except ProcessLookupError:
        return False
    except OSError:
        # Kernels before 5.3 and some sandboxes have no such descriptor: a window of microseconds is left.
        handle = -1
    try:
        if start_ticks(pid) != ticks:
            return False
        if handle < 0 or not _signalled(handle, number):
            os.kill(pid, number)
    except ProcessLookupError:
        return False
    finally:
        if handle >= 0:
            os.close(handle)
    return True


def has_pidfd() -> bool:
    """True when this kernel and Python can signal through a process descriptor."""
    try:
        handle = _open_pidfd(os.getpid())
    except OSError:
        return False
    try:
        return _signalled(handle, 0)
    finally:
        os.close(handle)


def become_subreaper() -> bool:
    """Make this process the new parent of its orphaned descendants; False where that cannot be had (no ctypes)."""
    libc = _libc()
    return libc is not None and libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def _open_pidfd(pid: int) -> int:
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(pid)
    return _syscall(_SYS_PIDFD_OPEN, pid, 0)


def _signalled(handle: int, number: int) -> bool:
    """False when the call is refused, by the kernel or by a sandbox that allows `kill`: then that one tells which."""
    try:
        _signal_pidfd(handle, number)
    except ProcessLookupError:
        raise
    except OSError:
        return False
    return True


def _signal_pidfd(handle: int, number: int) -> None:
    if hasattr(signal, "pidfd_send_signal"):
        signal.pidfd_send_signal(handle, number)
    else:
        _syscall(_SYS_PIDFD_SEND_SIGNAL, handle, int(number), None, 0)


def _syscall(number: int, *args: Any) -> int:
    libc = _libc()
    if libc is None:
        raise OSError("no ctypes")
    import ctypes

    result = int(libc.syscall(number, *args))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _libc() -> Any:
    # Imported here: some minimal Pythons come without ctypes, and most calls of an agent need none.
    try:
        import ctypes

        return ctypes.CDLL(None, use_errno=True)
    except (ImportError, OSError):
        return None
