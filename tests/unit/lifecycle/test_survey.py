"""Asking many machines: one whose connection is cut in the middle is asked once more, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from aicrun.errors import HostUnreachable
from aicrun.hosts.agent_backend import AgentBackend
from aicrun.hosts.backend import Backend
from aicrun.hosts.local import LocalTransport
from aicrun.lifecycle.ledger import Ledger
from aicrun.lifecycle.session import Session
from aicrun.lifecycle.survey import ask_all
from aicrun.spec.model import Inventory, LocalReach, Machine
from aicrun.wire.jobs import Client


@pytest.mark.parametrize(
    ("faults", "asked", "answer"),
    [
        (["AIC-E511"], 2, "yes"),
        (["AIC-E511", "AIC-E511"], 2, None),
        (["AIC-E511", "AIC-E503"], 2, None),
        (["AIC-E503"], 1, None),
        ([], 1, "yes"),
    ],
)
def test_a_cut_question_is_asked_once_more_over_a_fresh_connection(
    tmp_path: Path, faults: list[str], asked: int, answer: str | None
) -> None:
    box = Machine("box", LocalReach())
    connections: list[AgentBackend] = []
    seen: list[Backend] = []

    def connect(machine: Machine) -> AgentBackend:
        connections.append(AgentBackend(LocalTransport(machine.name, {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})))
        return connections[-1]

    def ask(backend: Backend, machine: Machine) -> str:
        seen.append(backend)
        if len(seen) <= len(faults):
            raise HostUnreachable(faults[len(seen) - 1], f"fault {len(seen)} of {machine.name}")
        return "yes"

    ledger = Ledger(str(tmp_path / "ledger.db"))
    session = Session(Inventory((box,)), connect, ledger, Client("ana", "laptop", "0"))
    (heard,) = ask_all(session, (box,), ask)
    session.close()
    assert (heard.answer, len(seen)) == (answer, asked)
    assert seen == connections
    assert (heard.error is None) == (answer is not None)
    if heard.error is not None:
        assert heard.error.message == f"fault {asked} of box"
