"""What tests share: waiting, a person's environment, finding processes. No product code may import it."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
P38 = next((path for path in (Path.home() / ".pyenv/versions").glob("3.8.*/bin/python3.8")), None)


def until(holds: Callable[[], Any], at_most_s: float = 20.0, every_s: float = 0.02) -> Any:
    """The first true value of `holds()`; fails when `at_most_s` passed without one."""
    deadline = time.monotonic() + at_most_s
    while True:
        value = holds()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"did not come to hold within {at_most_s} s")
        time.sleep(every_s)


def processes_with(mark: str) -> list[int]:
    """Pids of living processes whose environment holds `mark` (zombies do not count)."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            environment = Path(f"/proc/{entry}/environ").read_bytes()
            state = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if mark.encode() in environment and state not in "ZX":
            found.append(int(entry))
    return found


def end_processes_with(mark: str) -> None:
    """Kill every process whose environment holds `mark`, until several looks in a row find none.

    One look is not enough: a process that is just being executed shows no environment.
    """
    empty = 0
    for _ in range(500):
        pids = processes_with(mark)
        empty = 0 if pids else empty + 1
        if empty == 4:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    raise AssertionError(f"these processes cannot be ended: {processes_with(mark)}")


def remove_groups_since(began: float) -> None:
    """Remove the control groups of jobs that were made since (by the wall clock) and in which nothing lives."""
    for found in glob.iglob("/sys/fs/cgroup/**/aicrun-*", recursive=True):
        path = Path(found)
        if re.fullmatch(r"aicrun-[0-9a-f]{16}-[0-9]+", path.name):
            with contextlib.suppress(OSError):
                if path.stat().st_ctime >= began:
                    path.rmdir()


class Person:
    """Somebody with a home of their own, who types aicrun commands."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.mark = f"AICRUN_TEST_MARK={uuid.uuid4().hex}"
        name, _, value = self.mark.partition("=")
        keep = ("PATH", "LANG", "TMPDIR", "PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_CACHE_DIR", "SSL_CERT_FILE")
        keep += ("SSL_CERT_DIR", "http_proxy", "https_proxy", "no_proxy")
        self.env = {key: os.environ[key] for key in keep if key in os.environ}
        self.env |= {
            "HOME": str(home),
            "USER": "ana",
            "XDG_STATE_HOME": str(home / ".local/state"),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "NO_COLOR": "1",
            "COLUMNS": "80",
            "LC_ALL": "C.UTF-8",
            name: value,
        }

    def run(self, *args: str, cwd: Path | None = None, stdin: str | None = None, timeout_s: float = 60) -> Any:
        """`aicrun ARGS` to its end: the completed process, with text outputs."""
        return subprocess.run(
            [sys.executable, "-m", "aicrun", *args],
            cwd=cwd or self.home,
            env=dict(self.env, PYTHONPATH=str(REPOSITORY)),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
