"""The cards of this machine as `nvidia-smi` tells a person: what the agent's inventory is compared with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PROGRAM = Path(__file__).with_name("programs") / "allocate.py"
_FIELDS = "index,uuid,name,memory.total,driver_version"


@dataclass(frozen=True)
class Row:
    """One card; `busy` when a compute process is on it."""

    index: int
    uuid: str
    model: str
    total_mib: int | None
    driver: str
    busy: bool = False


def rows(cards: str, apps: str) -> tuple[Row, ...]:
    """The rows of both answers; a size that is not told is None."""
    taken = {line.split(",")[0].strip() for line in apps.splitlines() if line.strip()}
    found = []
    for line in cards.splitlines():
        index, uuid, model, total, driver = (part.strip() for part in line.split(","))
        found.append(Row(int(index), uuid, model, int(total) if total.isdigit() else None, driver, uuid in taken))
    return tuple(found)


@cache
def listed() -> tuple[tuple[Row, ...], str]:
    """(cards, why there are none)."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return (), "no card here: there is no nvidia-smi"
    cards = _said(tool, f"--query-gpu={_FIELDS}")
    if cards.returncode:
        return (), f"no card here: {(cards.stdout + cards.stderr).strip().splitlines()[0]}"
    return rows(cards.stdout, _said(tool, "--query-compute-apps=gpu_uuid,pid").stdout), ""


def idle(count: int = 1) -> tuple[Row, ...]:
    """So many cards that nobody computes on now, the last first; fewer where there are not as many."""
    listed.cache_clear()
    return tuple(reversed([row for row in listed()[0] if not row.busy]))[:count]


def allocate(mib: int, seconds: float) -> tuple[str, ...]:
    """The command line that takes memory on device 0."""
    return (sys.executable, str(PROGRAM), str(mib), str(seconds))


def environment() -> dict[str, str]:
    """What a process needs to find the driver's libraries here."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "AICRUN_TEST_LOCKS") if name in os.environ}


def _said(tool: str, question: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tool, question, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=60, check=False
    )
