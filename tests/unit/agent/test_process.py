"""Processes by identity: a recycled pid is never hit, a zombie is dead, a stranger is no member of a job."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import until

from aicrun.agent import family, process
from aicrun.wire import names
from aicrun.wire.jobs import StepStart

JOB = secrets.token_hex(8)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sleep", "600"])
    yield child
    child.kill()
    child.wait()


def below(pid: int) -> list[int]:
    return sorted(process.below([pid], process.table()))


def ticks(pid: int) -> int:
    found = process.start_ticks(pid)
    assert found is not None
    return found


def test_a_process_is_its_pid_its_ticks_and_its_boot(sleeper: subprocess.Popen[bytes]) -> None:
    boot = process.boot_identity()
    assert process.alive(sleeper.pid, ticks(sleeper.pid), boot)
    assert not process.alive(sleeper.pid, ticks(sleeper.pid) + 1, boot)
    other = type(boot)("another boot", boot.pid_namespace, boot.init_ticks)
    assert not process.alive(sleeper.pid, ticks(sleeper.pid), other)
    container = type(boot)(boot.boot_id, boot.pid_namespace, boot.init_ticks + 1)
    assert not process.alive(sleeper.pid, ticks(sleeper.pid), container)


def test_the_tree_below_a_process_also_from_a_thread_and_without_what_is_cut() -> None:
    code = """import os, subprocess, sys, threading
def more():
    child = subprocess.Popen(["sleep", "600"])
    grandchild = subprocess.Popen(["sh", "-c", "sleep 600 & wait"], env={"CUT": "1"})
    print("ready", flush=True)
    child.wait()
threading.Thread(target=more).start()
"""
    root = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert root.stdout
        root.stdout.readline()
        until(lambda: len(below(root.pid)) == 3)
        assert process.descendants(root.pid, lambda pid: False) == set(below(root.pid))
        left = process.descendants(root.pid, lambda pid: process.carries(pid, "CUT=1"))
        assert len(left) == 1
        assert left < set(below(root.pid))
        assert process.descendants(1 << 22, lambda pid: False) == set()
    finally:
        for pid in (*below(root.pid), root.pid):
            os.kill(pid, signal.SIGKILL)
        root.communicate()


def test_a_recycled_pid_is_never_signalled(sleeper: subprocess.Popen[bytes]) -> None:
    assert not process.send_signal(sleeper.pid, ticks(sleeper.pid) + 1, signal.SIGKILL)
    assert not family.signal_group(sleeper.pid, ticks(sleeper.pid) + 1, signal.SIGKILL)
    assert sleeper.poll() is None
    assert process.send_signal(sleeper.pid, ticks(sleeper.pid), signal.SIGKILL)
    assert sleeper.wait() == -signal.SIGKILL


def test_without_a_process_descriptor_the_identity_still_counts(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(_pid: int) -> int:
        raise OSError("no such call")

    monkeypatch.setattr(process, "_open_pidfd", none)
    assert not process.send_signal(sleeper.pid, ticks(sleeper.pid) + 1, signal.SIGKILL)
    assert process.send_signal(sleeper.pid, ticks(sleeper.pid), signal.SIGTERM)
    assert sleeper.wait() == -signal.SIGTERM


def test_a_zombie_is_dead() -> None:
    child = subprocess.Popen(["true"])
    until(lambda: Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    assert process.start_ticks(child.pid) is None
    assert child.pid not in process.table()
    child.wait()


def test_a_name_with_blanks_and_parentheses_is_read_right(tmp_path: Path) -> None:
    odd = tmp_path / "a) S 1 1 (b"
    odd.write_bytes(Path("/bin/sleep").read_bytes())
    odd.chmod(0o755)
    child = subprocess.Popen([str(odd), "600"])
    try:
        found = until(lambda: process.look(child.pid))
        assert (found.parent, found.pid) == (os.getpid(), child.pid)
    finally:
        child.kill()
        child.wait()


def start_of(pid: int, ticks_of_it: int, session: int) -> StepStart:
    boot = process.boot_identity()
    return StepStart("command", 1, pid, ticks_of_it, session, boot.boot_id, boot.pid_namespace, boot.init_ticks, 0.0)


def test_of_a_keeperless_job_only_session_descent_and_mark_count(sleeper: subprocess.Popen[bytes]) -> None:
    code = "import subprocess, os, sys; subprocess.Popen(['sleep', '600'], start_new_session=True); os.wait()"
    main = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    marked = subprocess.Popen(["sleep", "600"], env={names.JOB_ID: JOB, "PATH": "/bin:/usr/bin"})
    try:
        escaped = until(lambda: below(main.pid))[0]
        orphans = family.Orphans(JOB, (start_of(main.pid, ticks(main.pid), main.pid),))
        assert {member.pid for member in orphans.members()} == {main.pid, escaped, marked.pid}
        strangers = family.Orphans("cd" * 8, (start_of(sleeper.pid, ticks(sleeper.pid) + 1, os.getsid(0)),))
        assert strangers.members() == []
    finally:
        for pid in (escaped, main.pid, marked.pid):
            os.kill(pid, signal.SIGKILL)
        main.wait()
        marked.wait()


def test_a_run_inside_a_run_is_nobodys_child() -> None:
    code = "import subprocess, os, sys; subprocess.Popen(['sleep', '600']); os.wait()"
    name, _, value = family.KEEPER_MARK.partition("=")
    inner = subprocess.Popen([sys.executable, "-c", code], env={name: value, "PATH": "/bin:/usr/bin"})
    plain = subprocess.Popen(["sleep", "600"])
    try:
        child = until(lambda: below(inner.pid))[0]
        found = {member.pid for member in family.Family(JOB, os.getpid()).members()}
        assert plain.pid in found
        assert not {inner.pid, child} & found
    finally:
        for pid in (child, inner.pid, plain.pid):
            os.kill(pid, signal.SIGKILL)
        inner.wait()
        plain.wait()
