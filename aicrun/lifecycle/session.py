"""What every verb needs: the inventory, a way to reach each machine, the ledger, and who is asking.

It must not know how a machine is reached: `connect` is handed in by `api`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field

from aicrun.errors import UsageError, Way
from aicrun.hosts.backend import Backend
from aicrun.lifecycle.ledger import Ledger
from aicrun.lifecycle.secret_values import SecretValues
from aicrun.spec.model import Inventory, Machine
from aicrun.wire.jobs import Client

Connect = Callable[[Machine], Backend]


@dataclass
class Session:
    """One command's connections, each machine connected to at most once until `drop`; and its caller's secrets."""

    inventory: Inventory
    connect: Connect
    ledger: Ledger
    client: Client
    secrets: SecretValues = field(default_factory=SecretValues)
    _open: dict[str, Backend] = field(default_factory=dict)

    @property
    def by(self) -> str:
        """Who asks, as the audit trail shows it."""
        return f"{self.client.user}@{self.client.host}"

    def machine(self, name: str) -> Machine:
        """The entry of that name; raises `UsageError` with the nearest name."""
        names = [machine.name for machine in self.inventory.machines]
        if name in names:
            return self.inventory.machines[names.index(name)]
        near = difflib.get_close_matches(name, names, 1)
        known = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        raise UsageError(
            "AIC-E002",
            f"no machine is named {name}",
            facts=(("known", known), ("from", self.inventory.file or "no machines.yaml: this machine only")),
            ways=(Way(f"did you mean {near[0]}?"),) if near else (),
        )

    def backend(self, name: str) -> Backend:
        """The connection to a machine; raises `HostUnreachable` when there is none to be had."""
        if name not in self._open:
            self._open[name] = self.connect(self.machine(name))
        return self._open[name]

    def drop(self, name: str) -> None:
        """End the connection to a machine after a fault, so that the next use opens a new one."""
        backend = self._open.pop(name, None)
        if backend is not None:
            backend.close()

    def asked(self, excepted: tuple[str, ...] = ()) -> tuple[Machine, ...]:
        """The machines that are neither down nor excepted, in inventory order."""
        return tuple(item for item in self.inventory.machines if not item.down and item.name not in excepted)

    def close(self) -> None:
        """End all connections; runs are not touched."""
        for name in tuple(self._open):
            self.drop(name)
        self.ledger.close()
