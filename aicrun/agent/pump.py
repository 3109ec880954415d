"""Copies a step's output from its pipe to its log and never makes the step wait for a disk or a cap.

One forked process without an exec. It may be killed at any instruction: what it is about to do stands in memory
shared with the keeper (`Journal`), so that the next pump goes on without losing or repeating a byte. It must not
stop reading while the pipe has a writer.
"""

import fcntl
import mmap
import os
import select
import signal
import struct
import time
from typing import List, NamedTuple, Tuple

from aicrun.agent import handles
from aicrun.agent.log_files import Caps, LogWriter
from aicrun.agent.redact import Passed, Redactor
from aicrun.wire.secrets import LEAST_CHARACTERS

CHUNK_BYTES = 256 * 1024
PIPE_BYTES = 1024 * 1024
# What is read is kept in a window that a processor's cache holds. Past the cap up to a batch goes through it before the
# log is written, when it comes so fast: all but the end of it would fall out of the log.
WINDOW_BYTES = 2 * 1024 * 1024
BATCH_BYTES = 64 * 1024 * 1024
BATCH_S = 0.1
# So much of the window is whole at any moment, also while a chunk is read into it.
WHOLE_BYTES = WINDOW_BYTES - CHUNK_BYTES
# Nothing has to be looked at while nothing comes: the keeper looks for beats only while output waits.
LOOK_MS = 60_000
# After this long without output, what was kept back as the possible beginning of a secret is looked at again.
QUIET_MS = 200
_ENDED = select.POLLHUP | select.POLLERR
_F_SETPIPE_SZ = 1031  # fcntl(2); the name came with Python 3.10
_FIONREAD = 0x541B  # ioctl_tty(2)
_MARK_BYTES = 16
_HEAD = struct.Struct("=10Q")
_NUMBER = struct.Struct("=Q")
_COUNT = struct.Struct("=i")
_LAST_AT = 1
_BEAT_AT = 8
_SLOT_AT = (64, 192)
_DATA_AT = 4096

IDLE, READING, FULL, LETTING, ENDING = range(5)


class Entry(NamedTuple):
    """Where the pump stands; `held` bytes were read before and kept back, in the hold `side`.

    `filled` bytes went into the window, to be written behind them; with READING, `more` are being read behind these.
    LETTING and ENDING write what was kept back. `shown` of the held bytes are in the log already. `total` bytes are
    recorded, `dropped` were not; `untold` of these are not yet told by a line in the log. What lay before `floor` and
    past the log's head is gone.
    """

    doing: int = IDLE
    filled: int = 0
    total: int = 0
    dropped: int = 0
    untold: int = 0
    side: int = 0
    held: int = 0
    shown: int = 0
    floor: int = 0
    more: int = 0


class Journal:
    """One entry, one window and two holds in memory that outlives the pump: anonymous, shared by keeper and pumps.

    The bytes go round in the window, and its newest `WHOLE_BYTES` are whole at any moment. What is kept back goes to
    the other hold, so that the write it came from can be repeated.
    """

    def __init__(self, held_bytes: int = 0) -> None:
        """At most `held_bytes` are ever kept back."""
        self._hold_at = (_DATA_AT, _DATA_AT + held_bytes)
        self._data_at = _DATA_AT + 2 * held_bytes
        self._map = mmap.mmap(-1, self._data_at + WINDOW_BYTES)
        self._view = memoryview(self._map)
        # No output can know it, and all pumps of a step share it.
        self._mark = os.urandom(_MARK_BYTES)

    def read(self) -> Entry:
        """The entry that was committed last."""
        return Entry(*_HEAD.unpack_from(self._map, _SLOT_AT[self._map[0]]))

    def commit(self, entry: Entry) -> None:
        """Replace the entry: the other slot is filled first, then one byte points to it, so a kill never tears it."""
        other = 1 - self._map[0]
        _HEAD.pack_into(self._map, _SLOT_AT[other], *entry)
        self._map[0] = other

    def beats(self) -> int:
        """A number that changes whenever output is read, and never else; a pump with work and no beat is stuck."""
        return int(_NUMBER.unpack_from(self._map, _BEAT_AT)[0])

    def beat(self) -> None:
        """Show the keeper that output came and was read."""
        _NUMBER.pack_into(self._map, _BEAT_AT, self.beats() + 1)

    def tell_last(self) -> None:
        """The keeper's word that nothing more is to be waited for; SIGTERM wakes the pump for it."""
        self._map[_LAST_AT] = 1

    def is_last(self) -> bool:
        """True once that was said: a SIGTERM without it is somebody else's, and the pipe has a writer still."""
        return self._map[_LAST_AT] == 1

    def plant(self, entry: Entry) -> None:
        """Put random bytes where the end of the `more` bytes of `entry` will come to lie."""
        size, end = self._end(entry)
        self._map[end - size : end] = self._mark[:size]

    def was_read(self, entry: Entry) -> bool:
        """True when the read of `entry` had happened: then the planted bytes are overwritten."""
        size, end = self._end(entry)
        return self._map[end - size : end] != self._mark[:size]

    def fill(self, pipe: int, entry: Entry) -> int:
        """Read `more` waiting bytes of the pipe into the buffer; fewer when a step reads its own output."""
        _, end = self._end(entry)
        try:
            return os.readv(pipe, [self._view[end - entry.more : end]])
        except BlockingIOError:
            return 0

    def data(self, entry: Entry) -> memoryview:
        """The bytes that went into the window, of more than `WHOLE_BYTES` the newest so many."""
        size, end = min(entry.filled, WHOLE_BYTES), self._data_at + entry.filled % WINDOW_BYTES
        if end - size >= self._data_at:
            return self._view[end - size : end]
        newest = self._view[self._data_at : end]
        return memoryview(b"".join((self._view[end - size + WINDOW_BYTES :], newest)))

    def held(self, entry: Entry) -> bytes:
        """The bytes that were kept back."""
        begin = self._hold_at[entry.side]
        return self._map[begin : begin + entry.held]

    def hold(self, side: int, data: bytes) -> None:
        """Keep `data` back in the hold `side`, which no entry names yet."""
        begin = self._hold_at[side]
        self._map[begin : begin + len(data)] = data

    def _end(self, entry: Entry) -> Tuple[int, int]:
        return min(entry.more, _MARK_BYTES), self._data_at + entry.filled % WINDOW_BYTES + entry.more


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
    return int(_COUNT.unpack(fcntl.ioctl(pipe, _FIONREAD, b"\0" * 4))[0])


