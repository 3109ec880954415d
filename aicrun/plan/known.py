"""What the survey found, looked up by name: machines, records of runs, facts measured earlier.

It must not judge anything; it is built once for a plan, so that a thousand runs do not each read the whole fleet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aicrun.plan.model import Fleet, MachineView
from aicrun.plan.twins import STATE
from aicrun.wire.facts import HostReading
from aicrun.wire.jobs import JobReport
from aicrun.wire.status import Standing, status_of

# What gives no reading and is no silence for it: left out by its owner or by this call, or another entry's machine.
NOT_ASKED = frozenset(("down", "excepted", STATE))


@dataclass(frozen=True, slots=True)
class Found:
    """A record of a run and the machine that holds it."""

    view: MachineView
    job: JobReport
    standing: Standing


@dataclass(frozen=True, slots=True)
class Known:
    """A fleet with its records by run name, its machines by name, and those that gave no answer.

    `unreadable` are (machine, record) of records that nobody can read. `facts` are measured ones by run name.
    """

    fleet: Fleet
    records: Mapping[str, tuple[Found, ...]]
    views: Mapping[str, MachineView]
    mute: tuple[MachineView, ...]
    unreadable: tuple[tuple[str, str], ...]
    facts: Mapping[str, tuple[Mapping[str, Any], ...]]

    def answered(self, name: str) -> tuple[MachineView, HostReading]:
        """The machine of that name with its reading; only for machines that answered."""
        view = self.views[name]
        if view.reading is None:
            raise LookupError(f"no reading of {name}")
        return view, view.reading

    def unreadable_of(self, run: str) -> tuple[tuple[str, str], ...]:
        """Records that cannot be read and may be of this run."""
        return tuple(item for item in self.unreadable if item[1].partition("/")[0] == run or "/" not in item[1])


def known_of(fleet: Fleet) -> Known:
    """`fleet`, ready to be looked up."""
    records: dict[str, list[Found]] = {}
    facts: dict[str, list[Mapping[str, Any]]] = {}
    unreadable = []
    for view in fleet.machines:
        if view.reading is None:
            continue
        for job in view.reading.jobs:
            records.setdefault(job.run, []).append(Found(view, job, status_of(job)))
        for item in view.reading.measured:
            facts.setdefault(str(item.get("run", "")), []).append(item)
        unreadable += [(view.machine.name, record) for record in view.reading.unreadable_records]
    return Known(
        fleet,
        {run: tuple(found) for run, found in records.items()},
        {view.machine.name: view for view in fleet.machines},
        tuple(view for view in fleet.machines if view.reading is None and view.state not in NOT_ASKED),
        tuple(unreadable),
        {run: tuple(found) for run, found in facts.items()},
    )
