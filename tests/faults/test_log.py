"""Logs of real runs: exact cap, stable offsets, following, the last lines, a full disk that never hurts the run."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

import pytest
from agent_rig import Refusal, Rig
from small_disk import fill
from support import until

from aicrun.agent import log_files
from aicrun.wire import names
from aicrun.wire.codec import to_json
from aicrun.wire.status import Status, status_of

MIB = 1024 * 1024


def lines(rig: Rig, count: int) -> str:
    path = rig.home / "lines.py"
    path.write_text("import sys\nfor n in range(int(sys.argv[1])): print('%09d' % n)\n")
    return f'"{sys.executable}" -I "{path}" {count}'


def test_a_log_over_the_cap_keeps_head_and_newest_and_every_offset(rig: Rig) -> None:
    caps = {"AICRUN_TEST_LOG_CAP": str(3 * MIB), "AICRUN_TEST_LOG_TAIL": str(MIB)}
    count = 2_000_000
    job = rig.start("big-run", lines(rig, count) + "; exit 6", env=caps)
    seen: dict[int, bytes] = {}
    with rig.link() as link:
        offset, gap, got = 0, 0, 0
        while True:
            answer, data = link.call("log", job_id=job, step="command", offset=offset, limit=100_000, wait_s=20)
            gap += answer["gap_bytes"]
            assert answer["offset"] == offset + answer["gap_bytes"]
            if data:
                seen[answer["offset"]] = data
                got += len(data)
            offset = answer["next_offset"]
            if answer["ended"] and answer["eof"]:
                break
        assert offset == 10 * count
        assert gap + got == 10 * count
        # Followed or read again later: the same bytes under the same offsets, each line its own number.
        for at, data in seen.items():
            first = -at % 10
            line = data[first : first + 10]
            assert line == b"%09d\n" % ((at + first) // 10)
        answer, data = link.call("log", job_id=job, step="command", offset=2 * MIB)
        assert answer["gap_bytes"] == 10 * count - MIB - 2 * MIB
        assert answer["dropped_bytes"] == 10 * count - 3 * MIB
        answer, data = link.call("log", job_id=job, step="command", offset=None, tail_lines=2)
        assert data == b"%09d\n%09d\n" % (count - 2, count - 1)
        assert (answer["offset"], answer["eof"]) == (10 * count - 20, True)
    folder = rig.step(job)
    assert (folder / names.LOG).stat().st_size == 2 * MIB
    assert (folder / names.LOG_TAIL).stat().st_size == MIB
    assert status_of(rig.ended(job)).code == 6


FLOOD = """import os, sys
piece, left, random = sys.argv[2].encode().decode("unicode_escape").encode("latin-1"), int(sys.argv[1]), sys.argv[3]
block = piece * (65536 // len(piece))
while left > 0:
    left -= os.write(1, (os.urandom(65536) if random == "random" else block)[:left])
os.write(1, b"the last words")
"""
SECRETS = {"A": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567", "B": "0123456789abcdef0123456789abcdef", "C": "a/secret+key="}


@pytest.mark.parametrize(
    ("piece", "kind", "cap", "size"),
    [
        ("x" * 99 + "\\n", "lines", names.LOG_CAP_BYTES, 300 * MIB),
        ("x", "random", names.LOG_CAP_BYTES, 300 * MIB),
        ("one line without an end ", "line", 3 * MIB, 7 * MIB),
        ("\\xe6\\xbc", "half", 3 * MIB, 7 * MIB),
    ],
)
def test_a_flood_is_kept_up_to_its_cap_to_the_byte(rig: Rig, piece: str, kind: str, cap: int, size: int) -> None:
    """F35; at the standard cap what `benchmarks/log_throughput.py` measures with 2 GiB, without a clock."""
    command = (sys.executable, "-I", "-S", "-c", FLOOD, str(size), piece, kind)
    env = {"AICRUN_TEST_LOG_CAP": str(cap)}
    job = rig.start("flood-run", command, env=env, secrets=SECRETS if kind == "lines" else {})
    report = rig.ended(job, 120)
    assert status_of(report).code == 0
    folder, total, head = rig.step(job), size + len(b"the last words"), cap - names.LOG_TAIL_BYTES
    until(lambda: (state := log_files.read_state(str(folder))) is not None and state.done)
    assert (folder / names.LOG).stat().st_size == head
    assert (folder / names.LOG_TAIL).stat().st_size == names.LOG_TAIL_BYTES
    step = next(step for step in rig.report(job).steps if step.step == "command")
    assert (step.log_bytes, step.log_dropped_bytes) == (total, total - cap)
    with rig.link() as link:
        # The last bytes of the head, and behind the gap the first ones of the ring.
        answer, data = link.call("log", job_id=job, step="command", offset=head - 10)
        assert (len(data), answer["gap_bytes"], answer["eof"]) == (10, 0, False)
        answer, data = link.call("log", job_id=job, step="command", offset=answer["next_offset"])
        assert (answer["offset"], answer["gap_bytes"]) == (total - MIB, total - MIB - head)
        answer, data = link.call("log", job_id=job, step="command", offset=total - 20)
        assert data.endswith(b"the last words")
        assert (answer["eof"], answer["ended"]) == (True, True)
        unit = piece.encode().decode("unicode_escape").encode("latin-1")
        if kind != "random":
            answer, data = link.call(
                "log", job_id=job, step="command", offset=7 * len(unit) * 1000, limit=len(unit) * 3
            )
            assert data in unit * 5


def test_the_last_lines_also_of_a_progress_bar(rig: Rig) -> None:
    code = "import sys; [sys.stdout.write('\\r%d%%' % n) for n in range(100000)]; sys.stdout.write('\\n')"
    job = rig.start("bar-run", (sys.executable, "-I", "-c", code))
    rig.ended(job)
    with rig.link() as link:
        answer, data = link.call("log", job_id=job, step="command", offset=None, tail_lines=2)
        assert data == b"99998%\r99999%\n"
        answer, data = link.call("log", job_id=job, step="command", offset=None, tail_lines=0)
        assert (data, answer["eof"]) == (b"", True)
        answer, data = link.call("log", job_id=job, step="command", offset=10**9)
        assert (data, answer["eof"], answer["offset"]) == (b"", True, answer["next_offset"])


def test_a_bar_of_50_mb_without_a_line_end_is_shown_by_its_last_state(rig: Rig) -> None:
    code = """import sys
for part in range(0, 2000000, 10000):
    sys.stdout.write("".join("\\r%7.3f%% step %07d/2000000" % (n / 2e4, n) for n in range(part, part + 10000)))
print()
"""
    pattern = {"step": {"pattern": r"step (\d+)/(\d+)"}}
    job = rig.start("long-bar-run", (sys.executable, "-I", "-c", code), progress=pattern)
    assert rig.ended(job, 60).progress == {"step": "1999999/2000000"}
    with rig.link() as link:
        answer, data = link.call("log", job_id=job, step="command", offset=None, tail_lines=1)
        assert data.strip() == b"100.000% step 1999999/2000000"
        answer, data = link.call("log", job_id=job, step="command", offset=None, tail_lines=100_000)
        assert len(data) <= names.REPLY_CAP_BYTES
        assert answer["next_offset"] == 2_000_000 * 30 + 1
        assert _most_memory(link.process.pid) < 60 * MIB


def _most_memory(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(text.partition("VmHWM:")[2].split()[0])


def test_the_end_of_a_log_of_20_gb_is_read_by_seeking(rig: Rig) -> None:
    """Another version may have kept more: its log says so itself."""
    job = rig.start("huge-run", "true")
    rig.ended(job)
    folder, size = rig.step(job), 20 * 1024 * MIB
    end = b"".join(b"line %09d\n" % number for number in range(100))
    caps = log_files.Caps(size, MIB)
    writer = log_files.LogWriter(str(folder), caps)
    with (folder / names.LOG).open("r+b") as log:
        log.truncate(size - len(end))
    writer.write(end, size - len(end), 0)
    writer.say(size, size, 0, done=True)
    with rig.link() as link:
        answer, data = link.call("log", job_id=job, step="command", offset=None, tail_lines=50)
        assert data == end[-50 * 15 :]
        assert answer["next_offset"] == size
        answer, data = link.call("log", job_id=job, step="command", offset=19 * 1024 * MIB)
        assert (answer["offset"], data) == (19 * 1024 * MIB, b"\0" * names.REPLY_CAP_BYTES)
        assert _most_memory(link.process.pid) < 60 * MIB


def test_a_python_program_is_seen_at_once_unless_its_spec_wants_buffers(rig: Rig) -> None:
    code = "import os, time\nprint('epoch 1')\nwhile not os.path.exists('go'): time.sleep(0.05)\nprint('epoch 2')"
    seen = rig.start("plain-run", (sys.executable, "-c", code))
    until(lambda: rig.log(seen) == b"epoch 1\n")
    unseen = rig.start("buffered-run", (sys.executable, "-c", code), variables={"PYTHONUNBUFFERED": ""})
    rig.running(unseen)
    assert rig.log(unseen) == b""
    for run in ("plain-run", "buffered-run"):
        until(lambda run=run: (rig.home / "work" / run).exists())
        (rig.home / "work" / run / "go").touch()
    for job in (seen, unseen):
        rig.ended(job)
        assert rig.log(job) == b"epoch 1\nepoch 2\n"


def test_a_first_moment_full_of_lines_is_followed_without_gap_over_reconnects(rig: Rig) -> None:
    job = rig.start("burst-run", lines(rig, 10_000))
    found, offset, ended = b"", 0, False
    while not ended:
        # A connection for a few slices, as on a train.
        with rig.link() as link:
            for _ in range(7):
                answer, data = link.call("log", job_id=job, step="command", offset=offset, limit=4000, wait_s=20)
                assert (answer["offset"], answer["gap_bytes"]) == (offset, 0)
                found, offset, ended = found + data, answer["next_offset"], answer["ended"] and answer["eof"]
    assert found == b"".join(b"%09d\n" % number for number in range(10_000))


def test_numbers_that_are_none_break_no_report(rig: Rig) -> None:
    patterns = {name: {"pattern": name + r"=(\S+)"} for name in ("loss", "lr", "norm", "step")}
    job = rig.start("nan-run", "echo 'step=NaN loss=nan lr=-inf norm=1e400'", progress=patterns)
    report = rig.ended(job)
    assert report.progress == {"step": "NaN", "loss": "nan", "lr": "-inf", "norm": "1e400"}
    facts = rig.record("nan-run", job) / names.FACTS
    until(facts.exists)
    for text in (json.dumps(to_json(rig.report(job)), allow_nan=False), facts.read_text()):
        json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_bytes_are_stored_as_they_are_and_any_offset_is_good(rig: Rig) -> None:
    text = "é漢😀\n".encode() * 20 + b"\xff\x00\xfe no line end"
    path = rig.home / "bytes"
    path.write_bytes(text)
    job = rig.start("bytes-run", ("/bin/cat", str(path)))
    rig.ended(job)
    with rig.link() as link:
        for offset in range(len(text) + 2):
            answer, data = link.call("log", job_id=job, step="command", offset=offset, limit=7)
            assert data == text[offset : offset + 7]
            assert answer["next_offset"] == min(offset, len(text)) + len(data)


def test_a_job_that_truncates_its_own_output_or_loses_its_log_goes_on(rig: Rig) -> None:
    job = rig.start("odd-run", 'echo one; echo two > /dev/stdout; rm -f "$LOGFILE"; echo three; exit 4')
    assert status_of(rig.ended(job)).code == 4
    assert rig.log(job) == b"one\ntwo\nthree\n"
    lost = rig.start("lost-run", f"echo one; sleep 0.2; rm {rig.root}/jobs/*/attempts/1/command/log; echo two; exit 5")
    assert status_of(rig.ended(lost)).code == 5


def test_a_follower_waits_and_is_told_the_end(rig: Rig) -> None:
    job = rig.start("follow-run", "while [ ! -e go ]; do sleep 0.05; done; echo went")
    with rig.link() as link:
        answer, data = link.call("log", job_id=job, step="command", offset=0, wait_s=0.2)
        assert (data, answer["eof"], answer["ended"]) == (b"", True, False)
        until(lambda: (rig.home / "work/follow-run").exists())
        (rig.home / "work/follow-run/go").touch()
        answer, data = link.call("log", job_id=job, step="command", offset=0, wait_s=20)
        assert data == b"went\n"
        answer, data = link.call("log", job_id=job, step="command", offset=5, wait_s=20)
        assert (data, answer["ended"]) == (b"", True)
        with pytest.raises(Refusal, match="no step nonsense"):
            link.call("log", job_id=job, step="nonsense", offset=0)


def test_a_follower_goes_on_where_it_was_and_asks_ahead(rig: Rig) -> None:
    caps = {"AICRUN_TEST_LOG_CAP": str(MIB), "AICRUN_TEST_LOG_TAIL": str(MIB // 4)}
    slow = "; while [ ! -e go ]; do sleep 0.05; done; echo went; exit 7"
    job = rig.start("ahead-run", lines(rig, 300_000) + slow, env=caps)
    with rig.link() as link:
        with pytest.raises(Refusal, match="no log was asked for"):
            link.call("log", go_on=True)
        answer, data = link.call("log", job_id=job, step="command", offset=0, wait_s=20)
        at, got, gaps = answer["next_offset"], len(data), answer["gap_bytes"]
        while at < 3_000_000:
            answer, data = link.call("log", go_on=True, limit=70_000, wait_s=20)
            # What follows from the answer before is not told.
            gap = answer.pop("gap_bytes", 0)
            at += gap
            assert answer.pop("offset", at) == at
            first = -at % 10
            assert data[first : first + 10] == b"%09d\n" % ((at + first) // 10)
            at, got, gaps = at + len(data), got + len(data), gaps + gap
            assert set(answer) <= {"eof", "dropped_bytes"}
        assert got + gaps == 3_000_000
        assert link.call("log", go_on=True, wait_s=0.2) == ({}, b"")
        (rig.home / "work/ahead-run/go").touch()
        answer, data = link.call("log", go_on=True, wait_s=20)
        # The ring is full: what comes takes the place of what was there.
        assert (list(answer), data) == (["dropped_bytes"], b"went\n")
        assert link.call("log", go_on=True, wait_s=20) == ({"ended": True}, b"")


def test_an_agent_whose_client_left_does_not_wait_for_the_log_to_grow(rig: Rig) -> None:
    job = rig.start("left-run", "sleep 600")
    with rig.link() as link:
        answer, _ = link.call("log", job_id=job, step="command", offset=0, wait_s=0.1)
        assert answer["step"] == "command"
        link.send("log", go_on=True, wait_s=60)
        began = time.monotonic()
    assert time.monotonic() - began < 30
    rig.call("stop", job_id=job, by="ana@laptop", grace_s=0)


def test_a_full_disk_drops_output_and_nothing_else(rig: Rig, small_disk: Path) -> None:
    command = f"{lines(rig, 2_000_000)}; while [ ! -e go ]; do sleep 0.05; done; echo after; exit 11"
    job = rig.start("full-run", command)
    filler = small_disk / "filler"
    until(lambda: os.statvfs(small_disk).f_bavail == 0)
    log = rig.step(job) / names.LOG
    (rig.home / "work/full-run/go").touch()
    report = rig.ended(job, 60)
    assert status_of(report).code == 11
    command_step = next(step for step in report.steps if step.step == "command")
    assert command_step.log_dropped_bytes > 10 * MIB
    assert log.stat().st_size < 4 * MIB
    assert log.read_bytes()[:20] == b"000000000\n000000001\n"
    assert not filler.exists()
    assert (rig.record("full-run", job) / names.END).exists()


def test_a_limit_on_the_size_of_files_drops_output_and_nothing_else(rig: Rig) -> None:
    """`ulimit -f` in a login: the kernel sends SIGXFSZ to whoever writes past it, and that is for the command alone."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE), 64 * 1024
    command = f"grep SigIgn /proc/self/status; {lines(rig, 200_000)}; head -c {2 * most} /dev/zero > big"
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        # The agent starts under it, and so does all that it starts.
        rig.call("jobs")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    job = rig.start("small-files-run", command)
    report = rig.ended(job, 60)
    # As a shell says it of a program that this signal ended: the command finds it as it is everywhere.
    assert status_of(report).code == 128 + signal.SIGXFSZ
    assert int(rig.log(job).split()[1], 16) >> (signal.SIGXFSZ - 1) & 1 == 0
    step = next(step for step in report.steps if step.step == "command")
    assert (rig.step(job) / names.LOG).stat().st_size == most
    assert step.log_dropped_bytes >= 2_000_000 - most


def test_a_log_that_cannot_even_be_made_never_blocks_the_run(rig: Rig) -> None:
    job = rig.start("no-log-run", "while [ ! -e go ]; do sleep 0.05; done; " + lines(rig, 300_000) + "; exit 13")
    main = rig.running(job)
    folder = rig.step(job)
    until((folder / names.LOG).exists)
    pump = rig.pump(job, main)
    # In place of its files stand folders: every open and every write fails, and the pipe must still be emptied.
    for name in (names.LOG, names.LOG_STATE):
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()
    os.kill(pump, signal.SIGKILL)
    (rig.home / "work/no-log-run/go").touch()
    assert status_of(rig.ended(job)).code == 13


def test_output_goes_on_behind_a_marker_when_there_is_room_again(rig: Rig, small_disk: Path) -> None:
    command = f"{lines(rig, 100)}; while [ ! -e one ]; do sleep 0.05; done; {lines(rig, 100_000)};"
    job = rig.start("room-run", command + " while [ ! -e two ]; do sleep 0.05; done; echo after; exit 12")
    until(lambda: rig.log(job).count(b"\n") == 100)
    filler = small_disk / "filler"
    fill(filler)
    (rig.home / "work/room-run/one").touch()
    until(lambda: rig.step(job).joinpath(names.LOG_STATE).read_bytes().split(b",")[4].strip() > b"0", at_most_s=30)
    filler.unlink()
    (rig.home / "work/room-run/two").touch()
    assert status_of(rig.ended(job)).code == 12
    head, told, rest = rig.log(job).partition(b"\n[aicrun: ")
    count, words, rest = rest.partition(b" bytes of output could not be recorded here, the disk refused them]\n")
    assert told
    assert words
    assert rest.endswith(b"after\n")
    assert len(head) + int(count) + len(rest) == 10 * 100_100 + len(b"after\n")


def test_a_start_on_a_full_disk_is_refused_and_leaves_no_half_job(rig: Rig, small_disk: Path) -> None:
    rig.call("jobs")
    filler = small_disk / "filler"
    fill(filler)
    with pytest.raises(Refusal) as caught:
        rig.start("no-room", "true")
    assert caught.value.token in ("state_unusable", "start_failed")
    assert str(small_disk) in str(caught.value), "a full disk is told without saying which"
    filler.unlink()
    found = rig.call("jobs")["reports"]
    assert all(status["decision"] == "no" for status in found)
    job = rig.start("no-room", "true")
    assert status_of(rig.ended(job)).status is Status.SUCCEEDED
