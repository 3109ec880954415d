"""A file on its way here: written as it comes, hashed beside that, and given to the disk early. It places nothing.

What lies there already counts as its beginning. Whoever reads the bytes is not held up by the hash, and little is left
to write when the last one has come.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import queue
import threading
from types import TracebackType
from typing import Any

_CHUNK = 1024 * 1024
# Pieces that wait for the hash; more would only fill memory.
_WAITING = 8
# So much may lie in memory before the disk is told to begin.
_UNWRITTEN_BYTES = 8 * 1024 * 1024
# SYNC_FILE_RANGE_WRITE of the kernel's include/uapi/linux/fs.h.
_BEGIN = 2


class Arriving:
    """The part of a file at `path` that will have `size` bytes; `at` is how much of it is here. Raises `OSError`."""

    def __init__(self, path: str, size: int) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self.at = os.fstat(self._handle).st_size
        if self.at > size:
            os.ftruncate(self._handle, 0)
            self.at = 0
        self._hash = hashlib.sha256()
        self._pieces: queue.Queue[bytes] = queue.Queue(_WAITING)
        self._hashing = threading.Thread(target=self._hash_pieces, daemon=True)

    def __enter__(self) -> Arriving:
        self._hashing.start()
        for offset in range(0, self.at, _CHUNK):
            self._pieces.put(os.pread(self._handle, min(_CHUNK, self.at - offset), offset))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._hashing.is_alive():
            self._pieces.put(b"")
            self._hashing.join()
        os.close(self._handle)

    def take(self, data: bytes) -> None:
        """The next bytes."""
        if not data:
            return
        view = memoryview(data)
        while len(view):
            written = os.pwrite(self._handle, view, self.at)
            self.at += written
            view = view[written:]
        self._pieces.put(data)

    def whole(self) -> str:
        """All of it is on the disk now: its SHA-256."""
        self._pieces.put(b"")
        self._hashing.join()
        os.fsync(self._handle)
        return self._hash.hexdigest()

    def _hash_pieces(self) -> None:
        begun = passed = 0
        while data := self._pieces.get():
            self._hash.update(data)
            passed += len(data)
            if passed - begun >= _UNWRITTEN_BYTES:
                self._begin_writing(begun, passed - begun)
                begun = passed

    def _begin_writing(self, offset: int, count: int) -> None:
        begin = _sync_file_range()
        if begin is not None:
            begin(self._handle, ctypes.c_int64(offset), ctypes.c_int64(count), _BEGIN)


@functools.cache
def _sync_file_range() -> Any:
    """Linux's call that begins to write a range and waits for nothing; None elsewhere.

    A data sync would wait, also for other people's files, and the kernel's advice of the same effect visits each page.
    """
    return getattr(ctypes.CDLL(None), "sync_file_range", None)
