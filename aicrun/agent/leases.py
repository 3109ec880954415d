"""Cards held by kernel locks: the lock is the only truth about who has a card. It must not know whose turn it is.

A lock file is empty, read-only to all of us, never written and never unlinked by us. Keeper, pump and command share
one open file description, so that a card stays held while any of them lives; only the keeper ever unlocks.
"""

import errno
import fcntl
import os
import stat
import time
from typing import List, Optional, Tuple

from aicrun.agent.lock_folder import LockFolder
from aicrun.agent.refused import Refused
from aicrun.wire import lean
from aicrun.wire.patterns import pattern

# Somebody who only looks holds a lock shared for a moment: a taker tries this long before a card counts as busy.
TRY_S = 0.2
LOCK_MODE = 0o644
NAME = "%s.lock"
_CARD = pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}\Z")
_READABLE = 0o444
_TICK_S = 0.005
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Busy(Exception):
    """Somebody holds the card `uuid`."""

    def __init__(self, uuid: str) -> None:
        super().__init__("card %s is held" % uuid)
        self.uuid = uuid


@lean.dataclass(frozen=True)
class Lease:
    """Cards that this process holds; `handles` are what pump and command inherit, `keeper` the pid that may release."""

    uuids: Tuple[str, ...]
    handles: Tuple[int, ...]
    keeper: int

    def release(self) -> None:
        """Free the cards, whatever copies of the descriptors live on elsewhere."""
        if os.getpid() != self.keeper:
            raise RuntimeError("only the keeper that took a lease may release it")
        for handle in self.handles:
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)


def acquire(folder: LockFolder, uuids: Tuple[str, ...], try_s: float = TRY_S) -> Lease:
    """Hold all of `uuids` or none, in their order; tried for `try_s`.

    Raises `Busy` for the first card that somebody holds, `Refused` (no_lock) for a lock that cannot be trusted.
    """
    until = time.monotonic() + try_s
    while True:
        busy = ""
        handles: List[int] = []
        try:
            for uuid in sorted(set(uuids)):
                handles.append(_opened(folder, uuid))
                if not _locked(folder, handles[-1], uuid, fcntl.LOCK_EX):
                    busy = uuid
                    break
            else:
                folder.check()
                return Lease(tuple(sorted(set(uuids))), tuple(handles), os.getpid())
        except BaseException:
            _close(handles)
            raise
        _close(handles)
        if time.monotonic() >= until:
            raise Busy(busy)
        time.sleep(_TICK_S)


def is_held(folder: LockFolder, uuid: str) -> bool:
    """True while somebody holds the card. Never makes a file and never disturbs another looker.

    Raises `Refused` (no_lock) for a lock that cannot be trusted.
    """
    handle = _existing(folder, uuid)
    if handle is None:
        return False
    try:
        return not _locked(folder, handle, uuid, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def check(folder: LockFolder, lease: Lease) -> None:
    """Raises `Refused` (no_lock) when somebody has taken a held card's lock file away: then others can hold it too."""
    folder.check()
    for uuid, handle in zip(lease.uuids, lease.handles):
        _check(folder, handle, uuid)


def path_of(folder: LockFolder, uuid: str) -> str:
    """The path of a card's lock, for words."""
    return os.path.join(folder.path, NAME % uuid)


def _opened(folder: LockFolder, uuid: str) -> int:
    for _ in range(2):
        handle = _existing(folder, uuid)
        if handle is not None:
            return handle
        _make(folder, uuid)
    raise _distrusted(folder, uuid, "it vanished as soon as it was made")


def _existing(folder: LockFolder, uuid: str) -> Optional[int]:
    """A descriptor of the lock, None when there is none. Never opened for making: a sticky folder forbids that."""
    if not _CARD.match(uuid):
        raise Refused("invalid_request", "%r is no card" % uuid[:100], {"card": uuid[:100]})
    try:
        handle = os.open(NAME % uuid, _FLAGS, dir_fd=folder.handle)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise _distrusted(folder, uuid, _closed_words(folder, uuid)) from error
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else error.strerror or "error"
        raise _distrusted(folder, uuid, why) from error
    state = os.fstat(handle)
    why = ""
    if not stat.S_ISREG(state.st_mode):
        why = "it is no plain file"
    elif state.st_mode & _READABLE != _READABLE:
        # Root could open it all the same; but then root and users would not decide alike.
        why = _closed_words(folder, uuid)
    if why:
        os.close(handle)
        raise _distrusted(folder, uuid, why)
    return handle


def _make(folder: LockFolder, uuid: str) -> None:
    temporary = ".new-%s" % os.urandom(8).hex()
    flags = os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(temporary, flags, 0o600, dir_fd=folder.handle)
        try:
            os.fchmod(handle, LOCK_MODE)
            os.link(temporary, NAME % uuid, src_dir_fd=folder.handle, dst_dir_fd=folder.handle, follow_symlinks=False)
        except FileExistsError:
            # Another account was first; its file is as good.
            pass
        finally:
            os.close(handle)
            os.unlink(temporary, dir_fd=folder.handle)
    except OSError as error:
        raise _distrusted(folder, uuid, "it cannot be made (%s)" % error.strerror) from error


def _locked(folder: LockFolder, handle: int, uuid: str, kind: int) -> bool:
    """True when the lock was had, and the path still shows the file it was had on."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        _check(folder, handle, uuid)
        return False
    except OSError as error:
        raise _distrusted(folder, uuid, "it cannot be locked (%s)" % error.strerror) from error
    _check(folder, handle, uuid)
    return True


def _check(folder: LockFolder, handle: int, uuid: str) -> None:
    held = os.fstat(handle)
    try:
        seen = os.stat(NAME % uuid, dir_fd=folder.handle, follow_symlinks=False)
    except FileNotFoundError:
        raise _distrusted(folder, uuid, "it was unlinked while in use") from None
    if (seen.st_dev, seen.st_ino) != (held.st_dev, held.st_ino):
        raise _distrusted(folder, uuid, "it was replaced while in use")


def _closed_words(folder: LockFolder, uuid: str) -> str:
    return "not every account may read it; its owner or root types: chmod 644 %s" % path_of(folder, uuid)


def _distrusted(folder: LockFolder, uuid: str, why: str) -> Refused:
    path = path_of(folder, uuid)
    return Refused("no_lock", "the lock %s cannot be trusted: %s" % (path, why), {"path": path, "cause": why})


def _close(handles: List[int]) -> None:
    # These were shared with nobody yet, so that closing frees them.
    for handle in handles:
        os.close(handle)
