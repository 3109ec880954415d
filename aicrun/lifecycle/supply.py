"""Gives machines what they lack for building an environment, before anything is started there.

It must not know what that is or where it comes from: `give` is handed in by `api`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from aicrun.hosts.backend import Backend
from aicrun.lifecycle.apply import STARTS
from aicrun.lifecycle.events import StepBegan, StepDone, Tell
from aicrun.lifecycle.session import Session
from aicrun.plan.model import Plan
from aicrun.wire.facts import HostReading
from aicrun.wire.tools import UV_VERSION

Give = Callable[[Backend, HostReading], bool]


def supply(session: Session, plan: Plan, give: Give, tell: Tell) -> None:
    """Push uv to each machine that must build an environment for a run of `plan` and has none.

    Raises what `give` raises (`TransferFailed` when uv cannot be fetched); nothing has been started then.
    """
    readings = {view.machine.name: view.reading for view in plan.fleet.machines}
    for item in plan.runs:
        reading, setup = readings.get(item.machine), item.draft.setup if item.draft is not None else None
        if item.sign not in STARTS or reading is None or reading.uv or setup is None or not setup.key:
            continue
        if setup.key not in reading.envs_ready:
            began, words = time.monotonic(), f"uv {UV_VERSION} to {item.machine}"
            tell(StepBegan(item.run, "push", words))
            was_pushed = give(session.backend(item.machine), reading)
            tell(StepDone(item.run, "push", words if was_pushed else f"{words}: all there", time.monotonic() - began))
