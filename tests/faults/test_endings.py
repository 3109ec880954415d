"""How a run ends is told exactly: the number the kernel gave, the signal it gave, or why there is neither."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from agent_rig import Rig, children, lives
from support import P38, until

from aicrun.wire.codec import to_json
from aicrun.wire.jobs import JobReport, Limits, StepExit
from aicrun.wire.status import Status, status_of


def command_exit(report: JobReport) -> StepExit:
    found = next(step.exit for step in report.steps if step.step == "command")
    assert found is not None
    return found


def test_exit_codes_are_recorded_as_they_are(rig: Rig) -> None:
    codes = (0, 1, 2, 7, 126, 127, 128, 137, 143, 255)
    jobs = {code: rig.start(f"code-{code}", f"exit {code}") for code in codes}
    for code, job in jobs.items():
        report = rig.ended(job)
        end = command_exit(report)
        assert (end.code, end.signal, end.spawn_error) == (code, None, "")
        assert status_of(report).status is (Status.SUCCEEDED if code == 0 else Status.FAILED)
        assert status_of(report).code == code


def test_deaths_by_signal_have_no_number(rig: Rig) -> None:
    names = ("HUP", "INT", "QUIT", "ABRT", "SEGV", "PIPE", "KILL", "TERM")
    jobs = {name: rig.start(f"signal-{name}", ("/bin/sh", "-c", f"kill -{name} $$")) for name in names}
    for name, job in jobs.items():
        report = rig.ended(job)
        end, number = command_exit(report), signal.Signals[f"SIG{name}"].value
        assert (end.code, end.signal) == (None, number)
        standing = status_of(report)
        assert (standing.status, standing.reason, standing.signal) == (Status.FAILED, "signal", number)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("/no/such/program",), "/no/such/program"),
        (("{home}/plain",), "Permission denied"),
        (("{home}/script",), "interpreter"),
    ],
    ids=["missing", "not executable", "bad interpreter"],
)
def test_a_program_that_cannot_run_is_said_in_words(rig: Rig, command: tuple[str, ...], words: str) -> None:
    script = rig.home / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    (rig.home / "plain").write_text("echo hello\n")
    job = rig.start("cannot-run", tuple(word.format(home=rig.home) for word in command))
    report = rig.ended(job)
    end = command_exit(report)
    assert (end.code, end.signal) == (None, None)
    assert words in end.spawn_error
    assert status_of(report).status is Status.FAILED


@pytest.mark.parametrize("cwd", ["missing", "file"])
def test_a_folder_that_cannot_be_entered_is_said_in_words(rig: Rig, cwd: str) -> None:
    workspace = rig.home / "work/cwd-run"
    workspace.mkdir(parents=True)
    (workspace / "file").write_text("no folder")
    report = rig.ended(rig.start("cwd-run", "touch ran", cwd=cwd))
    standing = status_of(report)
    assert (standing.status, standing.reason) == (Status.FAILED, "setup_failed")
    assert f"there is no folder {cwd} in {workspace}" in rig.log(report.job_id, "setup").decode()
    assert not list(workspace.rglob("ran"))


def test_a_failing_first_part_of_a_pipe_fails_the_run(rig: Rig) -> None:
    assert command_exit(rig.ended(rig.start("pipe-run", "sh -c 'exit 9' | cat"))).code == 9


@pytest.mark.parametrize(
    ("command", "code"),
    [("sh -c 'exit 9'; echo done", 9), ("sh -c 'exit 9' || true", 0), ("sh -c 'exit 9' &", 0), ("! true; false", 1)],
)
def test_the_code_is_the_shells_which_stops_at_its_first_failure(rig: Rig, command: str, code: int) -> None:
    job = rig.start("form-run", command)
    assert command_exit(rig.ended(job)).code == code
    assert b"done" not in rig.log(job)


def test_the_job_sees_a_clean_process_and_an_end_of_input(rig: Rig) -> None:
    code = (
        "import os,signal,sys;"
        "own=(2,9,13,19,25,32,33);"
        "bad=[s for s in signal.valid_signals() if s not in own and signal.getsignal(s) is signal.SIG_IGN];"
        "print(bad, signal.pthread_sigmask(signal.SIG_BLOCK, []), sys.stdin.read(), os.getsid(0)==os.getpid(), "
        "sorted(os.listdir('/proc/self/fd'))[:3], len(os.listdir('/proc/self/fd')), oct(os.umask(0)))"
    )
    agent = f"""
