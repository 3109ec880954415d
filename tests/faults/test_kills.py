"""What happens to a run when one, two or all of our processes are killed: it goes on, or its end is unknown."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from agent_rig import Rig, children, command_line, lives, state_of
from support import until

from aicrun.agent import process
from aicrun.agent.log_files import Caps
from aicrun.agent.pump import PIPE_BYTES
from aicrun.wire import names
from aicrun.wire.codec import to_json
from aicrun.wire.status import Status, status_of

NOISE = """import itertools, os, sys, time
for n in itertools.count():
    sys.stdout.write('line %09d of the run, some more text to fill it\\n' % n)
    if n % 1000 == 999:
        time.sleep(0.002)
        if os.path.exists('enough'):
            break
"""


def noisy(rig: Rig) -> str:
    """A command that writes numbered lines in small writes until a file `enough` stands in its folder."""
    path = rig.home / "noise.py"
    path.write_text(NOISE)
    return f'"{rig.python}" -u -I "{path}"; exit 5'


def all_lines(rig: Rig, job: str, least: int) -> None:
    """Each line stands in the log once, in order."""
    found = numbers(rig.log(job))
    assert len(found) >= least
    assert found == list(range(len(found)))


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def numbers(log: bytes) -> list[int]:
    return [int(line.split()[1]) for line in log.decode().splitlines()]


def test_a_pump_killed_twenty_times_loses_no_line(rig: Rig) -> None:
    job = rig.start("noisy-run", noisy(rig))
    main = rig.running(job)
    log = rig.step(job) / names.LOG
    until(log.exists)
    for _ in range(20):
        pump = rig.pump(job, main)
        before = log.stat().st_size
        until(lambda size=before: log.stat().st_size > size)
        kill(pump)
        until(lambda pid=pump: not lives(pid))
    (rig.home / "work/noisy-run/enough").touch()
    assert status_of(rig.ended(job, 60)).code == 5
    all_lines(rig, job, 20_000)


def test_a_pump_that_others_tell_to_end_goes_on(rig: Rig) -> None:
    job = rig.start("noisy-run", noisy(rig))
    main = rig.running(job)
    log, pump = rig.step(job) / names.LOG, rig.pump(job, main)
    for _ in range(3):
        os.kill(pump, signal.SIGTERM)
        before = log.stat().st_size
        # More than the pipe holds: it is written only while somebody reads there.
        until(lambda size=before: log.stat().st_size > size + 2 * PIPE_BYTES)
    assert rig.pump(job, main) == pump
    (rig.home / "work/noisy-run/enough").touch()
    assert status_of(rig.ended(job, 60)).code == 5
    all_lines(rig, job, 20_000)


def test_a_pump_that_stands_still_is_replaced(rig: Rig) -> None:
    job = rig.start("stalled-run", noisy(rig))
    main = rig.running(job)
    pump = rig.pump(job, main)
    os.kill(pump, signal.SIGSTOP)
    until(lambda: not lives(pump))
    (rig.home / "work/stalled-run/enough").touch()
    assert status_of(rig.ended(job, 60)).code == 5
    all_lines(rig, job, 20_000)


def test_a_pump_that_is_stopped_for_a_while_and_goes_on_loses_no_line(rig: Rig) -> None:
    job = rig.start("paused-run", noisy(rig))
    main = rig.running(job)
    pump = rig.pump(job, main)
    until((rig.step(job) / names.LOG).exists)
    os.kill(pump, signal.SIGSTOP)
    # The pipe is full: the run stands in its write, for less long than the keeper waits before it takes another pump.
    writer = int(until(lambda: children(main))[0])
    before = [-1]
    until(lambda: before.append(_written(writer)) or before[-1] == before[-2], every_s=0.2)
    os.kill(pump, signal.SIGCONT)
    until(lambda: _written(writer) > before[-1])
    (rig.home / "work/paused-run/enough").touch()
    assert lives(pump)
    assert status_of(rig.ended(job, 60)).code == 5
    all_lines(rig, job, 15_000)


def _written(pid: int) -> int:
    """How many bytes a process has written so far."""
    return int(Path(f"/proc/{pid}/io").read_text().partition("wchar: ")[2].split()[0])


def test_without_its_keeper_a_run_goes_on_and_then_nobody_knows_its_end(rig: Rig) -> None:
    job = rig.start("orphan-run", "while [ ! -e go ]; do sleep 0.05; done; echo last words; exit 3")
    rig.running(job)
    until(lambda: rig.standing(job).phase == "training")
    kill(rig.keeper(job))
    report = until(lambda: (lambda found: None if found.supervised else found)(rig.report(job)))
    standing = status_of(report)
    assert (standing.status, standing.phase) == (Status.IN_PROGRESS, "training")
    assert "not be known" in standing.why
    (rig.home / "work/orphan-run/go").touch()
    report = rig.ended(job)
    standing = status_of(report)
    assert (standing.status, standing.reason, standing.code) == (Status.UNKNOWN, "supervisor_lost", None)
    assert "pid" in standing.why
    assert rig.log(job) == b"last words\n"
    assert not (rig.step(job) / names.STEP_EXIT).exists()
    assert json.loads((rig.record("orphan-run", job) / names.END).read_text())["lost"] == "supervisor_lost"
    assert status_of(rig.report(job)) == standing


def test_keeper_pump_and_job_killed_is_unknown_for_ever(rig: Rig) -> None:
    job = rig.start("all-run", "echo begin; sleep 600")
    main = rig.running(job)
    until(lambda: rig.log(job) == b"begin\n")
    pump, keeper = rig.pump(job, main), rig.keeper(job)
    for pid in (keeper, pump, main):
        kill(pid)
    until(lambda: not any(lives(pid) for pid in (keeper, pump, main)))
    until(lambda: rig.standing(job).status is not Status.IN_PROGRESS)
    standing = rig.standing(job)
    assert (standing.status, standing.reason) == (Status.UNKNOWN, "supervisor_lost")
    assert rig.log(job) == b"begin\n"
    with rig.link() as link:
        answer, data = link.call("log", job_id=job, step="command", offset=0, wait_s=30)
        assert (answer["ended"], answer["eof"], data) == (True, True, b"begin\n")


def test_the_job_alone_killed_is_a_signal(rig: Rig) -> None:
    job = rig.start("main-run", ("/bin/sleep", "600"))
    kill(rig.running(job))
    standing = status_of(rig.ended(job))
    assert (standing.status, standing.reason, standing.signal) == (Status.FAILED, "signal", 9)


# Where keeper and pump are killed, and what may then be told: the W table of the supervision design.
AFTER = {
    "W1": (Status.REJECTED, None),
    "W2": (Status.REJECTED, None),
    "command.W3": (Status.REJECTED, None),
    "command.W4": (Status.REJECTED, None),
    "command.W5": (Status.UNKNOWN, None),
    "command.W6": (Status.UNKNOWN, None),
    "command.ended": (Status.UNKNOWN, None),
    "command.W7": (Status.FAILED, 6),
    "command.W8": (Status.FAILED, 6),
    "command.W9": (Status.FAILED, 6),
    "W10": (Status.FAILED, 6),
}


@pytest.mark.parametrize("place", list(AFTER))
def test_whatever_moment_keeper_and_pump_die_the_answer_is_true_and_stays(rig: Rig, place: str) -> None:
    request = rig.request("moment-run", "echo x >> ran; exit 6")
    with rig.link(AICRUN_TEST_HOOK=f"{place}:pause") as link:
        if place == "W1":
            link.call("reserve", request=to_json(request), confirm=False)
        else:
            link.call("reserve", request=to_json(request), confirm=True)
    job = request.job_id
    keeper = rig.keeper(job)
    until(lambda: state_of(keeper) == "T")
    # The keeper first: while it lives it would replace the pump.
    below = _tree(keeper)
    kill(keeper)
    for pid in below:
        if _is_pump(pid):
            kill(pid)
    report = rig.ended(job)
    standing = status_of(report)
    expected, code = AFTER[place]
    assert (standing.status, standing.code) == (expected, code)
    ran = rig.home / "work/moment-run/ran"
    assert ran.exists() == (place not in ("W1", "W2", "command.W3", "command.W4", "command.W5"))
    again = replace(status_of(rig.report(job)), why="")
    assert again == replace(standing, why="")
    if expected is Status.REJECTED:
        assert rig.ended(rig.start("moment-run", "exit 6")).run == "moment-run"
    else:
        busy = rig.call("reserve", request=to_json(rig.request("moment-run", "exit 6")), confirm=True)
        assert busy["answer"] == "busy"


def _tree(pid: int) -> list[int]:
    return sorted(process.below([pid], process.table()))


def _is_pump(pid: int) -> bool:
    """A forked, not executed child of the keeper carries the keeper's own command line; so does one at its gate."""
    try:
        return b"keeper" in command_line(pid) and os.getsid(pid) != pid
    except ProcessLookupError:
        return False


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_sampler_that_dies_or_hangs_changes_nothing(rig: Rig, how: signal.Signals) -> None:
    job = rig.start("unmeasured-run", "while [ ! -e go ]; do sleep 0.05; done; exit 9")
    rig.running(job)
    sampler = rig.sampler(job)
    os.kill(sampler, how)
    (rig.home / "work/unmeasured-run/go").touch()
    standing = status_of(rig.ended(job))
    assert (standing.status, standing.code) == (Status.FAILED, 9)
    until(lambda: not lives(rig.keeper(job)))
    # A process stuck in a driver cannot be ended, so nobody waits for it, and it holds nothing of the job.
    assert lives(sampler) == (how == signal.SIGSTOP)


def test_a_stopped_keeper_only_delays_the_truth(rig: Rig) -> None:
    job = rig.start("frozen-run", "sleep 0.5; exit 9")
    main, keeper = rig.running(job), rig.keeper(job)
    os.kill(keeper, signal.SIGSTOP)
    until(lambda: not lives(main))
    assert rig.standing(job).status is Status.IN_PROGRESS
    os.kill(keeper, signal.SIGCONT)
    assert status_of(rig.ended(job)).code == 9


def test_the_standard_caps_are_a_quarter_gibibyte() -> None:
    caps = Caps()
    assert caps.head_bytes + caps.ring_bytes == 256 * 1024 * 1024
    assert caps.ring_bytes == 1024 * 1024
