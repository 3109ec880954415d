"""Stopping a run: the whole tree and nobody else, whatever the tree does, also when the keeper is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_rig import Refusal, Rig, lives, state_of
from support import until

from aicrun.wire import names
from aicrun.wire.codec import to_json
from aicrun.wire.jobs import Limits
from aicrun.wire.status import Status, status_of

WILD = '''
import os, signal, sys, time
DEAF = """import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("tree", os.getpid(), flush=True)
time.sleep(600)"""
KEPT = {}
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for number in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve(sys.executable, [sys.executable, "-I", "-c", DEAF], KEPT)
        os._exit(0)
print("tree", os.getpid(), flush=True)
time.sleep(600)
'''
POLITE = r"""
import os, signal, sys, time
# No print in a handler: it may come in the middle of the other one.
def leave(*_): os.write(1, b"saved\n"); sys.exit(int(sys.argv[1]))
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sleep", "600"])
    yield child
    assert child.poll() is None, "a stranger was ended"
    child.kill()
    child.wait()


def script(rig: Rig, text: str, *args: str) -> tuple[str, ...]:
    path = rig.home / "script.py"
    path.write_text(text)
    return (sys.executable, "-I", str(path), *args)


def tree(rig: Rig, job: str, count: int) -> list[int]:
    def found() -> list[int]:
        pids = [int(line.split()[1]) for line in rig.log(job).decode().splitlines() if line.startswith("tree ")]
        return pids if len(pids) == count else []

    return list(until(found))


def stop(rig: Rig, job: str, grace_s: int | None = None) -> None:
    rig.call("stop", job_id=job, by="ana@laptop", grace_s=grace_s)


def test_a_tree_that_ignores_and_escapes_is_ended_whole(rig: Rig, bystander: subprocess.Popen[bytes]) -> None:
    job = rig.start("wild-run", script(rig, WILD))
    pids = tree(rig, job, 4)
    stop(rig, job, 1)
    assert rig.standing(job).status is Status.STOP_IN_PROGRESS
    report = rig.ended(job)
    standing = status_of(report)
    assert (standing.status, standing.code, standing.signal) == (Status.STOPPED, None, signal.SIGKILL)
    assert not [pid for pid in pids if lives(pid)]
    assert [event.event for event in report.events if event.event in ("stop_asked", "stop_sent", "kill_sent")] == [
        "stop_asked",
        "stop_sent",
        "kill_sent",
    ]
    assert report.events[[event.event for event in report.events].index("stop_asked")].by == "ana@laptop"


def test_a_handler_runs_and_its_code_stands_beside_the_stop(rig: Rig) -> None:
    for code in (0, 3):
        job = rig.start(f"polite-{code}", script(rig, POLITE, str(code)))
        until(lambda name=job: b"ready" in rig.log(name))
        stop(rig, job)
        standing = status_of(rig.ended(job))
        assert (standing.status, standing.code) == (Status.STOPPED, code)
        assert rig.log(job).endswith(b"saved\n")


def test_the_signal_reaches_the_shells_child_too(rig: Rig) -> None:
    path = rig.home / "polite.py"
    path.write_text(POLITE)
    job = rig.start("shell-run", f'true && "{sys.executable}" -I "{path}" 0; echo after')
    until(lambda: b"ready" in rig.log(job))
    stop(rig, job, 5)
    rig.ended(job)
    assert b"saved" in rig.log(job)


def test_a_stopped_process_is_continued_and_ended(rig: Rig) -> None:
    job = rig.start("frozen-run", ("/bin/sleep", "600"))
    os.kill(rig.running(job), signal.SIGSTOP)
    stop(rig, job, 20)
    assert status_of(rig.ended(job, 10)).signal == signal.SIGTERM


def test_the_grace_is_the_runs_own_and_a_second_stop_shortens_it(rig: Rig) -> None:
    job = rig.start("grace-run", "trap '' TERM; echo ready; while true; do sleep 0.1; done", limits=Limits(grace_s=600))
    until(lambda: b"ready" in rig.log(job))
    stop(rig, job)
    until(lambda: rig.standing(job).status is Status.STOP_IN_PROGRESS)
    assert rig.report(job).stop.grace_s == 600  # type: ignore[union-attr]
    stop(rig, job)
    assert rig.report(job).stop.grace_s == 600  # type: ignore[union-attr]
    stop(rig, job, 0)
    began = time.monotonic()
    assert status_of(rig.ended(job)).signal == signal.SIGKILL
    assert time.monotonic() - began < 10


def test_a_finished_job_is_left_as_it_is(rig: Rig) -> None:
    job = rig.start("done-run", "exit 3")
    before = status_of(rig.ended(job))
    stop(rig, job)
    assert status_of(rig.report(job)) == before
    assert not (rig.folder(job) / names.STOP).exists()


def test_a_reservation_that_is_stopped_never_starts(rig: Rig) -> None:
    request = rig.request("reserved-run", "touch ran")
    rig.call("reserve", request=to_json(request), confirm=False)
    stop(rig, request.job_id)
    assert rig.standing(request.job_id).status is Status.REJECTED
    assert rig.call("confirm", job_id=request.job_id, by="ana")["decision"] == "no"
    assert not (rig.home / "work/reserved-run/ran").exists()


