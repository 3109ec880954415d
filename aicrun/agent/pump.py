"""Copies a step's output from its pipe to its log and never makes the step wait for a disk or a cap.

One forked process without an exec. It may be killed at any instruction: what it is about to do stands in memory
shared with the keeper (`Journal`), so that the next pump goes on without losing or repeating a byte. It must not
stop reading while the pipe has a writer.
"""

import dataclasses
import fcntl
import mmap
import os
import select
import signal
import struct
from typing import Any, List, Tuple

from aicrun.agent.log_files import Caps, LogWriter

CHUNK_BYTES = 256 * 1024
PIPE_BYTES = 1024 * 1024
_F_SETPIPE_SZ = 1031  # fcntl(2); the name came with Python 3.10
_FIONREAD = 0x541B  # ioctl_tty(2)
_MARK_BYTES = 16
_HEAD = struct.Struct("=QQQQQ")
_SLOT_AT = (64, 128)
_MARK_AT = 192
_DATA_AT = 4096

IDLE, READING, FULL = 0, 1, 2


@dataclasses.dataclass(frozen=True)
class Entry:
    """Where the pump stands: `count` bytes are being read (READING) or lie in the buffer to be written (FULL).

    `total` bytes are recorded, `dropped` were not; `untold` of these are not yet told by a line in the log.
    """

    doing: int = IDLE
    count: int = 0
    total: int = 0
    dropped: int = 0
    untold: int = 0


class Journal:
    """One entry and one chunk in memory that outlives the pump: anonymous, shared by keeper and pumps."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, _DATA_AT + CHUNK_BYTES)

    def read(self) -> Entry:
        """The entry that was committed last."""
        return Entry(*_HEAD.unpack_from(self._map, _SLOT_AT[self._map[0]]))

    def commit(self, entry: Entry) -> None:
        """Replace the entry: the other slot is filled first, then one byte points to it, so a kill never tears it."""
        other = 1 - self._map[0]
        _HEAD.pack_into(self._map, _SLOT_AT[other], *dataclasses.astuple(entry))
        self._map[0] = other

    def beats(self) -> int:
        """A number that changes whenever the pump does something; a pump with work and no beat is stuck."""
        return int(struct.unpack_from("=Q", self._map, 8)[0])

    def beat(self) -> None:
        """Show the keeper that this pump moves."""
        struct.pack_into("=Q", self._map, 8, self.beats() + 1)

    def plant(self, count: int) -> None:
        """Put random bytes where the end of the next `count` bytes will come to lie."""
        size = min(count, _MARK_BYTES)
        mark = os.urandom(size)
        self._map[_MARK_AT : _MARK_AT + size] = mark
        self._map[_DATA_AT + count - size : _DATA_AT + count] = mark

    def was_read(self, count: int) -> bool:
        """True when the read of `count` bytes had happened: then the planted bytes are overwritten."""
        size = min(count, _MARK_BYTES)
        mark = self._map[_MARK_AT : _MARK_AT + size]
        return self._map[_DATA_AT + count - size : _DATA_AT + count] != mark

    def fill(self, pipe: int, count: int) -> int:
        """Read `count` waiting bytes of the pipe straight into the buffer; fewer when a step reads its own output."""
        with memoryview(self._map) as whole, whole[_DATA_AT : _DATA_AT + count] as part:
            try:
                return os.readv(pipe, [part])
            except BlockingIOError:
                return 0

    def data(self, count: int) -> bytes:
        """The first `count` bytes of the buffer."""
        return self._map[_DATA_AT : _DATA_AT + count]


def make_pipe() -> List[int]:
    """A large pipe for a step's output as [read end, write end]; the read end never blocks, the write end does."""
    read_end, write_end = os.pipe()
    try:
        fcntl.fcntl(read_end, _F_SETPIPE_SZ, PIPE_BYTES)
    except OSError:
        # The account's limit for pipes is reached: the standard size works, only slower.
        pass
    os.set_blocking(read_end, False)
    return [read_end, write_end]


def waiting_bytes(pipe: int) -> int:
    """How many bytes wait in the pipe."""
    return int(struct.unpack("=i", fcntl.ioctl(pipe, _FIONREAD, b"\0" * 4))[0])


def run(pipe: int, folder: str, caps: Caps, journal: Journal, held: Tuple[int, ...] = ()) -> int:
    """The whole life of a pump process, up to the end of the pipe or SIGTERM (then what waits is still copied)."""
    close_all_but({pipe, *held})
    _null_streams()
    ending = _end_on_term()
    pump = _Pump(pipe, LogWriter(folder, caps), journal)
    pump.take_up()
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while True:
        events = poll.poll(0 if ending else 500)
        journal.beat()
        if pump.copy():
            continue
        if ending or any(event & (select.POLLHUP | select.POLLERR) for _, event in events):
            break
    pump.finish()
    return 0


class _Pump:
    def __init__(self, pipe: int, log: LogWriter, journal: Journal) -> None:
        self._pipe = pipe
        self._log = log
        self._journal = journal

    def take_up(self) -> None:
        """Finish what a killed pump had begun."""
        entry = self._journal.read()
        if entry.doing == IDLE:
            self._log.say(entry.total, entry.total, entry.dropped)
        elif entry.doing == FULL or self._journal.was_read(entry.count):
            self._write(dataclasses.replace(entry, doing=FULL))
        else:
            # The read never happened; said before the next bytes are planted, or they would be judged by its count.
            self._journal.commit(dataclasses.replace(entry, doing=IDLE))

    def copy(self) -> bool:
        """Copy one chunk; False when nothing waits."""
        count = min(waiting_bytes(self._pipe), CHUNK_BYTES)
        if not count:
            return False
        entry = dataclasses.replace(self._journal.read(), doing=READING, count=count)
        self._journal.plant(count)
        self._journal.commit(entry)
        got = self._journal.fill(self._pipe, count)
        self._write(dataclasses.replace(entry, doing=FULL, count=got))
        return True

    def finish(self) -> None:
        entry = self._journal.read()
        self._log.sync()
        self._log.say(entry.total, entry.total, entry.dropped, done=True)

    def _write(self, entry: Entry) -> None:
        self._journal.commit(entry)
        data = self._journal.data(entry.count)
        told = _marker(entry) if entry.untold else b""
        taken = self._log.write(told + data, entry.total, entry.dropped)
        lost = len(data) - max(0, taken - len(told))
        untold = entry.untold if taken < len(told) else 0
        done = Entry(IDLE, 0, entry.total + taken, entry.dropped + lost, untold + lost)
        self._journal.commit(done)
        if done.dropped != entry.dropped:
            self._log.say(done.total, done.total, done.dropped)


def _marker(entry: Entry) -> bytes:
    return b"\n[aicrun: %d bytes of output could not be recorded here, the disk refused them]\n" % entry.untold


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


def _null_streams() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(null, number)
    os.close(null)


def _end_on_term() -> List[int]:
    seen: List[int] = []
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, _frame: seen.append(number))
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    return seen
