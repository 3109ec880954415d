"""Two machines and two clients for the counterexamples, and the client's file without one of its guards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from protocol.network import Client, Host, Network, without

from aicrun.lifecycle import start as start_file

START = "aicrun.lifecycle.start"
HIGHER_IS_WITHDRAWN = (
    "    if rival.rank > wanted.rank:\n"
    '        decision = _withdraw(wanted, machine, rival.job_id, f"by {request.job_id} of {wanted.session.by}")\n'
    '        return rival if decision == "go" else None\n'
)
guarded = pytest.mark.parametrize("guarded", [True, False], ids=["as it is", "without its guard"])


class World(Network):
    """Two machines, and two clients that see both."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, hosts: tuple[str, ...] = ("h0", "h1")) -> None:
        super().__init__(folder, hosts)
        self.monkeypatch = monkeypatch
        self.a, self.b = Client(self, "a"), Client(self, "b")

    def code(self, guarded: bool, *edits: tuple[str, str]) -> Any:
        """The client's file, or the one without its guard."""
        if guarded:
            return start_file
        made = without(START, *edits)
        for name, value in (("time", self.clock), ("ask_all", start_file.ask_all)):
            self.monkeypatch.setattr(made, name, value)
        return made

    def only(self) -> tuple[Host, str]:
        """The one record there is."""
        (found,) = self.records()
        return found
