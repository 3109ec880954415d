"""A log with a cap: offsets that stay, the newest bytes kept, no byte lost or repeated by a killed pump."""

from __future__ import annotations

import os
import random
import re
import resource
import signal
import time
from pathlib import Path

import pytest
from support import until

from aicrun.agent import log_files, pump, spawn
from aicrun.agent.log_files import Caps, LogWriter
from aicrun.agent.pump import FULL, READING, Entry, Journal
from aicrun.agent.redact import Redactor

SMALL = Caps(head_bytes=1000, ring_bytes=100)


def stream(size: int) -> bytes:
    return b"".join(b"%09d\n" % number for number in range(size // 10))


def served(folder: Path, offset: int = 0, limit: int = 64) -> tuple[bytes, list[tuple[int, int]]]:
    """All that can be read from `offset` on, and the gaps as (asked, given)."""
    parts, gaps = [], []
    while True:
        data, at = log_files.read_bytes(str(folder), offset, limit)
        if at != offset:
            gaps.append((offset, at))
        if not data:
            return b"".join(parts), gaps
        parts.append(data)
        offset = at + len(data)


@pytest.mark.parametrize("size", [10, 990, 1000, 1010, 1090, 1100, 1110, 1500, 5000])
@pytest.mark.parametrize("chunk", [7, 64, 333, 5000])
def test_head_and_newest_tail_stay_under_their_first_offsets(tmp_path: Path, size: int, chunk: int) -> None:
    text, writer, done = stream(size), LogWriter(str(tmp_path), SMALL), 0
    while done < size:
        done += writer.write(text[done : done + chunk], done, 0)
    data, gaps = served(tmp_path)
    kept_from = max(1000, size - 100)
    assert data == text[:1000] + text[kept_from:] if size > 1000 else data == text
    assert gaps == ([(1000, kept_from)] if size > 1100 else [])
    state = log_files.read_state(str(tmp_path))
    assert state is not None
    assert state.total == size
    assert log_files.fallen_out(state) == max(0, size - 1100)
    on_disk = sum((tmp_path / name).stat().st_size for name in ("log", "log.tail") if (tmp_path / name).exists())
    assert on_disk <= 1100


def test_every_offset_gives_the_same_bytes_for_ever(tmp_path: Path) -> None:
    text, writer = stream(3000), LogWriter(str(tmp_path), SMALL)
    for done in range(0, 3000, 250):
        writer.write(text[done : done + 250], done, 0)
        for offset in range(0, done + 250, 37):
            data, at = log_files.read_bytes(str(tmp_path), offset, 50)
            assert text[at : at + len(data)] == data
            assert data


def test_an_offset_past_the_end_is_the_end(tmp_path: Path) -> None:
    LogWriter(str(tmp_path), SMALL).write(b"abc", 0, 0)
    assert log_files.read_bytes(str(tmp_path), 3, 10) == (b"", 3)
    assert log_files.read_bytes(str(tmp_path), 99, 10) == (b"", 99)


def test_a_torn_state_file_hides_no_head(tmp_path: Path) -> None:
    LogWriter(str(tmp_path), SMALL).write(b"abc", 0, 0)
    (tmp_path / "log.json").write_bytes(b"\0" * 256)
    assert served(tmp_path)[0] == b"abc"


class Killed(Exception):
    pass


class MortalJournal(Journal):
    """A journal whose user may be killed before or after each of its deeds."""

    countdown = 10**9

    def _step(self) -> None:
        self.countdown -= 1
        if self.countdown < 0:
            raise Killed

    def commit(self, entry: Entry) -> None:
        self._step()
        super().commit(entry)
        self._step()

    def fill(self, pipe: int, entry: Entry) -> int:
        self._step()
        got = super().fill(pipe, entry)
        self._step()
        return got

    def hold(self, side: int, data: bytes) -> None:
        self._step()
        super().hold(side, data)
        self._step()


class MortalLog(LogWriter):
    """A log whose writer may be killed before and after each write."""

    def __init__(self, folder: Path, caps: Caps, journal: MortalJournal) -> None:
        super().__init__(str(folder), caps)
        self._journal = journal

    def write(self, data: log_files.Raw, offset: int, dropped: int, unbroken: int = 0) -> int:
        self._journal._step()
        taken = super().write(data, offset, dropped, unbroken)
        self._journal._step()
        return taken


@pytest.fixture
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that goes round many times, so that kills meet every place of it."""
    for name, value in (("CHUNK", 1000), ("WINDOW", 4000), ("WHOLE", 3000), ("BATCH", 20_000)):
        monkeypatch.setattr(pump, name + "_BYTES", value)


def pumped(folder: Path, text: bytes, dice: random.Random, caps: Caps, secrets: tuple[str, ...], quiet: bool) -> int:
    """All of `text` through pumps that are killed again and again, in pieces of any size; how many were killed.

    With `quiet` each piece comes after a silence in which a short beginning of a value is let go.
    """
    redactor = Redactor(secrets)
    journal = MortalJournal(redactor.longest)
    read_end, write_end = pump.make_pipe()
    os.set_blocking(write_end, False)
    sent, kills, ended = 0, 0, False
    while not ended:
        if sent < len(text):
            sent += os.write(write_end, text[sent : sent + dice.randint(1, dice.choice((9, 300, 3000, 9000)))])
        worker = pump._Pump(read_end, MortalLog(folder, caps, journal), journal, redactor)
        journal.countdown = dice.randint(0, 30)
        try:
            worker.take_up()
            while worker.copy():
                pass
            if quiet:
                worker.settle(False)
            if sent == len(text):
                worker.settle(True)
                worker.finish()
                ended = True
        except Killed:
            kills += 1
    os.close(read_end)
    os.close(write_end)
    return kills


@pytest.mark.parametrize("seed", range(20))
def test_a_pump_killed_anywhere_loses_and_repeats_nothing(tmp_path: Path, seed: int, small_window: None) -> None:
    text = stream(60_000)
    assert pumped(tmp_path, text, random.Random(seed), Caps(head_bytes=30_000, ring_bytes=40_000), (), True) > 5
    assert served(tmp_path, limit=4096) == (text, [])


SECRETS = ("hf_abcdefgh", "abcdefgh-abcd", "hf_hf_hf_")


# None of these begins within another: whoever begins in the middle of a text finds the same ones.
APART = ("hf_abcdefgh", "first word", "0123456789")


def secretive(dice: random.Random, secrets: tuple[str, ...] = SECRETS) -> bytes:
    """A text full of secrets, and of what begins and ends like one."""
    words = [*secrets, "hf_", "abcd", "a", "\n", "no secret at all ", "hf_hf_hf", "bcdefgh"]
    return "".join(dice.choice(words) for _ in range(4000)).encode()


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_a_pump_killed_anywhere_hides_every_secret_whole(
    tmp_path: Path, seed: int, quiet: bool, small_window: None
) -> None:
    dice = random.Random(seed)
    text = secretive(dice)
    assert pumped(tmp_path, text, dice, Caps(head_bytes=10_000, ring_bytes=60_000), SECRETS, quiet) > 5
    data, gaps = served(tmp_path, limit=4096)
    whole = Redactor(SECRETS).whole(text)
    assert gaps == []
    assert not any(secret.encode() in data for secret in SECRETS)
    if quiet:
        # A beginning of a value that was let go stands before its mark.
        assert len(data) >= len(whole)
        assert data.count(b"***") == whole.count(b"***")
    else:
        assert data == whole


@pytest.mark.parametrize("ring", [500, 2900])
@pytest.mark.parametrize("secrets", [(), APART])
@pytest.mark.parametrize("seed", range(20))
def test_past_the_cap_what_comes_fast_is_kept_from_its_end_alone(
    tmp_path: Path, seed: int, secrets: tuple[str, ...], ring: int, small_window: None
) -> None:
    dice = random.Random(seed)
    text = stream(2000) + b"".join(secretive(dice, APART) + stream(dice.randint(0, 2000)) for _ in range(2))
    assert pumped(tmp_path, text, dice, Caps(head_bytes=1000, ring_bytes=ring), secrets, False) > 5
    whole = Redactor(secrets).whole(text)
    data, gaps = served(tmp_path)
    assert data[:1000] == whole[:1000]
    assert whole.endswith(data[1000:])
    state = log_files.read_state(str(tmp_path))
    assert state is not None
    # What was skipped is counted as it came: nobody looked how much of it would have been hidden.
    assert len(whole) <= state.total <= len(text)
    assert gaps == [(1000, state.total - len(data) + 1000)]
    if not secrets:
        assert (len(data), state.total) == (1000 + ring, len(text))


@pytest.mark.parametrize("seed", range(10))
def test_what_the_disk_refuses_is_counted_to_the_byte(tmp_path: Path, seed: int, small_window: None) -> None:
    dice = random.Random(seed)
    text, journal, sent = secretive(dice), Journal(20), 0
    read_end, write_end = pump.make_pipe()
    worker = pump._Pump(read_end, LogWriter(str(tmp_path), Caps(15_000, 50_000)), journal, Redactor(SECRETS))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        while sent < len(text):
            # The kernel refuses what lies past the limit, and takes half a write that ends there.
            most = dice.choice((256, dice.randint(256, 30_000), before[1]))
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
            sent += os.write(write_end, text[sent : sent + dice.randint(1, 3000)])
            while worker.copy():
                worker.settle(True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    worker.finish()
    entry = journal.read()
    data, _ = served(tmp_path)
    markers = re.findall(
        rb"\n\[aicrun: (\d+) bytes of output could not be recorded here, the disk refused them\]\n", data
    )
    rest = re.sub(rb"\n\[aicrun: \d+ bytes of output[^]]*\]\n", b"", data)
    assert len(rest) + entry.dropped == len(Redactor(SECRETS).whole(text))
    assert sum(map(int, markers)) + entry.untold == entry.dropped > 0


@pytest.mark.parametrize("offset", [200, 500, 990, 1100])
def test_what_must_stay_whole_is_not_left_in_half(tmp_path: Path, offset: int) -> None:
    writer, before = LogWriter(str(tmp_path), Caps(1000, 600)), resource.getrlimit(resource.RLIMIT_FSIZE)
    writer.write(b"-" * offset, 0, 0)
    try:
        room = offset + 20 if offset < 900 else 256
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
        words = b"so much was lost, or more" * 12
        assert writer.write(words + b" and so it went on", offset, 0, len(words)) == 0
        assert served(tmp_path)[0] == b"-" * offset
        fits = words[: room - offset] if offset < 900 else b""
        assert writer.write(words, offset, 0) == len(fits) or offset >= 900
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_refused_write_behind_skipped_bytes_shows_no_stale_ones(tmp_path: Path, small_window: None) -> None:
    caps, journal = Caps(head_bytes=1000, ring_bytes=500), Journal()
    read_end, write_end = pump.make_pipe()
    worker = pump._Pump(read_end, LogWriter(str(tmp_path), caps), journal, Redactor())
    os.write(write_end, stream(1700))
    while worker.copy():
        worker.settle(True)
    ring = tmp_path / "log.tail"
    ring.rename(tmp_path / "aside")
    ring.mkdir()
    broken = pump._Pump(read_end, LogWriter(str(tmp_path), caps), journal, Redactor())
    os.write(write_end, stream(5000))
    broken.take_up()
    assert broken.copy()
    broken.settle(True)
    ring.rmdir()
    (tmp_path / "aside").rename(ring)
    # The next pump knows as much as this one did.
    last = pump._Pump(read_end, LogWriter(str(tmp_path), caps), journal, Redactor())
    last.take_up()
    os.write(write_end, b"after\n")
    assert last.copy()
    last.settle(True)
    last.finish()
    data, gaps = served(tmp_path)
    head, _, rest = data.partition(b"\n[aicrun: 500 bytes of output")
    assert (head, rest) == (stream(1000), b" could not be recorded here, the disk refused them]\nafter\n")
    # 700 bytes of the first write and all but the end of the second one were recorded, and have fallen out.
    assert gaps == [(1000, 1700 + 4500)]


def test_a_pump_beats_when_output_comes_and_never_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Silence is told by these beats, and a pump that looks around must not break it.
    monkeypatch.setattr(pump, "LOOK_MS", 20)
    journal = Journal(20)
    read_end, write_end = pump.make_pipe()
    pid = spawn.fork_pump(read_end, pump.Sink(str(tmp_path), SMALL, journal, Redactor(("hf_abcdefgh",))))
    for number in range(1, 4):
        os.write(write_end, b"hf_")
        until(lambda: log_files.read_bytes(str(tmp_path), 0, 100)[0] == b"hf_" * number)  # noqa: B023  used at once
        assert journal.beats() == number
        began = time.monotonic()
        until(lambda: time.monotonic() > began + 0.3)  # noqa: B023  used at once
        assert journal.beats() == number
    os.close(write_end)
    assert os.waitpid(pid, 0) == (pid, 0)
    os.close(read_end)


def test_a_pump_that_shall_end_does_so_at_once_and_takes_what_waits(tmp_path: Path) -> None:
    journal = Journal()
    read_end, write_end = pump.make_pipe()
    pid = spawn.fork_pump(read_end, pump.Sink(str(tmp_path), SMALL, journal, Redactor()))
    os.write(write_end, b"one\n")
    until(lambda: journal.beats() == 1)
    os.write(write_end, b"two\n")
    journal.tell_last()
    os.kill(pid, signal.SIGTERM)
    # Its pipe is open still, and nothing more comes: it must not sleep over the signal.
    until(lambda: os.waitpid(pid, os.WNOHANG) == (pid, 0), at_most_s=10)
    assert served(tmp_path)[0] == b"one\ntwo\n"
    state = log_files.read_state(str(tmp_path))
    assert state is not None
    assert state.done


def test_a_read_that_did_not_happen_is_told_from_one_that_did() -> None:
    journal = Journal()
    read_end, write_end = pump.make_pipe()
    os.write(write_end, b"x" * 100)
    entry = Entry(READING, more=100)
    journal.plant(entry)
    journal.commit(entry)
    assert not journal.was_read(entry)
    journal.fill(read_end, entry)
    assert journal.was_read(entry)
    entry = Entry(FULL, 100)
    journal.commit(entry)
    assert journal.data(entry) == b"x" * 100


def test_a_pump_that_others_tell_to_end_waits_on(tmp_path: Path) -> None:
    journal = Journal()
    read_end, write_end = pump.make_pipe()
    pid = spawn.fork_pump(read_end, pump.Sink(str(tmp_path), SMALL, journal, Redactor()))
    for number in range(1, 4):
        os.write(write_end, b"one\n")
        until(lambda: journal.beats() == number)  # noqa: B023  used at once
        os.kill(pid, signal.SIGTERM)
    until(lambda: not pending(pid))
    state, before = log_files.read_state(str(tmp_path)), processor_ticks(pid)
    assert state is not None
    assert not state.done
    began = time.monotonic()
    until(lambda: time.monotonic() > began + 0.5)
    # It sleeps again, and does not look whether more comes.
    assert processor_ticks(pid) - before < 10
    os.close(write_end)
    assert os.waitpid(pid, 0) == (pid, 0)
    os.close(read_end)
    assert served(tmp_path)[0] == b"one\none\none\n"


def pending(pid: int) -> bool:
    """True while a signal waits for that process."""
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    return any(int(row.split()[1], 16) for row in rows if row.startswith(("SigPnd:", "ShdPnd:")))


def processor_ticks(pid: int) -> int:
    """How much of a processor it has had, in hundredths of a second."""
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
