"""A run's tree in a control group of its own: ended whole and at once, counted for memory, and never needed."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_rig import Rig, lives
from freezer import Freezer
from support import until

from aicrun.agent import cgroups
from aicrun.wire import names
from aicrun.wire.codec import to_json
from aicrun.wire.jobs import JobReport, StepExit
from aicrun.wire.status import Status, status_of

MEMORY = Path("/sys/fs/cgroup/memory")
# What the agent is left to work with: everything of this machine, version 1 alone, nothing.
GROUPS = [
    pytest.param("0", id="every kind of group"),
    pytest.param("1", id="version 1 alone"),
    pytest.param("-1", id="no groups"),
]
LIMIT_MIB = 96

# Each lives for a moment and leaves one child in a session of its own: whoever reads a list of processes comes late.
STORM = """
import os, signal, sys, time
beat_path, each_s, kind = sys.argv[1:]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if kind == "relay" or os.fork() == 0:
    if kind == "hidden":
        # Only an exec hides the environment that a process was started with.
        os.setsid()
        os.execve(sys.executable, [sys.executable, "-I", __file__, beat_path, each_s, "relay"], {})
    beat = os.open(beat_path, os.O_WRONLY | os.O_CREAT, 0o600)
    # However the test ends, this does.
    end = time.monotonic() + 60
    while time.monotonic() < end and os.fork() == 0:
        os.setsid()
        os.pwrite(beat, b"%20d" % time.monotonic_ns(), 0)
        time.sleep(float(each_s))
    os._exit(0)
print("storm", flush=True)
time.sleep(600)
"""


def need(kind: str) -> None:
    """Skip where no groups of this kind can be made: a container, an account without a delegated one, one version."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    lines = [line for line in lines if kind == "0" or not line.startswith("0::")]
    tree = cgroups.place("\n".join(lines), Path("/proc/self/mountinfo").read_text()).tree
    if kind != "-1" and not (tree and os.access(tree, os.W_OK)):
        pytest.skip("no groups of this kind can be made here")


class Storm:
    """A run whose tree ignores TERM, escapes into new sessions and forks on."""

    def __init__(self, rig: Rig, each_s: float, kind: str = "") -> None:
        script, self._beat = rig.home / "storm.py", rig.home / "beat"
        script.write_text(STORM)
        self.job = rig.start(
            "storm-run", (sys.executable, "-I", str(script), str(self._beat), str(each_s), kind or "plain")
        )
        until(lambda: b"storm" in rig.log(self.job))
        until(self.goes_on)

    def goes_on(self) -> bool:
        """True when some process of it has moved within the last half second."""
        moved = int(self._beat.read_text() or 0) if self._beat.exists() else 0
        return time.monotonic_ns() - moved < 500_000_000

    def is_over(self) -> bool:
        """True once none has moved for that long; every one of them moves at least each 20 ms."""
        until(lambda: not self.goes_on(), at_most_s=5)
        return True


@pytest.mark.parametrize("kind", GROUPS)
def test_a_tree_that_forks_on_and_on_is_ended_whole(rig: Rig, kind: str) -> None:
    need(kind)
    rig.env["AICRUN_TEST_CGROUPS"] = kind
    storm = Storm(rig, 0.0)
    rig.call("stop", job_id=storm.job, by="ana", grace_s=1)
    assert status_of(rig.ended(storm.job)).status is Status.STOPPED
    assert storm.is_over()
    until(lambda: not rig.groups(storm.job))


# A keeper's own questions while such a storm is below it: how often did it hear that nobody is there?
ASKS = """
import os, time
from aicrun.agent import children, process
children.prepare()
process.become_subreaper()
if os.fork() == 0:
    os.setsid()
    end = time.monotonic() + 2
    while time.monotonic() < end and os.fork() == 0:
        os.setsid()
    os._exit(0)
until, wrong, asked = time.monotonic() + 1.5, 0, 0
while time.monotonic() < until:
    asked += 1
    wrong += not children.left(frozenset())
while children.left(frozenset()):
    time.sleep(0.01)
print(wrong, asked > 100)
"""


