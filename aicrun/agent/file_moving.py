"""Moves a person's files over one connection, in pieces; each side hashes what passes by, so nothing is read twice.

What arrives lies beside its place until its SHA-256 is that of the sender, so that a cut transfer goes on where it
stopped. No link is followed, and nothing that is there is replaced unasked. What this process remembers between two
pieces is only what would cost a second reading; without it every answer is the same, later.
"""

import hashlib
import os
import stat
from typing import Any, Dict, Tuple

from aicrun.agent import bodies
from aicrun.agent.files import CHUNK, PART, Answer, hashed, lstat, opened, path_of, refusal
from aicrun.agent.home import Home
from aicrun.agent.refused import Refused

PIECE_MOST_BYTES = 8 * 1024 * 1024
# So much may lie in memory before the disk is asked to begin: what is left for the end is then soon done.
UNWRITTEN_BYTES = 8 * 1024 * 1024
# SYNC_FILE_RANGE_WRITE of the kernel's include/uapi/linux/fs.h.
BEGIN_WRITING = 2


class Stream:
    """A file that is read or written from its beginning on, and the hash of all of it up to `at`."""

    def __init__(self, path: str, handle: int) -> None:
        self.path = path
        self.handle = handle
        self.at = 0
        self.hash = hashlib.sha256()
        self.began = _mark(os.fstat(handle))
        self.is_shared = False
        self.unwritten = 0
        self._written_at = self.began[3]

    def skip(self, offset: int) -> None:
        """Hash on to `offset` without passing anything; stops at the end of the file."""
        while self.at < offset:
            data = os.pread(self.handle, min(CHUNK, offset - self.at), self.at)
            if not data:
                return
            self.passed(data)

    def cut(self, offset: int) -> None:
        """Let the file end at `offset`, and go on there."""
        os.ftruncate(self.handle, offset)
        self._written_at = os.fstat(self.handle).st_mtime_ns
        self.skip(offset)

    def passed(self, data: bytes) -> None:
        """`data` went by at `at`."""
        self.hash.update(data)
        self.at += len(data)

    def write(self, data: bytes) -> None:
        """Put `data` at `at`, and let the disk begin with it; raises `OSError`.

        `is_shared` is set when somebody else wrote to the file meanwhile: the hash then says nothing about it.
        """
        self.is_shared |= os.fstat(self.handle).st_mtime_ns != self._written_at
        view = memoryview(data)
        while len(view):
            view = view[os.pwrite(self.handle, view, self.at + len(data) - len(view)) :]
        self._written_at = os.fstat(self.handle).st_mtime_ns
        self.passed(data)
        self._soon_on_disk(len(data))

    def _soon_on_disk(self, count: int) -> None:
        self.unwritten += count
        if self.unwritten >= UNWRITTEN_BYTES:
            # Imported here: many a push is smaller than that.
            import ctypes

            # It begins to write and waits for nothing; a data sync would wait, also for other people's files.
            begin = getattr(ctypes.CDLL(None), "sync_file_range", None)
            if begin is not None:
                start = self.at - self.unwritten
                begin(self.handle, ctypes.c_int64(start), ctypes.c_int64(self.unwritten), BEGIN_WRITING)
            self.unwritten = 0

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.handle)


_reading: Dict[str, Stream] = {}
_writing: Dict[str, Stream] = {}


