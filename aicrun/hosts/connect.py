"""The only list of ways to reach a machine: from the type of its `reach` to who runs jobs there."""

from __future__ import annotations

import sys

from aicrun.errors import HostUnreachable, Way
from aicrun.hosts.agent_backend import AgentBackend
from aicrun.hosts.backend import Backend
from aicrun.hosts.local import LocalTransport
from aicrun.spec.model import LocalReach, Machine


def connect(machine: Machine) -> Backend:
    """The backend of `machine`, not connected yet.

    Raises `HostUnreachable`: AIC-E590 for ways that are not supported yet, AIC-E514 where this machine runs no Linux.
    """
    if not isinstance(machine.reach, LocalReach):
        way = type(machine.reach).__name__.removesuffix("Reach").lower()
        raise HostUnreachable(
            "AIC-E590",
            f"{machine.name} is reached by {way}, which is not supported yet; only this machine is (local: true)",
            ways=(Way("leave it out", f"aicrun plan run.yaml --except {machine.name}"),),
        )
    if not sys.platform.startswith("linux"):
        raise HostUnreachable("AIC-E514", f"{machine.name} is this machine, which runs {sys.platform}; runs need Linux")
    return AgentBackend(LocalTransport(machine.name))