def test_nobody_left_is_never_said_while_some_fork_on() -> None:
    asked = subprocess.run([sys.executable, "-c", ASKS], capture_output=True, text=True, timeout=60)
    assert (asked.stdout, asked.stderr) == ("0 True\n", "")


def killed_keeper(rig: Rig, job: str) -> None:
    os.kill(rig.keeper(job), signal.SIGKILL)
    until(lambda: not rig.report(job).supervised)


@pytest.mark.parametrize(("kind", "each_s"), [("0", 0.0), ("1", 0.0), ("-1", 0.02)])
def test_without_a_keeper_the_stopper_finds_what_hides(rig: Rig, kind: str, each_s: float) -> None:
    # With a group, what has emptied its environment and left its session is found; without one, what kept its mark.
    need(kind)
    rig.env["AICRUN_TEST_CGROUPS"] = kind
    storm = Storm(rig, each_s, "hidden" if kind != "-1" else "")
    killed_keeper(rig, storm.job)
    rig.call("stop", job_id=storm.job, by="ana", grace_s=1)
    standing = status_of(rig.ended(storm.job))
    assert (standing.status, standing.reason) == (Status.UNKNOWN, "supervisor_lost")
    assert storm.is_over()
    until(lambda: not rig.groups(storm.job))


def test_a_tree_that_hides_counts_as_living_while_its_group_does(rig: Rig) -> None:
    need("0")
    storm = Storm(rig, 0.02, "hidden")
    killed_keeper(rig, storm.job)
    main = rig.running(storm.job)
    os.kill(main, signal.SIGKILL)
    until(lambda: not lives(main))
    assert storm.goes_on()
    assert rig.standing(storm.job).status is Status.IN_PROGRESS
    assert rig.report(storm.job).supervised is False
    rig.call("stop", job_id=storm.job, by="ana", grace_s=0)
    assert status_of(rig.ended(storm.job)).status is Status.UNKNOWN


def test_groups_of_a_killed_keeper_go_with_the_next_look_or_sweep(rig: Rig) -> None:
    need("0")
    job = rig.start("left-run", ("/bin/sleep", "600"))
    pid = rig.running(job)
    groups = until(lambda: rig.groups(job))
    killed_keeper(rig, job)
    assert rig.call("gc", dry_run=True)["rows"] == []
    os.kill(pid, signal.SIGKILL)
    until(lambda: not lives(pid))
    rows = rig.call("gc", dry_run=True)["rows"]
    assert {(row["what"], row["path"]) for row in rows} == {("group", str(group)) for group in groups}
    assert rig.groups(job) == groups
    assert rig.call("gc")["rows"] == rows
    assert rig.groups(job) == []
    assert rig.standing(job).status is Status.UNKNOWN


def test_a_run_started_inside_a_run_stands_in_no_group_of_it(rig: Rig) -> None:
    need("0")
    outer = rig.request("outer-run", start_from_inside(rig, inner := rig.request("inner-run", ("/bin/sleep", "600"))))
    rig.call("reserve", request=to_json(outer), confirm=True)
    until(lambda: rig.step(inner.job_id).exists() and rig.running(inner.job_id))
    for pid in (rig.running(inner.job_id), rig.keeper(inner.job_id)):
        assert outer.job_id not in Path(f"/proc/{pid}/cgroup").read_text()
    assert outer.job_id in Path(f"/proc/{rig.running(outer.job_id)}/cgroup").read_text()
    rig.call("stop", job_id=outer.job_id, by="ana", grace_s=0)
    rig.ended(outer.job_id)
    assert rig.standing(inner.job_id).status is Status.IN_PROGRESS


