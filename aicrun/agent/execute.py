"""One short command of a person on this machine, for as long as its connection lives; it leaves no record and no log.

Its output comes in slices while it runs, so that a lost connection loses no more than what was not asked for yet. At
the end of the connection, or of its time, its whole tree is ended; a run's keeper is never below it.
"""

import os
import select
import shutil
import signal
import subprocess
import time
from typing import Any, Dict, List, Optional, Tuple

from aicrun.agent import bodies
from aicrun.agent.environment import login_environment
from aicrun.agent.family import KEEPER_MARK
from aicrun.agent.home import Home
from aicrun.agent.process import below, carries, send_signal, table
from aicrun.agent.refused import Refused

Answer = Tuple[Dict[str, Any], bytes]

DEFAULT_S = 300
MOST_S = 3600
OUTPUT_CAP_BYTES = 1024 * 1024
WAIT_MOST_S = 10.0
GRACE_S = 2.0
TICK_S = 0.2
LINGER_S = 0.3
SHELLS = {"bash": ("-o", "pipefail", "-c"), "sh": ("-c",)}
_CHUNK = 64 * 1024

_running: List["_Command"] = []


def start(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{argv | command, shell, cwd, env, timeout_s}, payload = its stdin -> {pid}; one at a time on a connection.

    `timeout_s` is from 1 to `MOST_S`; `cwd` empty: the home. Raises `Refused` (invalid_request) for what cannot be
    started, and for a second one while the first runs.
    """
    if _running:
        raise Refused("invalid_request", "a command runs on this connection already", {"pid": str(_running[0].pid)})
    timeout_s = body.get("timeout_s", DEFAULT_S)
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not 1 <= timeout_s <= MOST_S:
        raise Refused("invalid_request", "timeout_s: 1 to %d seconds are expected" % MOST_S, {"field": "timeout_s"})
    env = login_environment(bodies.texts(body, "path"), os.environ)
    env.update({str(name): str(value) for name, value in dict(body.get("env") or {}).items()})
    cwd = os.path.expanduser(bodies.text(body, "cwd", "") or env["HOME"])
    _running.append(_Command(_argv(body, env["PATH"]), cwd, env, payload, float(timeout_s)))
    return {"pid": _running[0].pid}, b""


def more(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{wait_s} -> {out_bytes, ended, code, signal, timed_out, dropped_bytes, duration_s}, payload = stdout then stderr.

    Answers as soon as there is something to tell, at the latest after `wait_s` (at most `WAIT_MOST_S`). Once it says
    `ended`, the command is gone with its tree. Raises `Refused` (invalid_request) when none runs.
    """
    if not _running:
        raise Refused("invalid_request", "no command runs on this connection", {})
    command = _running[0]
    out, err = command.slice(bodies.seconds(body, "wait_s", WAIT_MOST_S, WAIT_MOST_S))
    told = dict(command.state(), out_bytes=len(out))
    if told["ended"]:
        end()
    return told, out + err


def end() -> None:
    """The connection is over: what it started ends with it."""
    for command in _running:
        command.end()
    _running.clear()


class _Command:
    def __init__(self, argv: List[str], cwd: str, env: Dict[str, str], stdin: bytes, timeout_s: float) -> None:
        # Where it is ignored the kernel forgets a child's code, and 0 would be made up.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._process = _started(argv, cwd, env)
        self.pid = self._process.pid
        self._input = memoryview(stdin)
        self._began = time.monotonic()
        self._deadline = self._began + timeout_s
        self._term_at: Optional[float] = None
        self._ended_at: Optional[float] = None
        self._left = OUTPUT_CAP_BYTES
        self._dropped = 0
        self._said: List[List[bytes]] = [[], []]
        self._open: Dict[int, int] = {}
        for number, stream in enumerate((self._process.stdout, self._process.stderr)):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                self._open[stream.fileno()] = number
        self._stdin = self._process.stdin
        if self._stdin is not None:
            os.set_blocking(self._stdin.fileno(), False)

    def slice(self, wait_s: float) -> Tuple[bytes, bytes]:
        """What it has said since the last slice: (stdout, stderr)."""
        until = time.monotonic() + wait_s
        while True:
            self._enforce()
            self._feed()
            self._take(max(0.0, min(until - time.monotonic(), TICK_S)))
            if self.is_over() or any(self._said) or time.monotonic() >= until:
                out, err = (b"".join(parts) for parts in self._said)
                self._said = [[], []]
                return out, err

    def is_over(self) -> bool:
        """True once it has ended; a child of it that keeps its streams open is not waited for."""
        if self._ended_at is None and self._process.poll() is not None:
            self._ended_at = time.monotonic()
        return self._ended_at is not None and (not self._open or time.monotonic() > self._ended_at + LINGER_S)

    def state(self) -> Dict[str, Any]:
        """How it stands; `code` and `signal` are the kernel's words, None before the end."""
        code = self._process.returncode if self.is_over() else None
        return {
            "ended": code is not None,
            "code": code if code is not None and code >= 0 else None,
            "signal": -code if code is not None and code < 0 else None,
            "timed_out": self._term_at is not None,
            "dropped_bytes": self._dropped,
            "duration_s": round((self._ended_at or time.monotonic()) - self._began, 3),
        }

    def end(self) -> None:
        """Its whole tree goes, and its streams with it."""
        self._signal_tree(signal.SIGKILL)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    continue
        self._process.wait()

    def _signal_tree(self, number: int) -> None:
        processes = table()
        members = below([self.pid], processes, lambda pid: carries(pid, KEEPER_MARK))
        # Its own group too: a child whose parent has gone is nobody's descendant any more.
        members |= {proc.pid for proc in processes.values() if proc.session == self.pid}
        for pid in members - {os.getpid()}:
            if pid in processes:
                try:
                    send_signal(pid, processes[pid].ticks, number)
                except PermissionError:
                    continue

    def _enforce(self) -> None:
        now = time.monotonic()
        if now < self._deadline or self._ended_at is not None:
            return
        if self._term_at is None:
            self._term_at = now
            self._signal_tree(signal.SIGTERM)
        elif now > self._term_at + GRACE_S:
            self._signal_tree(signal.SIGKILL)

    def _feed(self) -> None:
        if self._stdin is None:
            return
        try:
            while len(self._input):
                self._input = self._input[os.write(self._stdin.fileno(), self._input[:_CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            pass
        self._stdin.close()
        self._stdin = None

    def _take(self, wait_s: float) -> None:
        ready, _, _ = select.select(list(self._open), [], [], wait_s)
        for handle in ready:
            data = os.read(handle, _CHUNK)
            if not data:
                del self._open[handle]
                continue
            kept = data[: self._left]
            self._left -= len(kept)
            self._dropped += len(data) - len(kept)
            if kept:
                self._said[self._open[handle]].append(kept)


def _started(argv: List[str], cwd: str, env: Dict[str, str]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        words = getattr(error, "strerror", None) or str(error)
        where = cwd if getattr(error, "filename", "") == cwd else argv[0]
        raise Refused("invalid_request", "%s: %s" % (where, words), {"cwd": cwd, "program": argv[0]}) from error


def _argv(body: Dict[str, Any], path: str) -> List[str]:
    argv = bodies.texts(body, "argv")
    if argv:
        return list(argv)
    command, name = bodies.text(body, "command"), bodies.text(body, "shell", "bash")
    if name not in SHELLS:
        raise Refused("invalid_request", "shell: bash or sh is expected", {"field": "shell"})
    found = shutil.which(name, path=path) or shutil.which("sh", path=path) or "/bin/sh"
    flags = SHELLS[name] if os.path.basename(found) == name else SHELLS["sh"]
    return [found, *flags, command]