import os, signal, subprocess, sys
for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGPIPE, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1])
os.umask(0o077)
os.execv({rig.python!r}, [{rig.python!r}, "-I", "-S", {str(rig.agent / "boot.py")!r}, "serve"])
"""
    odd = rig.home / "odd-agent"
    odd.write_text(f"#!{rig.python}\n{agent}")
    odd.chmod(0o755)
    plain, rig.python = rig.python, str(odd)
    try:
        job = rig.start("clean-run", (plain, "-I", "-c", code))
        seven = rig.start("seven-run", "exit 7")
    finally:
        rig.python = plain
    assert command_exit(rig.ended(seven)).code == 7
    assert command_exit(rig.ended(job)).code == 0
    assert rig.log(job).decode().split("\n")[0] == "[] set()  True ['0', '1', '2'] 4 0o22"


def test_background_children_are_ended_and_the_code_stays(rig: Rig) -> None:
    left = "import os,signal,time;signal.signal(15,signal.SIG_IGN);print('left',os.getpid(),flush=True);time.sleep(600)"
    command = f'setsid {sys.executable} -c "{left}" & sleep 0.5; sleep 600 & exit 3'
    job = rig.start("leftover-run", command, limits=Limits(grace_s=1))
    report = rig.ended(job)
    assert command_exit(report).code == 3
    pid = int(rig.log(job).split()[1])
    until(lambda: not lives(pid))
    assert any(event.event == "leftovers_killed" for event in report.events)


def test_the_code_is_recorded_while_a_child_still_holds_the_output(rig: Rig) -> None:
    command = "sh -c 'trap \"\" TERM; echo $$; while true; do sleep 0.1; done' & sleep 0.3; exit 4"
    job = rig.start("holding-run", command, limits=Limits(grace_s=9))
    path = rig.step(job) / "exit.json"
    until(path.exists, at_most_s=8)
    assert '"code":4' in path.read_text()
    child = int(rig.log(job))
    assert lives(child)
    os.kill(child, signal.SIGKILL)


def test_max_duration_ends_a_command_and_says_so(rig: Rig) -> None:
    job = rig.start("long-run", "trap '' TERM; sleep 600", limits=Limits(grace_s=1, max_duration_s=1))
    report = rig.ended(job)
    end = command_exit(report)
    assert (end.code, end.signal, end.timed_out, end.stop_sent) == (None, signal.SIGKILL, True, False)
    assert status_of(report).reason == "timeout"


def test_a_command_that_leaves_in_peace_at_its_deadline_was_not_done(rig: Rig) -> None:
    peaceful = "trap 'exit 0' TERM; while true; do sleep 0.1; done"
    job = rig.start("peaceful-run", peaceful, limits=Limits(grace_s=20, max_duration_s=1))
    report = rig.ended(job)
    assert (command_exit(report).code, command_exit(report).timed_out) == (0, True)
    assert (status_of(report).status, status_of(report).reason) == (Status.FAILED, "timeout")


def test_a_started_run_outlives_its_agent_and_keeps_nothing_of_it_open(rig: Rig) -> None:
    with rig.link() as link:
        answer, _ = link.call("reserve", request=_plain(rig, "outlive-run", "sleep 2; echo done"), confirm=True)
        job = answer["report"]["job_id"]
        link.process.kill()
    keeper = rig.keeper(job)
    targets = {str(Path(f"/proc/{keeper}/fd/{name}").readlink()) for name in ("0", "1")}
    assert targets == {"/dev/null"}
    until(lambda: children(keeper))
    assert status_of(rig.ended(job)).status is Status.SUCCEEDED
    assert rig.log(job) == b"done\n"


def _plain(rig: Rig, run: str, command: str) -> dict[str, object]:
    found: dict[str, object] = to_json(rig.request(run, command))
    return found


@pytest.mark.skipif(P38 is None, reason="no Python 3.8 here")
def test_the_whole_of_it_runs_on_python_3_8(tmp_path: Path) -> None:
    host = Rig(tmp_path, str(P38))
    try:
        job = host.start("old-python", "echo one; exit 7")
        stopped = host.start("old-stop", "echo here; sleep 600")
        assert command_exit(host.ended(job)).code == 7
        assert host.log(job) == b"one\n"
        until(lambda: host.log(stopped) == b"here\n")
        host.call("stop", job_id=stopped, by="ana@laptop", grace_s=1)
        assert status_of(host.ended(stopped)).status is Status.STOPPED
        assert status_of(host.ended(stopped)).signal == signal.SIGTERM
    finally:
        host.close()


def test_an_old_python_is_told_in_one_line(tmp_path: Path) -> None:
    old = next(iter(sorted((Path.home() / ".pyenv/versions").glob("3.6.*/bin/python3.6"))), None)
    if old is None:
        pytest.skip("no Python 3.6 here")
    host = Rig(tmp_path)
    found = subprocess.run([old, host.agent / "boot.py", "serve"], capture_output=True, text=True, check=False)
    assert found.returncode == 69
    assert found.stdout == ""
    assert "Python 3.8 or newer is needed" in found.stderr
    assert "Traceback" not in found.stderr