def test_what_is_ours_is_not_counted_as_the_runs(rig: Rig) -> None:
    need("0")
    job = rig.start("counted-run", ("/bin/sleep", "600"))
    pid = rig.running(job)
    name = f"aicrun-{job}-1"
    keeper, pump = rig.keeper(job), rig.pump(job, pid)
    assert Path(f"/proc/{pid}/cgroup").read_text().count(name) >= 1
    assert [one for one in (keeper, pump) if name in Path(f"/proc/{one}/cgroup").read_text()] == []
    start = json.loads((rig.step(job) / names.STEP_START).read_text())
    assert [Path(start[key]).name for key in ("cgroup", "cgroup_memory")] == [name, name]
    assert start["cgroup_why"] == ""
    rig.call("stop", job_id=job, by="ana", grace_s=0)
    rig.ended(job)
    until(lambda: not rig.groups(job))


def start_from_inside(rig: Rig, inner: Any) -> tuple[str, ...]:
    path = rig.home / "inner.py"
    path.write_text(
        f"""
import json, subprocess, time
agent = subprocess.Popen([{rig.python!r}, "-I", "-S", {str(rig.agent / "boot.py")!r}, "serve"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={rig.env!r})
for body in ({{"call": "hello", "marker": "a" * 32, "protocol": [1, 1]}},
             {{"call": "reserve", "request": {to_json(inner)!r}, "confirm": True}}):
    raw = json.dumps(body).encode()
    agent.stdin.write(b"%d 0\\n" % len(raw) + raw)
    agent.stdin.flush()
    agent.stdout.read(int(agent.stdout.readline().split()[1]))
time.sleep(600)
"""
    )
    return (sys.executable, "-I", str(path))


@pytest.mark.parametrize("kept", [True, False], ids=["with its keeper", "without a keeper"])
def test_a_tree_that_cannot_be_ended_is_named_and_ends_when_it_can(rig: Rig, freezer: Freezer, kept: bool) -> None:
    rig.env["AICRUN_TEST_STUCK_S"] = "2"
    job = rig.start("stuck-run", ("/bin/sleep", "600"))
    pid = rig.running(job)
    until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
    freezer.freeze(pid)
    if not kept:
        killed_keeper(rig, job)
    began = time.monotonic()
    rig.call("stop", job_id=job, by="ana", grace_s=0)
    assert time.monotonic() - began < 5
    until(lambda: rig.standing(job).status is Status.STOP_FAILED)
    assert rig.report(job).leftover_pids == (pid,)
    assert str(pid) in rig.standing(job).why
    assert rig.standing(job) == rig.standing(job)
    rig.call("stop", job_id=job, by="ana", grace_s=0)
    freezer.thaw()
    standing = status_of(rig.ended(job))
    assert standing.status is (Status.STOPPED if kept else Status.UNKNOWN)
    assert not lives(pid)
    until(lambda: not rig.groups(job))


