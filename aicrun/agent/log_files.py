"""A step's log on disk: a head that keeps its place for ever and a ring of the newest bytes. Written by one pump.

Offsets count the recorded bytes from the first on. Below `head_bytes` they are places in `log`; from there on the
byte at `offset` lies in `log.tail` at `(offset - head_bytes) % ring_bytes`. So a byte written twice at its offset is
written once, which makes a killed writer repeatable. It must not wait for anything.
"""

import json
import os
from typing import Dict, NamedTuple, Optional, Tuple, Union

from aicrun.wire import lean, names

Raw = Union[bytes, memoryview]

_STATE_BYTES = 256


@lean.dataclass(frozen=True)
class Caps:
    """How much of a log is kept: the first `head_bytes` and the newest `ring_bytes`."""

    head_bytes: int = names.LOG_CAP_BYTES - names.LOG_TAIL_BYTES
    ring_bytes: int = names.LOG_TAIL_BYTES


class LogState(NamedTuple):
    """What the writer says: `total` recorded bytes, `busy_until` where the write in progress ends.

    `dropped` bytes met a write error (full disk) and are nowhere; `done` means the writer saw the end of the pipe.
    """

    head_bytes: int
    ring_bytes: int
    total: int = 0
    busy_until: int = 0
    dropped: int = 0
    done: bool = False


_STANDARD = LogState(Caps().head_bytes, Caps().ring_bytes)


class LogWriter:
    """Writes at offsets, never appends; every method may be repeated after a kill."""

    def __init__(self, folder: str, caps: Caps) -> None:
        """The files in the step's folder are opened (or made) when they are needed, and tried again when refused."""
        self._folder = folder
        self.caps = caps
        # What the ring would hold below this offset was never written to it.
        self.floor = 0
        self._open: Dict[str, int] = {}
        self._file(names.LOG)

    def write(self, data: Raw, offset: int, dropped: int, unbroken: int = 0) -> int:
        """Record `data` at `offset`; how many of its bytes the disk took (fewer than all: a write error).

        The first `unbroken` bytes are taken whole or not at all.
        """
        room = max(0, self.caps.head_bytes - offset)
        taken = _pwrite(self._file(names.LOG), data[:room], offset) if room else 0
        if taken == len(data):
            return taken
        if taken == room:
            if not self.say(offset + taken, offset + len(data), dropped):
                return taken if taken >= unbroken else self._shorten(offset)
            taken += self._write_ring(data[taken:], offset + taken)
        if taken < unbroken:
            taken = self._shorten(offset)
        elif taken < room:
            self._shorten(offset + taken)
        if taken >= room:
            self.say(offset + taken, offset + taken, dropped)
        return taken

    def say(self, total: int, busy_until: int, dropped: int, done: bool = False) -> bool:
        """Publish the state in place (one small write, so it needs no new room); False when the disk refuses."""
        if self.floor:
            busy_until = max(busy_until, self.floor + self.caps.ring_bytes)
        words = self.caps.head_bytes, self.caps.ring_bytes, total, busy_until, dropped, int(done)
        # The bytes that a JSON encoder gives, at a tenth of its time: past the cap it is said twice a chunk.
        raw = (b"[%d, %d, %d, %d, %d, %d, %d]" % (words + (sum(words),))).ljust(_STATE_BYTES - 1) + b"\n"
        try:
            return os.pwrite(self._file(names.LOG_STATE), raw, 0) == _STATE_BYTES
        except OSError:
            return False

    def sync(self) -> None:
        """Make what was written durable, as far as the disk allows."""
        for handle in self._open.values():
            try:
                os.fsync(handle)
            except OSError:
                # The bytes are in the kernel; a full or failing disk is told by the reader's counts, not here.
                continue

    def _write_ring(self, data: Raw, offset: int) -> int:
        size, taken = self.caps.ring_bytes, 0
        while taken < len(data):
            place = (offset + taken - self.caps.head_bytes) % size
            part = data[taken : taken + size - place]
            got = _pwrite(self._file(names.LOG_TAIL), part, place)
            taken += got
            if got < len(part):
                break
        return taken

    def _shorten(self, size: int) -> int:
        """Cut the head to `size` if it is longer; 0 bytes are taken then."""
        handle = self._file(names.LOG)
        try:
            if os.fstat(handle).st_size > size:
                os.ftruncate(handle, size)
        except OSError:
            # A longer file only shows bytes that were really written; the next write covers them.
            pass
        return 0

    def _file(self, name: str) -> int:
        if name not in self._open:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                self._open[name] = os.open(os.path.join(self._folder, name), flags, 0o600)
            except OSError:
                # No room for a new file: a write to -1 fails like any other, and the next one tries again.
                return -1
        return self._open[name]


