"""A job that is reached over ssh: from its request to its first line with where the time goes, and its log as it grows.

For `reach.py`; each side beside plain `ssh`, both in one alternating series. It must not be a test.
"""

from __future__ import annotations

import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from aicrun.hosts.agent_backend import AgentBackend
from aicrun.wire.jobs import Client, JobRequest

LINE_EVERY_S = 0.013
LINES = 100
_CHUNK_BYTES = 1 << 18
# Writes when it is told to: both sides are measured from there.
_WRITER = r"""
import os, sys, time
go, mib, count, every_s, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), 1
if len(sys.argv) > 5:
    out = os.open(sys.argv[5], os.O_WRONLY | os.O_APPEND)
os.write(out, b"ready\n")
while not os.path.exists(go):
    time.sleep(0.002)
if mib:
    words = b"step loss=0.123456789 lr=3.0e-4 tok/s=12345.6 some text to pad this line out to a hundred bytes xx\n"
    lines = b"".join(b"%08d " % number + words for number in range(10000))
    for _ in range(mib * 1048576 // len(lines)):
        left = memoryview(lines)
        while left:
            left = left[os.write(out, left):]
else:
    for _ in range(count):
        os.write(out, b"%.7f line\n" % time.time())
        time.sleep(every_s)
os.write(out, b"END\n")
"""


class Jobs:
    """Numbered jobs on one machine that is reached by `backend`; `home` is that account's, which lies here."""

    def __init__(self, backend: AgentBackend, home: Path) -> None:
        self._backend = backend
        self._home = home
        self._numbers = iter(range(1, 100_000))

    def start(self, command: str) -> int:
        """Its number, once it has started or stands in line."""
        number = next(self._numbers)
        self._backend.reserve(_request(self._home, number, command), confirm=True)
        return number

    def run(self) -> dict[str, float]:
        """One job from its request to its first line: the seconds of each part of the way."""
        mark, began = self._home / f"begun-{time.monotonic_ns()}", time.time()
        number = self.start(f"touch {mark}")
        told = time.time()
        until(mark.exists)
        ended = mark.stat().st_mtime
        until(lambda: self._found(number, "runs/*/{}/end.json") is not None)
        reserved = self._read(number, "runs/*/{}/record.json")["created_at"]
        ready = self._read(number, "jobs/{}/launch.json")["at"]
        go = self._read(number, "runs/*/{}/decision.json")["at"]
        setup = self._read(number, "jobs/{}/attempts/1/setup/start.json")["started_at"]
        is_set_up = self._read(number, "jobs/{}/attempts/1/setup/exit.json")["ended_at"]
        command = self._read(number, "jobs/{}/attempts/1/command/start.json")["started_at"]
        return {
            "request, checks, job folder": reserved - began,
            "record, keeper's start": ready - reserved,
            "decision": go - ready,
            "to the setup's gate": setup - go,
            "setup step": is_set_up - setup,
            "to the command's gate": command - is_set_up,
            "command to its first line": ended - command,
            "(answer to the client)": told - began,
        }

    def followed(self, go: Path, mib: int) -> Iterator[bytes]:
        """The log of a job that is ready, and writes `mib` MiB, or time-stamped lines, when `go` appears."""
        number = self.start(shlex.join(_writer(go, mib)))
        until(lambda: self._found(number, "jobs/{}/attempts/1/command/start.json") is not None)
        job_id = f"{number:016x}"
        parts = self._backend.follow(job_id, "command", 0)
        yield from (part.data for part in parts if part.data)

    def _found(self, number: int, place: str) -> Path | None:
        return next(self._home.glob(".local/state/aicrun/*/" + place.format(f"{number:016x}")), None)

    def _read(self, number: int, place: str) -> dict[str, float]:
        found = self._found(number, place)
        assert found is not None, place
        return dict(json.loads(found.read_text()))


def tailed(ssh: tuple[str, ...], folder: Path, go: Path, mib: int) -> Iterator[bytes]:
    """The same by `ssh tail -f` of a file."""
    log = folder / "tailed.log"
    log.write_bytes(b"")
    os.chmod(log, 0o644)
    writer = subprocess.Popen([*_writer(go, mib), str(log)])
    reader = subprocess.Popen([*ssh, f"tail -n +1 -f {log}"], stdout=subprocess.PIPE)
    assert reader.stdout is not None
    try:
        while data := os.read(reader.stdout.fileno(), _CHUNK_BYTES):
            yield data
    finally:
        reader.kill()
        reader.wait()
        writer.wait()
        log.unlink()


