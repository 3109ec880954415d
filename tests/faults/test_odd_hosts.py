"""Hosts that lack or forbid something: no ctypes, calls that a sandbox refuses, processes hidden, odd limits.

On each of them a run keeps its code, what it leaves behind is ended, a stop ends its tree, and a lost keeper is told.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_rig import Refusal, Rig, children, command_line, lives
from faults.test_stop import WILD, script, tree
from support import until

from aicrun.wire import names
from aicrun.wire.codec import to_json
from aicrun.wire.jobs import Limits
from aicrun.wire.status import Status, status_of

NOBODY = 65534
SECCOMP = Path(__file__).parent.parent / "odd_host/seccomp.c"


def wrapped(rig: Rig, words: str) -> None:
    """Every agent of the rig is started by `sh -c WORDS` with the interpreter and its arguments as "$@"."""
    path = rig.home.parent / "python-there"
    path.write_text(f'#!/bin/sh\nset -- "{rig.python}" "$@"\n{words}\n')
    path.chmod(0o755)
    rig.python = str(path)


def without_ctypes(rig: Rig) -> None:
    (rig.agent / "ctypes.py").write_text("raise ImportError('no ctypes here')\n")


def forbids(rig: Rig, number: int, what: str) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler for the sandbox")
    program = rig.home.parent / "seccomp"
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, SECCOMP], check=True)
    tried = subprocess.run([program, str(number), what, "/bin/true"], check=False)
    if tried.returncode:
        pytest.skip("no system call can be forbidden here")
    wrapped(rig, f'exec "{program}" {number} {what} "$@"')


def is_nobodys(rig: Rig, first: str = "mount -t proc -o hidepid=2 proc /proc") -> None:
    """Somebody without rights, by default one who sees their own processes alone, with the system's Python."""
    python = "/usr/bin/python3"
    words = f"unshare -m true && {python} -c 'import sys; sys.exit(sys.version_info < (3, 8))'"
    if os.geteuid() or subprocess.run(["sh", "-c", words], capture_output=True, check=False).returncode:
        pytest.skip("no account, no mount or no Python of the system for it")
    for path in (rig.home, *rig.home.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    rig.home.parent.chmod(0o755)
    rig.python = python
    inner = f'{first} && exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups "$@"'
    wrapped(rig, f"exec unshare -m sh -c '{inner}' sh \"$@\"")


def has_odd_limits(rig: Rig) -> None:
    odd = rig.home / "odd"
    odd.mkdir()
    (odd / "sitecustomize.py").write_text("raise SystemExit('somebody else')\n")
    rig.env.update(PYTHONPATH=str(odd), PYTHONHOME=str(odd), PYTHONSTARTUP=str(odd / "sitecustomize.py"))
    wrapped(rig, 'umask 0; ulimit -n 48; exec "$@" 2>&-')


ODD = {
    "no ctypes": without_ctypes,
    "calls unknown": lambda rig: forbids(rig, errno.ENOSYS, "all"),
    "calls not permitted": lambda rig: forbids(rig, errno.EPERM, "all"),
    "signals by descriptor not permitted": lambda rig: forbids(rig, errno.EPERM, "send"),
    "processes hidden": is_nobodys,
    "odd limits": has_odd_limits,
}


@pytest.fixture(params=list(ODD))
def odd(request: pytest.FixtureRequest) -> Iterator[Rig]:
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None, prefix="aicrun-test-"))
    rig = Rig(folder)
    # Nor are there control groups, which would end any tree.
    rig.env["AICRUN_TEST_CGROUPS"] = "-1"
    ODD[request.param](rig)
    yield rig
    rig.close()
    shutil.rmtree(folder)


def test_a_run_keeps_its_code_and_leaves_nothing_behind(odd: Rig) -> None:
    left = "import os,signal,time;signal.signal(15,signal.SIG_IGN);print('left',os.getpid(),flush=True);time.sleep(600)"
    command = f'setsid /usr/bin/env python3 -c "{left}" & sleep 1; (sleep 600 &); umask; exit 7'
    job = odd.start("odd-run", command, limits=Limits(grace_s=1))
    report = odd.ended(job, 60)
    assert status_of(report).code == 7
    words = odd.log(job).decode().split()
    assert words[0] == "left"
    assert words[2] == "0022"
    until(lambda: not lives(int(words[1])))
    assert any(event.event == "leftovers_killed" for event in report.events)
    open_ones = [path for path in odd.root.rglob("*") if stat.S_IMODE(path.lstat().st_mode) & 0o077]
    assert [path for path in open_ones if not path.is_symlink()] == []


def test_a_stop_ends_the_whole_tree(odd: Rig) -> None:
    # Those that leave their parent and their session keep the mark of the job.
    job = odd.start("wild-run", _python(odd, script(odd, WILD.replace("KEPT = {}", "KEPT = os.environ"))))
    pids = tree(odd, job, 4)
    odd.call("stop", job_id=job, by="ana@laptop", grace_s=1)
    assert status_of(odd.ended(job, 40)).status is Status.STOPPED
    until(lambda: not [pid for pid in pids if lives(pid)])


