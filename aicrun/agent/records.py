"""Small JSON records on disk: whole or absent, durable, private. It must not know what a record means.

Two ways to write: `write_record` replaces, `place_once` never does. What a keeper must be able to write on a full
disk is reserved beforehand (`Reserved`). The agent's own kinds of records are in `kept.py`; shared ones are in `wire`.
"""

import errno
import os
import time
from typing import Any, Callable, Optional, Type, TypeVar

from aicrun.wire.codec import WireError, dump, from_json, load
from aicrun.wire.names import SCHEMA

T = TypeVar("T")

RECORD_CAP_BYTES = 16 * 1024 * 1024
ROOM = ".room"
ROOM_BYTES = 4096
ASIDE_MOST = 1000
FULL = (errno.ENOSPC, errno.EDQUOT)


class Unreadable(Exception):
    """A record is there and is torn, empty or garbage; `path` names it."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__("%s cannot be read: %s" % (path, why))
        self.path = path


class NewerRecord(Unreadable):
    """A record was written by a newer aicrun: it is shown and left untouched."""


def write_record(path: str, record: Any) -> None:
    """Replace `path` by `record`, durably: whole old or whole new at any moment; 0600. Raises `OSError`."""
    temporary = _written(path, dump(record))
    try:
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
    sync_folder(os.path.dirname(path))


def place_once(path: str, record: Any) -> bool:
    """Put `record` at `path`, durably, if nothing stands there: True when it is ours, False when one stood."""
    temporary = _written(path, dump(record))
    try:
        return _linked(temporary, path)
    finally:
        os.unlink(temporary)


def keep_room(path: str, size_bytes: int = ROOM_BYTES) -> None:
    """Take the room on the disk that a record at `path` will need; raises `OSError` when it is not there."""
    handle = os.open(path + ROOM, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.posix_fallocate(handle, 0, size_bytes)
    finally:
        os.close(handle)


def give_room(path: str) -> bool:
    """Free what `keep_room` took; False when it was free already."""
    try:
        os.unlink(path + ROOM)
    except OSError:
        return False
    return True


def write_kept(path: str, record: Any) -> None:
    """`write_record`, on a full disk into what `keep_room` took for it. Raises `OSError` when that is used up too."""
    try:
        write_record(path, record)
    except OSError as error:
        if error.errno not in FULL or not give_room(path):
            raise
        write_record(path, record)


def read_record(path: str, kind: Type[T]) -> Optional[T]:
    """The record at `path`, None when there is none; raises `Unreadable` (torn) or `NewerRecord`."""
    data = read_json(path)
    if data is None:
        return None
    if not isinstance(data, dict):
        raise Unreadable(path, "it is no object")
    schema = data.get("schema", SCHEMA)
    if not isinstance(schema, int) or isinstance(schema, bool):
        raise Unreadable(path, "its schema is no number")
    if schema > SCHEMA:
        raise NewerRecord(path, "it was written by a newer aicrun (schema %d)" % schema)
    try:
        return from_json(kind, data)
    except WireError as error:
        raise Unreadable(path, str(error)) from error


def read_json(path: str) -> Any:
    """The JSON value at `path`, None when there is no file; raises `Unreadable` for everything else."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return None
    except OSError as error:
        raise Unreadable(path, error.strerror or "error") from error
    try:
        with open(handle, "rb") as stream:
            raw = stream.read(RECORD_CAP_BYTES + 1)
        if len(raw) > RECORD_CAP_BYTES:
            raise Unreadable(path, "it is too large")
        value = load(raw)
    except (WireError, OSError) as error:
        raise Unreadable(path, str(error)) from error
    if value is None:
        raise Unreadable(path, "it is null")
    return value


class Reserved:
    """Room on the disk for one record, taken now so that a full disk later cannot stop it (`posix_fallocate`)."""

    def __init__(self, path: str, size_bytes: int) -> None:
        """Raises `OSError` when the room is not there; then nothing is left behind."""
        self.path = path
        self._size_bytes = size_bytes
        self._temporary = path + ROOM
        self._placed = False
        try:
            os.unlink(self._temporary)
        except FileNotFoundError:
            pass
        self._handle = os.open(self._temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(self._handle, 0, size_bytes)
            os.fsync(self._handle)
        except OSError:
            self.give_up()
            raise

    def commit(self, record: Any, *, once: bool = False) -> None:
        """Write `record` into the room and put it in place, durably; may be called again after an `OSError`.

        With `once` a record that stands there already is left as it is.
        """
        raw = dump(record)
        if not self._placed:
            _write_all(self._handle, raw)
            os.ftruncate(self._handle, len(raw))
            os.fsync(self._handle)
            self._place(once)
            self._placed = True
        sync_folder(os.path.dirname(self.path))
        os.close(self._handle)
        self._handle = -1

    def _place(self, once: bool) -> None:
        if not once:
            os.replace(self._temporary, self.path)
            return
        try:
            os.link(self._temporary, self.path)
        except FileExistsError:
            pass
        os.unlink(self._temporary)

    def give_up(self) -> None:
        """Free the room."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
            if not self._placed:
                os.unlink(self._temporary)


def insist(deed: Callable[[], object], folder: str = "") -> None:
    """Do it, again and again while the disk refuses: leaving without a record is what a keeper may not do.

    Into a `folder` that somebody took away nothing can be written: that is given up, the job's end holds it too.
    """
    pause_s = 0.5
    while True:
        try:
            deed()
        except OSError:
            if folder and _is_gone(folder):
                return
            time.sleep(pause_s)
            pause_s = min(30.0, pause_s * 2)
        else:
            return


def sync_folder(path: str) -> None:
    """Make the names in a folder durable; a file system that cannot do it is not an error."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def make_private(path: str) -> None:
    """Make the folder and what is missing above it, 0700 each (`os.makedirs` gives its mode to the last one only)."""
    try:
        os.mkdir(path, 0o700)
    except FileNotFoundError:
        make_private(os.path.dirname(path))
        # Once more from the front: somebody else may have made it meanwhile.
        make_private(path)
    except FileExistsError:
        return


def set_aside(folder: str) -> None:
    """Give a step's folder a number behind its name, so that the step can be run once more."""
    for number in range(1, ASIDE_MOST):
        try:
            os.rename(folder, "%s.%d" % (folder, number))
        except OSError:
            continue
        return


def _is_gone(folder: str) -> bool:
    try:
        os.stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _written(path: str, raw: bytes) -> str:
    temporary = "%s.%s.new" % (path, os.urandom(6).hex())
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _write_all(handle, raw)
        os.fsync(handle)
    except OSError as error:
        os.unlink(temporary)
        # A write knows no name, and the person needs to know which disk is full.
        error.filename = error.filename or path
        raise
    finally:
        os.close(handle)
    return temporary


def _write_all(handle: int, raw: bytes) -> None:
    done = 0
    while done < len(raw):
        done += os.pwrite(handle, raw[done:], done)


def _linked(temporary: str, path: str) -> bool:
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    sync_folder(os.path.dirname(path))
    return True
