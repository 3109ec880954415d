"""Children that run a function as another account and hand back what came of it. No product code may import it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

NOBODY = 65534


@dataclass
class Child:
    """A forked process that has said one JSON value; it lives until `let_go` or `kill`."""

    pid: int
    said: Any
    gate: int

    def let_go(self) -> int:
        """Let it end by itself: its wait status."""
        os.close(self.gate)
        return os.waitpid(self.pid, 0)[1]

    def kill(self) -> None:
        """SIGKILL, and reaped."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.gate)


def child(deed: Callable[[], Any], uid: int = 0, umask: int = 0o022) -> Child:
    """Fork; in the child become `uid`, do `deed`, say its result, and stay; what it raises is said as text."""
    read_end, write_end = os.pipe()
    gate_read, gate_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(gate_write)
            os.umask(umask)
            if uid:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
            try:
                said = deed()
            except Exception as error:  # noqa: BLE001  the edge of this process
                said = f"{type(error).__name__}: {error}"
            os.write(write_end, json.dumps(said).encode())
            os.close(write_end)
            os.read(gate_read, 1)
            code = 0
        finally:
            os._exit(code)
    os.close(write_end)
    os.close(gate_read)
    with open(read_end, "rb") as stream:
        raw = stream.read()
    return Child(pid, json.loads(raw) if raw else None, gate_write)


def told(deed: Callable[[], Any], uid: int = 0, umask: int = 0o022) -> Any:
    """What `deed` gave, in a child that has ended."""
    one = child(deed, uid, umask)
    one.let_go()
    return one.said
