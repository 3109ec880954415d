"""Asking many machines: one whose connection is cut in the middle is asked once more, and no other."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest
from support import until

from aicrun.errors import HostUnreachable
from aicrun.hosts.agent_backend import AgentBackend
from aicrun.hosts.backend import Backend
from aicrun.hosts.local import LocalTransport
from aicrun.lifecycle.ledger import Ledger
from aicrun.lifecycle.session import Session
from aicrun.lifecycle.survey import Asking, ask_all
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


def test_machines_answer_while_whoever_asked_does_something_else(tmp_path: Path) -> None:
    session = Session(
        Inventory((Machine("box", LocalReach()), Machine("attic", LocalReach()))),
        lambda machine: AgentBackend(LocalTransport(machine.name, {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})),
        Ledger(str(tmp_path / "ledger.db")),
        Client("ana", "laptop", "0"),
    )
    answered: list[str] = []
    asking = Asking(session, session.inventory.machines, lambda _, machine: answered.append(machine.name) or "yes")
    until(lambda: sorted(answered) == ["attic", "box"])
    assert [(heard.machine.name, heard.answer) for heard in asking.answers()] == [("box", "yes"), ("attic", "yes")]
    session.close()


def test_a_question_that_nobody_wants_answered_any_more_is_not_asked_again(tmp_path: Path) -> None:
    begun, go_on = Event(), Event()
    asked: list[str] = []

    def ask(_: Backend, machine: Machine) -> str:
        asked.append(machine.name)
        begun.set()
        go_on.wait(60)
        raise HostUnreachable("AIC-E511", "cut")

    session = Session(
        Inventory((Machine("box", LocalReach()),)),
        lambda machine: AgentBackend(LocalTransport(machine.name, {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})),
        Ledger(str(tmp_path / "ledger.db")),
        Client("ana", "laptop", "0"),
    )
    asking = Asking(session, session.inventory.machines, ask)
    assert begun.wait(60)
    asking.leave()
    go_on.set()
    (heard,) = asking.answers()
    assert heard.error is not None
    assert asked == ["box"]
    session.close()
