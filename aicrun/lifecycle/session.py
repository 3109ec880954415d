"""What every verb needs: the inventory, a way to reach each machine, the ledger, and who is asking.

It must not know how a machine is reached: `connect` is handed in by `api`.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from aicrun.errors import UsageError, Way
from aicrun.hosts.backend import Backend
from aicrun.lifecycle.events import Waiting
from aicrun.lifecycle.ledger import Ledger
from aicrun.lifecycle.secret_values import SecretValues
from aicrun.spec.model import Inventory, Machine
from aicrun.wire.fetch import Back, Brought
from aicrun.wire.jobs import Client

Connect = Callable[[Machine], Backend]
# What copies files of an upload here: what, under which lock, and who is told meanwhile that it goes on.
FetchBack = Callable[[Back, int, Callable[[], None]], Brought]

# First contact unpacks and compiles the agent; a warm one answers in well under a second.
DEADLINE_S = 30.0


@dataclass
class Session:
    """One command's connections; each machine is connected to at most once until `drop`; and its caller's secrets.

    `deadline_s` is how long one of many is waited for. `waiting` is told each time that a question to several takes
    longer than a moment, and None when it waits no more.
    `cache` is a folder for what can be found out again; empty: nothing is kept. `fetch_back` copies from uploads.
    """

    inventory: Inventory
    connect: Connect
    ledger: Ledger
    client: Client
    secrets: SecretValues = field(default_factory=SecretValues)
    deadline_s: float = DEADLINE_S
    waiting: Callable[[Waiting | None], None] = lambda _: None
    cache: str = ""
    fetch_back: FetchBack | None = None
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

    def leave(self, name: str) -> None:
        """Give up the connection to a machine that does not answer; nobody waits for its end."""
        backend = self._open.pop(name, None)
        if backend is not None:
            threading.Thread(target=backend.close, daemon=True).start()

    def asked(self, excepted: tuple[str, ...] = ()) -> tuple[Machine, ...]:
        """The machines that are neither down nor excepted, in inventory order."""
        return tuple(item for item in self.inventory.machines if not item.down and item.name not in excepted)

    def close(self) -> None:
        """End all connections; runs are not touched."""
        self.drop_all()
        self.ledger.close()

    def drop_all(self) -> None:
        """End all connections at the same time."""
        names = tuple(self._open)
        # Each waits for its agent to go: one after another that would take longer than the questions did.
        closing = [threading.Thread(target=self.drop, args=(name,), daemon=True) for name in names[1:]]
        for thread in closing:
            thread.start()
        for name in names[:1]:
            self.drop(name)
        for thread in closing:
            thread.join()