@pytest.fixture
def limited(rig: Rig) -> Iterator[Path]:
    """A group of version 1 with a limit, in which the rig's agent and so its keepers live."""
    if not os.access(MEMORY / "memory.limit_in_bytes", os.W_OK):
        pytest.skip("no memory controller of version 1 that we may use")
    own = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line)
    group = MEMORY / own.rpartition(":")[2].lstrip("/") / f"aicrun-test-{secrets.token_hex(4)}"
    group.mkdir()
    assert (group / "memory.use_hierarchy").read_text().strip() == "1"
    (group / "memory.limit_in_bytes").write_text(str(LIMIT_MIB << 20))
    yield group
    rig.close()
    until(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


EATER = f"import sys; print('eats', flush=True); kept = bytearray({LIMIT_MIB * 4} << 20); print('never')"
WORKER = f"""
import os, sys
child = os.fork()
if child == 0:
    kept = bytearray({LIMIT_MIB * 4} << 20)
    os._exit(0)
_, status = os.waitpid(child, 0)
print("worker:", status, flush=True)
sys.exit(int(sys.argv[1]))
"""


def run_limited(rig: Rig, limited: Path, code: str, *args: str, **fields: Any) -> JobReport:
    script = rig.home / "eater.py"
    script.write_text(code)
    request = rig.request("eater-run", (sys.executable, "-I", str(script), *args), **fields)
    with rig.link() as link:
        (limited / "cgroup.procs").write_text(str(link.process.pid))
        link.call("reserve", request=to_json(request), confirm=True)
    return rig.ended(request.job_id)


def command_exit(report: JobReport) -> StepExit:
    found = next(step.exit for step in report.steps if step.step == "command")
    assert found is not None
    return found


@pytest.mark.parametrize("kind", GROUPS[:2])
def test_a_command_that_was_killed_for_memory_is_told_so(rig: Rig, limited: Path, kind: str) -> None:
    rig.env["AICRUN_TEST_CGROUPS"] = kind
    report = run_limited(rig, limited, EATER)
    end, standing = command_exit(report), status_of(report)
    assert (end.code, end.signal, end.oom_kill, end.oom_suspected) == (None, signal.SIGKILL, True, False)
    assert (standing.status, standing.reason) == (Status.FAILED, "oom_kill")
    assert rig.log(report.job_id) == b"eats\n"
    until(lambda: not rig.groups(report.job_id))


def test_a_worker_that_was_killed_for_memory_is_a_suspicion_beside_the_code(rig: Rig, limited: Path) -> None:
    report = run_limited(rig, limited, WORKER, "1")
    end, standing = command_exit(report), status_of(report)
    assert (end.code, end.signal, end.oom_kill, end.oom_suspected) == (1, None, False, True)
    assert (standing.status, standing.reason, standing.code) == (Status.FAILED, "exit_code", 1)
    assert rig.log(report.job_id) == b"worker: 9\n"


def test_a_run_that_lives_on_without_its_worker_succeeded(rig: Rig, limited: Path) -> None:
    report = run_limited(rig, limited, WORKER, "0")
    assert status_of(report).status is Status.SUCCEEDED
    assert not command_exit(report).oom_suspected


def test_without_a_group_of_its_own_it_is_no_more_than_a_suspicion(rig: Rig, limited: Path) -> None:
    # Without any count there is not even that: 9 and 137 alone prove nothing.
    rig.env["AICRUN_TEST_CGROUPS"] = "-1"
    report = run_limited(rig, limited, EATER)
    end = command_exit(report)
    assert (end.signal, end.oom_kill, end.oom_suspected) == (signal.SIGKILL, False, False)
    assert (status_of(report).status, status_of(report).reason) == (Status.FAILED, "signal")


def test_a_kill_of_ours_is_never_told_as_out_of_memory(rig: Rig, limited: Path) -> None:
    # The worker is killed for memory, the command then ignores TERM until KILL: both are true, one is the end.
    code = WORKER.replace(
        "sys.exit(int(sys.argv[1]))", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
    )
    script = rig.home / "eater.py"
    script.write_text(code)
    request = rig.request("eater-run", (sys.executable, "-I", str(script), "0"))
    with rig.link() as link:
        (limited / "cgroup.procs").write_text(str(link.process.pid))
        link.call("reserve", request=to_json(request), confirm=True)
    until(lambda: b"worker: 9" in rig.log(request.job_id))
    rig.call("stop", job_id=request.job_id, by="ana", grace_s=1)
    report = rig.ended(request.job_id)
    end = command_exit(report)
    assert (end.signal, end.oom_kill) == (signal.SIGKILL, False)
    assert status_of(report).status is Status.STOPPED


def test_137_and_9_alone_are_no_claim(rig: Rig) -> None:
    for command in ("exit 137", "kill -9 $$"):
        end = command_exit(rig.ended(rig.start("plain-run" if "exit" in command else "killed-run", command)))
        assert (end.oom_kill, end.oom_suspected) == (False, False)