class LogReader:
    """Reads a log again and again: its files are opened once, and stay open when the folder is swept meanwhile."""

    def __init__(self, folder: str) -> None:
        """The files in the step's folder need not be there yet."""
        self._folder = folder
        self._open: Dict[str, int] = {}
        # What the writer said last, as it stood there and as it is meant.
        self._heard: Tuple[bytes, Optional[LogState]] = (b"", None)

    def close(self) -> None:
        """Give the files back."""
        for handle in self._open.values():
            os.close(handle)
        self._open.clear()

    def state(self) -> Optional[LogState]:
        """The state with `total` as it is now; None when there is no log yet.

        A state file that is missing or torn (a full disk) counts as the standard caps and nothing beyond the head.
        """
        handle = self._file(names.LOG)
        if handle < 0:
            return None
        size = os.fstat(handle).st_size
        said = self._said() or _STANDARD
        # While the head fills, the file's own size is the truth and nothing else needs to be written.
        total = max(size, said.total) if size >= said.head_bytes else size
        return LogState(*said[:2], total, max(total, said.busy_until), *said[4:])

    def read(self, offset: int, limit: int) -> Tuple[bytes, int]:
        """At most `limit` recorded bytes from `offset` on, as (bytes, offset they really begin at).

        What the ring no longer has is skipped: then the second value is greater than `offset`. Empty at the end.
        """
        state = self.state()
        return (b"", offset) if state is None else self.read_of(state, offset, limit)

    def read_of(self, state: LogState, offset: int, limit: int) -> Tuple[bytes, int]:
        """The same of a `state` that was just asked for."""
        if offset >= state.total:
            return b"", offset
        if offset < state.head_bytes:
            data = self._pread(names.LOG, min(limit, min(state.head_bytes, state.total) - offset), offset)
            if data:
                return data, offset
            offset = state.head_bytes
        return self._read_ring(max(offset, oldest(state)), limit)

    def _read_ring(self, offset: int, limit: int) -> Tuple[bytes, int]:
        state = self.state()
        if state is None:
            return b"", offset
        count = min(limit, state.total - offset)
        parts, place_at, left = [], offset, count
        while left > 0:
            place = (place_at - state.head_bytes) % state.ring_bytes
            part = self._pread(names.LOG_TAIL, min(left, state.ring_bytes - place), place)
            if not part:
                break
            parts.append(part)
            place_at += len(part)
            left -= len(part)
        data = b"".join(parts)
        # The writer went on meanwhile: what it has overwritten since is cut off the front.
        after = self.state()
        lost = max(0, oldest(after) - offset) if after is not None else 0
        return data[lost:], offset + min(lost, len(data))

    def _said(self) -> Optional[LogState]:
        for _ in range(3):
            raw = self._pread(names.LOG_STATE, _STATE_BYTES, 0)
            if raw == self._heard[0]:
                return self._heard[1]
            try:
                words = json.loads(raw.decode("ascii"))
                if len(words) == 7 and sum(words[:6]) == words[6] and words[0] > 0 and words[1] > 0:
                    self._heard = raw, LogState(words[0], words[1], words[2], words[3], words[4], bool(words[5]))
                    return self._heard[1]
            except (ValueError, TypeError):
                continue
        return None

    def _pread(self, name: str, count: int, offset: int) -> bytes:
        handle = self._file(name)
        try:
            return os.pread(handle, count, offset) if handle >= 0 else b""
        except OSError:
            return b""

    def _file(self, name: str) -> int:
        if name not in self._open:
            path = os.path.join(self._folder, name)
            try:
                self._open[name] = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError:
                return -1
        return self._open[name]


def read_state(folder: str) -> Optional[LogState]:
    """The state of the log in a step's folder, once, as `LogReader.state` gives it."""
    reader = LogReader(folder)
    try:
        return reader.state()
    finally:
        reader.close()


def read_bytes(folder: str, offset: int, limit: int) -> Tuple[bytes, int]:
    """Bytes of the log in a step's folder, once, as `LogReader.read` gives them."""
    reader = LogReader(folder)
    try:
        return reader.read(offset, limit)
    finally:
        reader.close()


def oldest(state: LogState) -> int:
    """The lowest offset at or past the head's end whose byte the ring still has."""
    return max(state.head_bytes, state.busy_until - state.ring_bytes)


def fallen_out(state: LogState) -> int:
    """How many recorded bytes the ring has lost since: those between the head's end and its oldest byte."""
    return max(0, oldest(state) - state.head_bytes)


def _pwrite(handle: int, data: Raw, offset: int) -> int:
    done = 0
    while done < len(data):
        try:
            done += os.pwrite(handle, data[done:], offset + done)
        except OSError:
            break
    return done
