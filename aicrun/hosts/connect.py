"""The only list of ways to reach a machine: from the type of its `reach` to who runs jobs there."""

from __future__ import annotations

import sys

from aicrun.errors import HostUnreachable, Way
from aicrun.hosts.agent_backend import AgentBackend
from aicrun.hosts.backend import Backend
from aicrun.hosts.carriers import SshTransport
from aicrun.hosts.local import LocalTransport
from aicrun.hosts.ssh_route import Target, target_of
from aicrun.spec.model import LocalReach, Machine, SshReach


def connect(machine: Machine) -> Backend:
    """The backend of `machine`, not connected yet.

    Raises `HostUnreachable`: AIC-E590 for ways that are not supported yet, AIC-E514 where this machine runs no Linux.
    """
    if isinstance(machine.reach, SshReach):
        return AgentBackend(SshTransport(machine.name, _target(machine.name, machine.reach)))
    if not isinstance(machine.reach, LocalReach):
        way = type(machine.reach).__name__.removesuffix("Reach").lower()
        raise HostUnreachable(
            "AIC-E590",
            f"{machine.name} is reached by {way}, which is not supported yet",
            ways=(Way("leave it out", f"aicrun plan run.yaml --except {machine.name}"),),
        )
    if not sys.platform.startswith("linux"):
        raise HostUnreachable("AIC-E514", f"{machine.name} is this machine, which runs {sys.platform}; runs need Linux")
    return AgentBackend(LocalTransport(machine.name))


def _target(name: str, reach: SshReach) -> Target:
    try:
        return target_of(reach.target)
    except ValueError as error:
        raise HostUnreachable("AIC-E509", f"{name}: {error}") from error