def test_stopped_before_its_command_it_is_stopped(rig: Rig) -> None:
    with rig.link(AICRUN_TEST_HOOK="W2:pause") as link:
        request = rig.request("early-run", "touch ran")
        link.call("reserve", request=to_json(request), confirm=True)
    keeper = rig.keeper(request.job_id)
    until(lambda: state_of(keeper) == "T", at_most_s=60)
    stop(rig, request.job_id)
    os.kill(keeper, signal.SIGCONT)
    standing = status_of(rig.ended(request.job_id))
    assert standing.status is Status.STOPPED
    assert not (rig.home / "work/early-run/ran").exists()


def test_an_unknown_id_is_not_found(rig: Rig) -> None:
    with pytest.raises(Refusal, match="not_found"):
        stop(rig, "0" * 16)
    with pytest.raises(Refusal, match="invalid_request"):
        stop(rig, "../../etc/passwd")


def test_without_a_keeper_the_agent_ends_the_tree_and_claims_no_code(
    rig: Rig, bystander: subprocess.Popen[bytes]
) -> None:
    job = rig.start("orphan-run", script(rig, WILD.replace("KEPT = {}", "KEPT = os.environ")))
    pids = tree(rig, job, 4)
    os.kill(rig.keeper(job), signal.SIGKILL)
    until(lambda: not rig.report(job).supervised)
    began = time.monotonic()
    stop(rig, job, 1)
    assert time.monotonic() - began < 5
    until(lambda: not [pid for pid in pids if lives(pid)])
    standing = status_of(rig.ended(job))
    assert (standing.status, standing.reason, standing.code) == (Status.UNKNOWN, "supervisor_lost", None)
    assert not (rig.step(job) / names.STEP_EXIT).exists()


def test_a_recycled_pid_is_never_signalled(rig: Rig, bystander: subprocess.Popen[bytes]) -> None:
    job = rig.start("recycled-run", ("/bin/sleep", "600"))
    main, keeper = rig.running(job), rig.keeper(job)
    for pid in (keeper, main):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not lives(main) and not lives(keeper))
    # The record now names a stranger: alive under the recorded pid and session, but with other ticks.
    path = rig.step(job) / names.STEP_START
    path.write_text(path.read_text().replace(f'"pid":{main}', f'"pid":{bystander.pid}'))
    path.write_text(path.read_text().replace(f'"session":{main}', f'"session":{os.getsid(bystander.pid)}'))
    assert status_of(rig.report(job)).status is Status.UNKNOWN
    stop(rig, job, 0)
    assert bystander.poll() is None


def test_a_recycled_keeper_pid_is_never_poked(rig: Rig) -> None:
    # SIGUSR1 would end a process that does not expect it.
    stranger = subprocess.Popen(["sleep", "600"])
    job = rig.start("poke-run", ("/bin/sleep", "600"))
    path = rig.folder(job) / names.LAUNCH
    path.write_text(path.read_text().replace(f'"pid":{rig.keeper(job)}', f'"pid":{stranger.pid}'))
    stop(rig, job, 1)
    assert status_of(rig.ended(job)).status is Status.STOPPED
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_stop_at_the_moment_of_a_natural_end_is_one_of_two_truths(rig: Rig) -> None:
    jobs = [rig.start(f"race-{number}", f"sleep 0.{number}; exit 4") for number in range(8)]
    with rig.link() as link:
        for job in jobs:
            link.call("stop", job_id=job, by="ana", grace_s=5)
    for job in jobs:
        standing = status_of(rig.ended(job))
        report = rig.report(job)
        command = next((step.exit for step in report.steps if step.step == "command"), None)
        if standing.status is Status.FAILED:
            assert (standing.code, command is not None and command.stop_sent) == (4, False)
        else:
            assert standing.status is Status.STOPPED


def test_a_run_started_inside_a_run_is_not_ended_with_it(rig: Rig) -> None:
    inner = rig.request("inner-run", "echo inner; sleep 600")
    path = Path(rig.home / "inner.py")
    path.write_text(
        f"""
import json, subprocess, sys, time
request = {to_json(inner)!r}
agent = subprocess.Popen([{rig.python!r}, "-I", "-S", {str(rig.agent / "boot.py")!r}, "serve"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for body in ({{"call": "hello", "marker": "a" * 32, "protocol": [1, 1]}},
             {{"call": "reserve", "request": request, "confirm": True}}):
    raw = json.dumps(body).encode()
    agent.stdin.write(b"%d 0\\n" % len(raw) + raw)
    agent.stdin.flush()
    head = agent.stdout.readline().split()
    print(agent.stdout.read(int(head[1])), flush=True)
time.sleep(600)
"""
    )
    outer = rig.start("outer-run", (sys.executable, "-I", str(path)), env=rig.env)
    until(lambda: rig.log(inner.job_id) == b"inner\n" if rig.step(inner.job_id).exists() else False)
    stop(rig, outer, 1)
    assert status_of(rig.ended(outer)).status is Status.STOPPED
    assert rig.standing(inner.job_id).status is Status.IN_PROGRESS
    stop(rig, inner.job_id, 1)
    assert status_of(rig.ended(inner.job_id)).status is Status.STOPPED
