"""The one folder of this machine where all accounts meet: chosen, made, and held open for as long as one is in line.

It must not know what is locked in it. Root and users decide alike, so every choice goes by what the folder is, never
by what this account may do. Names are frozen by `tests/golden/locks_v1.json`: two versions of us share one host.
"""

import contextlib
import errno
import fcntl
import os
import stat
import time
from typing import Iterator, Optional

from aicrun.agent import hooks
from aicrun.agent.home import NETWORK_FILE_SYSTEMS, file_system
from aicrun.agent.machine import in_container
from aicrun.agent.refused import Refused
from aicrun.wire import lean

VERSION = "v1"
SHARED_MODE = 0o1777
# A cleaner of temporary files holds a folder exclusively while it looks through it; it is waited for this long.
CLEANER_S = 5.0
# Between the mkdir of another account and its chmod, where its kernel ignores the sticky bit of mkdir.
HALF_MADE_S = 2.0
_TICK_S = 0.01
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@lean.dataclass(frozen=True)
class Places:
    """Where the folder may be made: `system`/`name` if `system` is fit for it, else `lasting`/`lasting_name`."""

    system: str = "/run/lock"
    name: str = "aicrun"
    lasting: str = "/var/tmp"  # noqa: S108  judged by owner and mode before use
    lasting_name: str = "aicrun-locks"


def here() -> Places:
    """Where the machine's locks are; a test gives a folder of its own."""
    top = os.environ.get("AICRUN_TEST_LOCKS", "") if hooks.ENABLED else ""
    return Places(system=top, lasting=top) if top else Places()


@lean.dataclass(frozen=True)
class LockFolder:
    """The folder, held open and shared-locked by `handle`; (`device`, `inode`) is what two accounts compare.

    `scope` is `machine`, or `container` where the folder excludes nobody outside of it.
    """

    path: str
    device: int
    inode: int
    scope: str
    handle: int

    def close(self) -> None:
        """Let go of it; what is held in it stays held."""
        os.close(self.handle)

    def check(self) -> None:
        """Raises `Refused` (no_lock) when the folder's path shows another folder than the one held here."""
        try:
            seen = os.lstat(self.path)
        except OSError as error:
            raise unusable(self.path, "it was removed or moved while in use (%s)" % error.strerror) from error
        if (seen.st_dev, seen.st_ino) != (self.device, self.inode):
            raise unusable(self.path, "it was replaced by another folder while in use")


def unusable(path: str, why: str) -> Refused:
    """The refusal of everything in here: without a lock nothing starts."""
    return Refused("no_lock", "%s cannot be used for locks: %s" % (path, why), {"path": path, "cause": why})


def choose(places: Places) -> str:
    """The parent of the versioned folder, by what the system's folders are; raises `Refused` (no_lock)."""
    if not _unfit(places.system):
        return os.path.join(places.system, places.name)
    why = _unfit(places.lasting)
    if why:
        raise unusable(places.lasting, why)
    return os.path.join(places.lasting, places.lasting_name)


def open_folder(places: Places = Places()) -> LockFolder:  # noqa: B008  it is frozen
    """The folder of this version, made when missing, shared-locked; raises `Refused` (no_lock) with the way out.

    The shared lock is what makes a cleaner of temporary files pass it by.
    """
    return _open_below(choose(places))


def _open_below(top: str) -> LockFolder:
    try:
        above = os.open(os.path.dirname(top), _FLAGS)
        try:
            parent = _made(above, top)
        finally:
            os.close(above)
        try:
            handle = _made(parent, os.path.join(top, VERSION))
        finally:
            os.close(parent)
    except OSError as error:
        raise unusable(top, error.strerror or str(error)) from error
    state = os.fstat(handle)
    scope = "container" if in_container() else "machine"
    found = LockFolder(os.path.join(top, VERSION), state.st_dev, state.st_ino, scope, handle)
    try:
        _share(found)
        found.check()
    except Refused:
        found.close()
        raise
    return found


@contextlib.contextmanager
def opened(places: Places = Places()) -> Iterator[LockFolder]:  # noqa: B008  it is frozen
    """`open_folder`, closed again: for who only looks."""
    folder = open_folder(places)
    try:
        yield folder
    finally:
        folder.close()


@contextlib.contextmanager
def seen(places: Places = Places()) -> Iterator[Optional[LockFolder]]:  # noqa: B008  it is frozen
    """`opened`, for who must not make it: None where nobody ever did."""
    top = choose(places)
    if not os.path.isdir(os.path.join(top, VERSION)):
        yield None
        return
    folder = _open_below(top)
    try:
        yield folder
    finally:
        folder.close()


def _unfit(path: str) -> str:
    """Why the folder is not one where all accounts may make names and none may remove another's; "" when it is."""
    try:
        state = os.lstat(path)
        read_only = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError as error:
        return error.strerror or "it cannot be looked at"
    if not stat.S_ISDIR(state.st_mode):
        return "it is no folder"
    if state.st_uid != 0 or stat.S_IMODE(state.st_mode) & SHARED_MODE != SHARED_MODE:
        return "it is not root's with mode 1777"
    if file_system(path) in NETWORK_FILE_SYSTEMS:
        return "it lies on a network file system"
    return "it is read-only" if read_only else ""


def _made(parent: int, path: str) -> int:
    """A descriptor of the folder `path` below `parent`, made 1777 by whoever is first."""
    name = os.path.basename(path)
    # Linux takes the sticky bit from mkdir, so that with an open mask nobody ever sees it half made.
    before = os.umask(0)
    try:
        os.mkdir(name, SHARED_MODE, dir_fd=parent)
    except FileExistsError:
        pass
    finally:
        os.umask(before)
    try:
        handle = os.open(name, _FLAGS, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise unusable(path, "it is a link or no folder; root should look who put it there") from error
        raise
    try:
        _open_to_all(handle, path)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _open_to_all(handle: int, path: str) -> None:
    until = time.monotonic() + HALF_MADE_S
    while stat.S_IMODE(os.fstat(handle).st_mode) & SHARED_MODE != SHARED_MODE:
        owner = os.fstat(handle).st_uid
        if os.geteuid() in (0, owner):
            os.fchmod(handle, SHARED_MODE)
        elif time.monotonic() > until:
            raise unusable(path, "it is not open to all accounts; user %d or root types: chmod 1777 %s" % (owner, path))
        else:
            time.sleep(_TICK_S)


def _share(folder: LockFolder) -> None:
    until = time.monotonic() + CLEANER_S
    while True:
        try:
            fcntl.flock(folder.handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise unusable(folder.path, "somebody holds the folder itself for over %d s" % CLEANER_S) from None
            time.sleep(_TICK_S)
        except OSError as error:
            raise unusable(folder.path, "it cannot be locked (%s)" % error.strerror) from error
        else:
            return