def throughput(parts: Iterator[bytes], go: Path) -> float:
    """MB/s from the writer's start to its last line here."""
    # Its first line is here: both ways stand, and nothing of a start is measured.
    next(parts)
    time.sleep(0.5)
    go.touch()
    began, size, end = time.perf_counter(), 0, b""
    for data in parts:
        size += len(data)
        end = (end + data)[-4:]
        if end == b"END\n":
            break
    took_s = time.perf_counter() - began
    _close(parts, go)
    return size / 1e6 / took_s


def latencies(parts: Iterator[bytes], go: Path) -> list[float]:
    """Seconds from the writing of each line to its coming here."""
    # Its first line is here: both ways stand, and nothing of a start is measured.
    next(parts)
    time.sleep(0.5)
    go.touch()
    found: list[float] = []
    rest = b""
    for data in parts:
        now = time.time()
        *lines, rest = (rest + data).split(b"\n")
        found += [now - float(line.split()[0]) for line in lines if line != b"END"]
        if b"END" in lines:
            break
    _close(parts, go)
    return found


def _close(parts: Iterator[bytes], go: Path) -> None:
    close: Callable[[], None] | None = getattr(parts, "close", None)
    if close is not None:
        close()
    go.unlink()


def follow_table(jobs: Jobs, ssh: tuple[str, ...], folder: Path, mib: int, rounds: int) -> None:
    """Measure both sides in turns and print."""
    go = folder / "go"
    ways: dict[str, Callable[[int], Iterator[bytes]]] = {
        "aicrun, over fabric": lambda size: jobs.followed(go, size),
        "ssh tail -f": lambda size: tailed(ssh, folder, go, size),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    lates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            rates[name].append(throughput(way(mib), go))
            lates[name] += latencies(way(0), go)
    peer = "ssh tail -f"
    print(f"\na log of {mib} MiB as it grows; {LINES} lines, one each {LINE_EVERY_S * 1000:.0f} ms")
    print("  (aim: at least 0.6 x MB/s, p99 at most 2 x)")
    for name in ways:
        rate, late = statistics.median(rates[name]), sorted(lates[name])
        p50, p99 = late[len(late) // 2], late[int(len(late) * 0.99)]
        than = sorted(lates[peer])
        print(
            f"  {name:34}{rate:10.1f} MB/s{rate / statistics.median(rates[peer]):8.2f} x    p50 {p50 * 1000:7.2f} ms  "
            f"p99 {p99 * 1000:7.2f} ms{p99 / than[int(len(than) * 0.99)]:8.2f} x"
        )


def split_table(jobs: Jobs, rounds: int) -> None:
    """Where the time between a request and a job's first line goes: medians of each part."""
    parts = [jobs.run() for _ in range(rounds)]
    print("\nwhere it goes, medians (each part ends with a record on the disk, by the host's clock)")
    for name in parts[0]:
        print(f"  {name:34}{statistics.median(one[name] for one in parts) * 1000:10.1f} ms")


def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds, at most 60 s."""
    deadline = time.perf_counter() + 60
    while not holds():
        if time.perf_counter() > deadline:
            raise SystemExit("a job did not come as far within 60 s")
        time.sleep(0.0005)


def _writer(go: Path, mib: int) -> tuple[str, ...]:
    path = go.with_name("writer.py")
    path.write_text(_WRITER)
    return (sys.executable, str(path), str(go), str(mib), str(LINES), str(LINE_EVERY_S))


def _request(home: Path, number: int, command: str) -> JobRequest:
    return JobRequest(
        job_id=f"{number:016x}",
        run=f"bench-{number}",
        run_id=f"{number:016x}",
        rank="0" * 16,
        digest="d" * 64,
        client=Client("bench", "bench", "0"),
        execution={"command": command},
        workspace=str(home / "work"),
        checkpoints=str(home / "work/checkpoints"),
        command=(command,),
        machine="box",
        max_jobs=200,
    )