class Sink(NamedTuple):
    """Where a pump's bytes go: the step's folder, the log's caps, the journal, and the secrets to hide on the way.

    `held` are descriptors of locks, which live on in the pump.
    """

    folder: str
    caps: Caps
    journal: Journal
    redactor: Redactor
    held: Tuple[int, ...] = ()


def run(pipe: int, sink: Sink) -> int:
    """The whole life of a pump process, up to the end of the pipe or its keeper's word; what waits is copied then.

    From anybody else SIGTERM means nothing: a command whose pipe nobody reads stands still.
    """
    handles.close_all_but({pipe, *sink.held})
    _null_streams()
    woken = _wake_on_term()
    pump = _Pump(pipe, LogWriter(sink.folder, sink.caps), sink.journal, sink.redactor)
    pump.take_up()
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        is_last = sink.journal.is_last()
        events = poll.poll(0 if is_last else pump.patience_ms())
        if pump.copy():
            continue
        at_end = is_last or any(number == pipe and event & _ENDED for number, event in events)
        pump.settle(at_end)
        if at_end:
            break
        if any(number == woken for number, _ in events):
            # Unread it would keep the next poll from waiting.
            os.read(woken, 512)
    pump.finish()
    return 0


class _Pump:
    def __init__(self, pipe: int, log: LogWriter, journal: Journal, redactor: Redactor) -> None:
        self._pipe = pipe
        self._log = log
        self._journal = journal
        self._redactor = redactor
        self._due = 0.0
        # As the journal has it: none but this process writes there.
        self._entry = journal.read()

    def take_up(self) -> None:
        """Finish what a killed pump had begun."""
        entry = self._entry
        self._log.floor = entry.floor
        if entry.doing == READING:
            # Unless it was read after all it still waits in the pipe.
            more = entry.more if self._journal.was_read(entry) else 0
            entry = entry._replace(doing=FULL, filled=entry.filled + more, more=0)
        if entry.doing == IDLE:
            self._log.say(entry.total, entry.total, entry.dropped)
        else:
            self._begin(entry)

    def copy(self) -> bool:
        """Read what waits, at most one batch, and write what is due; False when nothing waits."""
        entry = self._entry
        before, most = entry.filled, self._batch_bytes(entry)
        if most == CHUNK_BYTES:
            # A lone line finds all caches cold, and pays for each thing that is touched: there is no batch to think of.
            entry = self._read(entry, CHUNK_BYTES)
            if entry.filled:
                self._write(entry)
        else:
            if not before:
                self._due = time.monotonic() + BATCH_S
            size = -1
            while size < entry.filled < most:
                size = entry.filled
                entry = self._read(entry, min(CHUNK_BYTES, most - size, _room(entry)))
            if entry.filled and (entry.filled >= most or time.monotonic() >= self._due):
                self._write(entry)
        if entry.filled > before:
            self._journal.beat()
        return entry.filled > before

    def _read(self, entry: Entry, most: int) -> Entry:
        """`entry` with what waits in the pipe, at most `most` bytes, behind what it has; itself when nothing waits."""
        more = min(waiting_bytes(self._pipe), most)
        if not more:
            return entry
        # By place, here and below: see `copy`.
        entry = Entry(READING, *entry[1:-1], more)
        self._journal.plant(entry)
        self._commit(entry)
        got = self._journal.fill(self._pipe, entry)
        self._entry = Entry(FULL, entry.filled + got, *entry[2:-1], 0)
        if got != more or more < _MARK_BYTES:
            # Else the mark that is gone says it as well, to whoever takes this up.
            self._journal.commit(self._entry)
        return self._entry

    def patience_ms(self) -> int:
        """How long to wait for output before `settle` has something to do."""
        entry = self._entry
        if entry.filled:
            return max(0, int((self._due - time.monotonic()) * 1000) + 1)
        return QUIET_MS if _may_be_let_go(entry) else LOOK_MS

    def settle(self, at_end: bool) -> None:
        """Nothing waits in the pipe: write the batch when it is due, and let go what is too short to be a secret."""
        entry = self._entry
        if entry.filled:
            if at_end or time.monotonic() >= self._due:
                self._write(entry)
        elif not at_end and _may_be_let_go(entry):
            self._begin(entry._replace(doing=LETTING))

    def finish(self) -> None:
        """Write what was kept back, make the log durable and say that it is whole."""
        entry = self._entry
        if entry.held:
            self._begin(entry._replace(doing=ENDING))
            entry = self._entry
        self._log.sync()
        self._log.say(entry.total, entry.total, entry.dropped, done=True)

    def _commit(self, entry: Entry) -> None:
        self._journal.commit(entry)
        self._entry = entry

    def _begin(self, entry: Entry) -> None:
        """Commit `entry` and write what it says."""
        self._commit(entry)
        self._write(entry)

    def _write(self, entry: Entry) -> None:
        """Write what `entry` says, once however often it is begun, and commit what comes after it.

        The journal has it already, as it is or as a read that happened.
        """
        passed = self._passed(entry)
        told = _marker(entry) if entry.untold else b""
        total = entry.total + passed.skipped
        if passed.skipped:
            # The ring holds nothing of what was skipped, whatever lies in it.
            self._log.floor = total
        taken = self._log.write(told + bytes(passed.out) if told else passed.out, total, entry.dropped, len(told))
        lost = len(passed.out) - max(0, taken - len(told))
        untold = entry.untold if taken < len(told) else 0
        side = entry.side
        if passed.kept:
            side = 1 - side
            self._journal.hold(side, passed.kept)
        words = (total + taken, entry.dropped + lost, untold + lost, side, len(passed.kept), passed.shown)
        done = Entry(IDLE, 0, *words, floor=self._log.floor)
        self._commit(done)
        if done.dropped != entry.dropped:
            self._log.say(done.total, done.total, done.dropped)

    def _batch_bytes(self, entry: Entry) -> int:
        """How much may be read before it is written: what is left of it must fill the ring, and a look before it."""
        if entry.total < self._log.caps.head_bytes:
            return CHUNK_BYTES
        enough = self._log.caps.ring_bytes + 2 * self._redactor.longest <= WHOLE_BYTES
        return BATCH_BYTES if enough else WHOLE_BYTES

    def _passed(self, entry: Entry) -> Passed:
        """What of the bytes of `entry` is written, and what is kept back."""
        data, redactor = self._journal.data(entry), self._redactor
        skipped = entry.filled - len(data)
        if not redactor:
            surplus = max(0, len(data) - self._log.caps.ring_bytes) if skipped else 0
            return Passed(data[surplus:], skipped=skipped + surplus)
        if skipped:
            # A value that began among the skipped bytes is over within the length of one: so much is only looked at.
            passed = redactor.passed(bytes(data), redactor.longest)
            return passed._replace(skipped=skipped + redactor.longest + entry.held - entry.shown)
        raw = b"".join((self._journal.held(entry), data))
        if entry.doing == ENDING:
            return Passed(redactor.whole(raw, entry.shown))
        if entry.doing == LETTING:
            return redactor.let_go(raw, entry.shown)
        return redactor.passed(raw, entry.shown)


def _may_be_let_go(entry: Entry) -> bool:
    """True while bytes are kept back that are no secret if nothing follows."""
    return entry.shown < entry.held < LEAST_CHARACTERS


def _room(entry: Entry) -> int:
    """How many bytes can be read into the window before it begins again at its front."""
    return WINDOW_BYTES - entry.filled % WINDOW_BYTES


def _marker(entry: Entry) -> bytes:
    return b"\n[aicrun: %d bytes of output could not be recorded here, the disk refused them]\n" % entry.untold


def _null_streams() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(null, number)
    os.close(null)


def _wake_on_term() -> int:
    """A descriptor that becomes readable when SIGTERM comes, which does nothing else."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    # A handler alone would not end a poll: Python goes on with it.
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    return woken
