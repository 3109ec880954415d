"""Entries of an inventory that are one machine with one account: told, and counted once.

It goes by what hosts say of themselves, never by names or addresses: two machines that were made from one image have
one host id, and are told apart by their boots. It must not take two accounts of one machine for one.
"""

from __future__ import annotations

from dataclasses import replace

from aicrun.plan.model import MachineView
from aicrun.wire.facts import HostReading

STATE = "twin"


def counted_once(views: tuple[MachineView, ...]) -> tuple[MachineView, ...]:
    """The views, where each entry that is an earlier one's machine and account gave its reading to that one."""
    first: dict[tuple[object, ...], str] = {}
    found = []
    for view in views:
        twin = view.machine.name if view.reading is None else first.setdefault(_self(view.reading), view.machine.name)
        if twin == view.machine.name:
            found.append(view)
        else:
            found.append(replace(view, state=STATE, reading=None, seen=None, why=f"{twin} under another name"))
    return tuple(found)


def _self(reading: HostReading) -> tuple[object, ...]:
    boot = reading.boot
    # A container made from the image of another one has its machine id, on one kernel also its boot id.
    kernel = (boot.boot_id, boot.pid_namespace, boot.init_ticks)
    return (reading.host_id, *kernel, reading.uid, reading.state_root)
