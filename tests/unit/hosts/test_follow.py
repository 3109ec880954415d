"""Following a log that is far ahead: every byte once and at its offset, also where it jumps to its end."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import until

from aicrun.agent.log_files import Caps, LogWriter
from aicrun.hosts.agent_backend import AgentBackend
from aicrun.hosts.local import LocalTransport
from aicrun.wire.jobs import Client, JobRequest

MIB = 1024 * 1024


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def backend(home: Path) -> Iterator[AgentBackend]:
    found = AgentBackend(LocalTransport("here", {"HOME": str(home), "PATH": "/usr/bin:/bin"}))
    yield found
    found.close()


def ended(backend: AgentBackend, home: Path) -> tuple[str, Path]:
    """A job that has ended: its id, and the folder of its command."""
    request = JobRequest(
        job_id=secrets.token_hex(8),
        run="a-run",
        run_id="b" * 16,
        rank="0" * 16,
        digest="d" * 64,
        client=Client("ana", "laptop", "0"),
        execution={"command": "true"},
        workspace=str(home / "work"),
        checkpoints=str(home / "work/checkpoints"),
        command=("true",),
        machine="here",
    )
    backend.reserve(request, confirm=True)
    until(lambda: any(home.glob(".local/state/aicrun/*/runs/a-run/*/end.json")), at_most_s=60)
    return request.job_id, next(home.glob(".local/state/aicrun/*/jobs/*/attempts/1/command"))


@pytest.mark.parametrize(
    ("size", "head", "ring"),
    [
        (7 * MIB + 5, 16 * MIB, MIB),
        (6 * MIB, 16 * MIB, MIB),
        (7 * MIB, 2 * MIB, MIB),
        (7 * MIB, 2 * MIB + 100_000, MIB + 77),
        (2 * MIB + 9, 2 * MIB, MIB),
    ],
)
def test_a_backlog_comes_whole_and_in_order(backend: AgentBackend, home: Path, size: int, head: int, ring: int) -> None:
    job_id, folder = ended(backend, home)
    written = b"".join(b"%09d\n" % number for number in range(size // 10 + 1))[:size]
    log = LogWriter(str(folder), Caps(head, ring))
    for at in range(0, size, 100_000):
        log.write(written[at : at + 100_000], at, 0)
    log.say(size, size, 0, done=True)

    at = got = gaps = 0
    for piece in backend.follow(job_id, "command", 0):
        assert piece.offset == at + piece.gap_bytes
        assert piece.data == written[piece.offset : piece.offset + len(piece.data)]
        at, got, gaps = piece.next_offset, got + len(piece.data), gaps + piece.gap_bytes
    assert (at, got + gaps) == (size, size)
    assert gaps == max(0, size - head - ring)