def test_without_its_keeper_it_goes_on_is_told_and_is_stopped(odd: Rig) -> None:
    job = odd.start("alone-run", "trap '' TERM; echo here; while true; do sleep 0.1; done")
    main, keeper = odd.running(job), odd.keeper(job)
    until(lambda: odd.log(job) == b"here\n")
    os.kill(keeper, signal.SIGKILL)
    until(lambda: not odd.report(job).supervised)
    standing = odd.standing(job)
    assert standing.status is Status.IN_PROGRESS
    assert lives(main)
    odd.call("stop", job_id=job, by="ana@laptop", grace_s=1)
    standing = status_of(odd.ended(job, 40))
    assert (standing.status, standing.reason) == (Status.UNKNOWN, "supervisor_lost")
    assert not lives(main)


@pytest.mark.parametrize("name", ["no ctypes", "calls not permitted", "signals by descriptor not permitted"])
def test_what_it_could_not_get_is_recorded(rig: Rig, name: str) -> None:
    asked = subprocess.run([rig.python, "-c", "import os; print(hasattr(os, 'pidfd_open'))"], capture_output=True)
    ODD[name](rig)
    job = rig.start("degraded-run", "true")
    launch = json.loads((rig.folder(job) / names.LAUNCH).read_text())
    assert launch["subreaper"] is (name == "signals by descriptor not permitted")
    assert launch["pidfd"] is (name == "no ctypes" and asked.stdout == b"True\n")
    rig.ended(job)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK])
def test_where_the_kernel_gives_no_lock_nothing_starts_on_any_path(rig: Rig, number: int) -> None:
    """Neither with a card nor without one, at once or in two steps; it is not gone on without the lock."""
    rig.env["AICRUN_TEST_LOCKS"] = str(rig.home / "locks")
    forbids(rig, number, "lock")
    card = ("GPU-11111111-2222-3333-4444-555555555555",)
    for confirm in (True, False):
        for cards in ((), card):
            request = rig.request("locked-run", f"echo began > {rig.home}/began", cards=cards)
            with pytest.raises(Refusal) as refusal:
                rig.call("reserve", request=to_json(request), confirm=confirm)
            assert (refusal.value.token, os.strerror(number) in str(refusal.value)) == ("no_lock", True), refusal.value
    assert rig.call("jobs")["reports"] == []
    assert not (rig.home / "began").exists()


def _python(rig: Rig, argv: tuple[str, ...]) -> tuple[str, ...]:
    """The same with an interpreter that any account may run."""
    Path(argv[2]).chmod(0o644)
    return ("/usr/bin/env", "python3", *argv[1:]) if shutil.which("python3", path="/usr/bin") else argv


def test_a_process_of_another_account_is_named_by_the_stop_that_cannot_end_it() -> None:
    folder = Path(tempfile.mkdtemp(prefix="aicrun-test-"))
    rig = Rig(folder)
    try:
        other = _becomes_root(folder)
        is_nobodys(rig, "true")
        rig.env.update(AICRUN_TEST_CGROUPS="-1", AICRUN_TEST_STUCK_S="2")
        job = rig.start("setuid-run", f"{other} & trap '' TERM; while true; do sleep 0.1; done")
        main = rig.running(job)
        stranger = until(lambda: next((pid for pid in children(main) if b"becomes-root" in command_line(pid)[0]), 0))
        rig.call("stop", job_id=job, by="ana@laptop", grace_s=1)
        standing = until(lambda: (seen := rig.standing(job)).status is Status.STOP_FAILED and seen, 30)
        assert str(stranger) in standing.why
        assert lives(stranger)
        # Root ends it: the stop is complete, and the keeper goes.
        os.kill(stranger, signal.SIGKILL)
        assert status_of(rig.ended(job, 30)).status is Status.STOPPED
    finally:
        rig.close()
        shutil.rmtree(folder)


@pytest.mark.parametrize("kept", [True, False], ids=["with its keeper", "without a keeper"])
def test_a_job_folder_that_may_not_be_read_is_never_a_run_that_never_started(rig: Rig, kept: bool) -> None:
    is_nobodys(rig, "true")
    job = rig.start("closed-run", "echo here; sleep 600")
    main, keeper = rig.running(job), rig.keeper(job)
    until(lambda: rig.log(job) == b"here\n")
    if not kept:
        os.kill(keeper, signal.SIGKILL)
        until(lambda: not lives(keeper))
    rig.folder(job).chmod(0)
    for _ in range(2):
        standing = rig.standing(job)
        assert standing.status in (Status.IN_PROGRESS, Status.UNKNOWN), standing
        with pytest.raises(Refusal) as refusal:
            rig.start("closed-run", "true")
        assert refusal.value.token == "state_unusable"
        assert str(rig.folder(job)) in str(refusal.value)
    assert [one["job_id"] for one in rig.call("jobs")["reports"]] == [job]
    rig.folder(job).chmod(0o700)
    assert rig.standing(job).status is Status.IN_PROGRESS
    rig.call("stop", job_id=job, by="ana@laptop", grace_s=1)
    until(lambda: not lives(main))
    rig.ended(job)


def _becomes_root(folder: Path) -> Path:
    """A program that belongs to root and becomes root, whoever starts it."""
    source, program = folder / "root.c", folder / "becomes-root"
    source.write_text("#include <unistd.h>\nint main(void) { return setuid(0) || setgid(0) || (sleep(600) && 0); }\n")
    if os.geteuid() or shutil.which("gcc") is None:
        pytest.skip("no root or no C compiler")
    subprocess.run(["gcc", "-o", program, source], check=True)
    program.chmod(0o4755)
    return program