def read(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{path, offset, size} -> that many bytes from there on, fewer at the end of the file. Raises `Refused`."""
    path = path_of(body)
    offset, size = bodies.number(body, "offset", 0, 1 << 62), bodies.number(body, "size", 0, PIECE_MOST_BYTES)
    try:
        stream = _reading.get(path)
        if stream is None or stream.at != offset:
            _forget(_reading)
            stream = _reading[path] = Stream(path, opened(path))
            stream.skip(offset)
        data = _pread(stream.handle, size, offset)
        stream.passed(data)
    except OSError as error:
        _forget(_reading)
        raise refusal(path, error, "unreadable") from error
    return {}, data


def digest(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{path} -> {sha256, bytes} of a regular file; read here once more only when it did not just pass by whole.

    Of a file that was changed while it passed by, or put in another's place, it is of what lies there now.
    """
    path = path_of(body)
    try:
        stream = _reading.get(path)
        if stream is not None and stream.at == stream.began[2] and _mark(os.lstat(path)) == stream.began:
            found, size = stream.hash.hexdigest(), stream.at
        else:
            found, size = hashed(path)
    except OSError as error:
        raise refusal(path, error, "unreadable") from error
    finally:
        _forget(_reading)
    return {"sha256": found, "bytes": size}, b""


def begin(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{path, bytes, key, sha256, replace} -> {path, offset, same, asks}: where it goes, how much of it lies there.

    `key` tells this content from others while it arrives; with the same one a cut transfer goes on. `same`: exactly
    this file is in place. `asks`: a file of this size is there, and only its `sha256` (empty: not known yet) can tell
    whether it is the same. A `path` that ends with a slash, or is a folder, gets `name` behind it; with `make_folders`
    the folders above it are made. Raises `Refused`: exists, not_found, not_a_file, unwritable.
    """
    path, key, sha256 = _place(body), bodies.text(body, "key"), bodies.text(body, "sha256", "")
    size = bodies.number(body, "bytes", 0, 1 << 62)
    told: Dict[str, Any] = {"path": path, "offset": 0, "same": False, "asks": False}
    try:
        if body.get("make_folders"):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        state = lstat(path)
        if state is not None:
            if not stat.S_ISREG(state.st_mode):
                raise Refused("not_a_file", "%s is there and is no regular file" % path, {"path": path})
            if state.st_size == size and not sha256:
                return dict(told, asks=True), b""
            if state.st_size == size and hashed(path)[0] == sha256:
                return dict(told, offset=size, same=True), b""
            if not body.get("replace"):
                raise Refused("exists", "%s is there already and differs" % path, {"path": path})
        folder = os.path.dirname(path)
        if not os.path.isdir(folder):
            raise Refused("not_found", "the folder %s is not there" % folder, {"path": path})
        part = part_of(path, key)
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        have = os.lstat(part).st_size
    except OSError as error:
        raise refusal(path, error, "unwritable") from error
    return dict(told, offset=have if have <= size else 0), b""


def write(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{path, key, offset}, payload -> {}: put bytes into the part of `path`. Raises `Refused` (unwritable)."""
    path = path_of(body)
    part, offset = part_of(path, bodies.text(body, "key")), bodies.number(body, "offset", 0, 1 << 62)
    try:
        stream = _writing.get(part)
        if stream is None or stream.at != offset:
            _forget(_writing)
            stream = _writing[part] = Stream(part, os.open(part, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC))
            stream.cut(offset)
        stream.write(payload)
    except OSError as error:
        _forget(_writing)
        raise refusal(path, error, "unwritable") from error
    return {}, b""


def finish(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{path, key, bytes, sha256, mode, replace} -> {path}: give the part its place once it is what was sent.

    Raises `Refused`: transfer_failed when it is not (the part is removed then), exists, unwritable.
    """
    path, sha256 = path_of(body), bodies.text(body, "sha256")
    part = part_of(path, bodies.text(body, "key"))
    try:
        found, size = _arrived(part)
        if found != sha256 or size != bodies.number(body, "bytes", 0, 1 << 62):
            os.unlink(part)
            raise Refused("transfer_failed", "what arrived for %s is not what was sent" % path, {"path": path})
        handle = opened(part)
        try:
            os.fchmod(handle, bodies.number(body, "mode", 0o644, 0o777))
            os.fsync(handle)
        finally:
            os.close(handle)
        if body.get("replace"):
            os.replace(part, path)
        else:
            # Also when somebody was faster: a link never replaces.
            os.link(part, path)
            os.unlink(part)
    except FileExistsError as error:
        raise Refused("exists", "%s is there already" % path, {"path": path}) from error
    except OSError as error:
        raise refusal(path, error, "unwritable") from error
    finally:
        _forget(_writing)
    return {"path": path}, b""


def _arrived(part: str) -> Tuple[str, int]:
    """(SHA-256, bytes) of a part: known when all of it passed by here, else read."""
    stream = _writing.get(part)
    if stream is None or stream.is_shared:
        return hashed(part)
    state, held = os.lstat(part), os.fstat(stream.handle)
    is_ours = (state.st_dev, state.st_ino) == (held.st_dev, held.st_ino)
    return (stream.hash.hexdigest(), stream.at) if is_ours and held.st_size == stream.at else hashed(part)


def _forget(streams: Dict[str, Stream]) -> None:
    for stream in streams.values():
        stream.close()
    streams.clear()


def _mark(state: os.stat_result) -> Tuple[int, int, int, int, int]:
    """What changes when a file is written to or replaced."""
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def _pread(handle: int, size: int, offset: int) -> bytes:
    data = os.pread(handle, size, offset)
    while len(data) < size:
        more = os.pread(handle, size - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


def _place(body: Dict[str, Any]) -> str:
    path, name = path_of(body), bodies.text(body, "name", "")
    if name and (path.endswith("/") or os.path.isdir(path)):
        return os.path.join(path, os.path.basename(name))
    return path


def part_of(path: str, key: str) -> str:
    """Where the content that `key` names lies beside `path` while it arrives."""
    folder, name = os.path.split(path)
    mark = hashlib.sha256(("%s %s" % (name, key)).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    # Short enough for any name: the part must not fail where the file would fit.
    return os.path.join(folder, "." + mark + PART)
