"""Processes that SIGKILL does not end, as with a driver that hangs: frozen in a control group of version 1."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from agent_rig import state_of
from support import until

TOP = Path("/sys/fs/cgroup/freezer")


def can_freeze() -> bool:
    """True where a freezer of version 1 is that we may use; version 2 lets a frozen process be killed."""
    return os.access(TOP / "cgroup.procs", os.W_OK)


class Freezer:
    """A group of its own; `close` lets everything in it go on and end."""

    def __init__(self) -> None:
        self._group = TOP / f"aicrun-test-{secrets.token_hex(4)}"
        self._group.mkdir()

    def freeze(self, pid: int) -> None:
        """Put a process in, and wait until it can neither run nor be ended."""
        (self._group / "cgroup.procs").write_text(str(pid))
        (self._group / "freezer.state").write_text("FROZEN")
        until(lambda: state_of(pid) == "D")

    def thaw(self) -> None:
        """Let it go on."""
        (self._group / "freezer.state").write_text("THAWED")

    def close(self) -> None:
        """Raises `AssertionError` when something in it does not end."""
        self.thaw()
        until(lambda: not (self._group / "cgroup.procs").read_text())
        self._group.rmdir()
