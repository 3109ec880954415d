"""Forks the two processes of a step: its pump, and its program behind a gate. It must not wait for either.

The program cannot run before its identity is on disk: the child stands at the gate until a byte comes, and leaves
unexecuted when the keeper dies first.
"""

import json
import os
import signal
import sys
import time
from typing import Callable, NoReturn, Optional, Tuple

from aicrun.agent import cgroups, children, handles, pump
from aicrun.agent.process import look
from aicrun.agent.programs import Program
from aicrun.wire import lean

# Raised for the job so that the kernel's out-of-memory choice falls on it before its keeper (conmon does the same).
OOM_SCORE_UP = 300
OOM_SCORE_KEEPER_DOWN = 500
NEVER_RAN = 127


@lean.dataclass(frozen=True)
class Gated:
    """A child at its gate: `gate` opens it, `errors` tells why an exec failed (end of file: it did not).

    `errors` begins with one line: empty when it has entered its control group, else why not.
    """

    pid: int
    ticks: int
    gate: int
    errors: int

    def outside(self) -> str:
        """Wait until it has tried to enter its control group: "" when it is there, else why not."""
        raw = b""
        while not raw.endswith(b"\n"):
            byte = os.read(self.errors, 1)
            if not byte:
                return "its process ended before it was moved into a group"
            raw += byte
        return raw.decode("utf-8", "surrogateescape").strip()

    def open(self) -> None:
        """Let it run. Nobody waits for the exec: a folder on a hung disk holds up the child alone."""
        try:
            os.write(self.gate, b"g")
        except OSError:
            # It died at the gate; how is told by whoever waits for it.
            pass
        os.close(self.gate)

    def failure(self) -> str:
        """Once it has ended: "" when the program was executed, else what failed in words. Closes the pipe."""
        raw = b""
        while True:
            part = os.read(self.errors, 4096)
            if not part:
                break
            raw += part
        os.close(self.errors)
        return _words(raw)

    def abandon(self) -> None:
        """Close the gate without opening it: the child leaves unexecuted."""
        os.close(self.gate)
        os.close(self.errors)


def protect_keeper() -> int:
    """Make the keeper a worse choice for the kernel's out-of-memory killer; the score its jobs start from.

    Only root may lower a score; elsewhere nothing changes.
    """
    try:
        with open("/proc/self/oom_score_adj", encoding="ascii") as stream:
            before = int(stream.read())
    except (OSError, ValueError):
        return 0
    _write_oom_score(max(-1000, before - OOM_SCORE_KEEPER_DOWN))
    return before


def fork_pump(pipe: int, sink: pump.Sink) -> int:
    """A pump process for the pipe; its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os._exit(pump.run(pipe, sink))
    except OSError:
        os._exit(1)
    finally:
        # Whatever else happened: this process must never run the keeper's code behind the fork.
        os._exit(2)


def fork_usher() -> None:
    """A process that has the kernel open its control groups and leaves; whoever reaps orphans reaps it.

    The first process that enters any group waits for all processors of the host, those soon after it do not: a job's
    command comes after this one. Where it cannot be had the command waits itself.
    """
    try:
        if os.fork():
            return
    except OSError:
        return
    try:
        # The keeper's lock must not outlive the keeper here.
        handles.close_all_but(())
        cgroups.knock()
    finally:
        os._exit(0)


def fork_gated(program: Program, write_end: int, oom_score: int, held: Tuple[int, ...], group: cgroups.Group) -> Gated:
    """A child that will execute `program` once its gate is opened; raises `OSError` when no process can be had.

    It inherits the descriptors `held`: locks that live as long as it does. It enters `group` by itself, for the kernel
    makes whoever asks for that wait: `Gated.outside` tells what came of it.
    """
    gate_read, gate_write = os.pipe()
    error_read, error_write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            _child(_Child(program, write_end, oom_score, gate_read, error_write, held, group))
        finally:
            os._exit(NEVER_RAN)
    os.close(gate_read)
    os.close(error_write)
    return Gated(pid, _ticks(pid), gate_write, error_read)


@lean.dataclass(frozen=True)
class _Child:
    program: Program
    write_end: int
    oom_score: int
    gate_read: int
    error_write: int
    held: Tuple[int, ...]
    group: cgroups.Group


def _child(child: _Child) -> NoReturn:
    stage, program = "prepare", child.program
    try:
        os.setsid()
        children.default_signals()
        # Ours is private; what a run makes is its account's, as after a login.
        os.umask(0o022)
        _write_oom_score(min(1000, child.oom_score + OOM_SCORE_UP))
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(child.write_end, 1)
        os.dup2(child.write_end, 2)
        # With all else goes our copy of the gate's other end: with it the keeper's death would never be seen here.
        handles.close_all_but({child.gate_read, child.error_write, *child.held})
        entered = cgroups.enter(child.group, os.getpid())
        outside = "" if entered == child.group else entered.why.replace("\n", " ")
        os.write(child.error_write, (outside + "\n").encode("utf-8", "surrogateescape"))
        if os.read(child.gate_read, 1) != b"g":
            os._exit(NEVER_RAN)
        os.close(child.gate_read)
        for handle in child.held:
            os.set_inheritable(handle, True)
        stage = "cwd"
        os.chdir(program.cwd)
        stage = "exec"
        if program.here is not None:
            _run_here(program.here)
        os.execve(program.argv[0], list(program.argv), program.env)  # noqa: S606  no shell is the point
    except (OSError, ValueError) as error:
        message = getattr(error, "strerror", None) or str(error)
        told = {"stage": stage, "errno": getattr(error, "errno", 0), "message": message}
        told["what"] = program.cwd if stage == "cwd" else program.argv[0]
        os.write(child.error_write, json.dumps(told).encode("utf-8"))
    os._exit(NEVER_RAN)


def _run_here(deed: Callable[[], Optional[int]]) -> None:
    """Do it in this process and leave with its exit code; returns when it gave none."""
    # As in an interpreter of its own: a write past the login's limit says so. What it executes finds the default.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    # Those of the keeper were made for other files, and in the language of its login.
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    try:
        code = deed()
    except Exception as error:  # noqa: BLE001  the edge of this process
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if code is not None:
        os._exit(code)


def _words(raw: bytes) -> str:
    if not raw:
        return ""
    try:
        told = json.loads(raw.decode("utf-8"))
        stage, what, message = str(told["stage"]), str(told["what"]), str(told["message"])
    except (ValueError, KeyError, TypeError):
        return "the program could not be started"
    if stage == "cwd":
        return "cannot enter the folder %s: %s" % (what, message)
    if stage == "exec" and told.get("errno") == 2 and os.path.exists(what):
        return "cannot run %s: the interpreter in its first line is missing" % what
    return "cannot run %s: %s" % (what, message)


def _ticks(pid: int) -> int:
    deadline = time.monotonic() + 5
    while True:
        proc = look(pid)
        if proc is not None:
            return proc.ticks
        if time.monotonic() > deadline:
            raise OSError("process %d does not show in /proc" % pid)
        time.sleep(0.001)


def _write_oom_score(score: int) -> None:
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as stream:
            stream.write(str(score))
    except OSError:
        # Not permitted to lower it, or no such file: only the order of an out-of-memory kill is lost.
        return
