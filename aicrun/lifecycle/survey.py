"""Asks all machines at once. A machine that does not answer is an answer, never a crash."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from aicrun.errors import AicrunError, HostUnreachable
from aicrun.hosts.backend import Backend, Question
from aicrun.lifecycle.session import Session
from aicrun.plan.ask import paths_to_ask
from aicrun.plan.model import Fleet, MachineView
from aicrun.spec.model import Machine, RunSpec
from aicrun.wire.facts import HostReading

# First contact unpacks and compiles the agent; a warm one answers in well under a second.
DEADLINE_S = 30.0
NOT_SUPPORTED = "AIC-E590"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Heard(Generic[T]):
    """What one machine answered: `answer`, or the error in its place."""

    machine: Machine
    answer: T | None = None
    error: AicrunError | None = None


def ask_all(
    session: Session,
    machines: tuple[Machine, ...],
    ask: Callable[[Backend, Machine], T],
    deadline_s: float = DEADLINE_S,
) -> tuple[Heard[T], ...]:
    """`ask` on every machine in parallel, in the order given; a late one is heard as `HostUnreachable`."""
    heard: dict[str, Heard[T]] = {}
    faults: list[BaseException] = []

    def one(machine: Machine) -> None:
        try:
            heard[machine.name] = Heard(machine, ask(session.backend(machine.name), machine))
        except AicrunError as error:
            heard[machine.name] = Heard(machine, error=error)
        except BaseException as fault:  # noqa: BLE001  # carried to the caller's thread, which raises it
            faults.append(fault)

    threads = [threading.Thread(target=one, args=(machine,), daemon=True) for machine in machines]
    end = time.monotonic() + deadline_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    if faults:
        raise faults[0]
    return tuple(heard.get(machine.name) or _late(machine, deadline_s) for machine in machines)


def _late(machine: Machine, deadline_s: float) -> Heard[T]:
    return Heard(machine, error=HostUnreachable("AIC-E591", f"{machine.name} gave no answer within {deadline_s:.0f}s"))


def survey(session: Session, specs: tuple[RunSpec, ...], excepted: tuple[str, ...] = (), cards: bool = True) -> Fleet:
    """All machines as they are now, in inventory order; `specs` say which runs and volumes to ask about.

    Raises what the only machine of an inventory answered when it refused: there is nothing else to plan with.
    """
    for name in excepted:
        session.machine(name)
    names = tuple(dict.fromkeys(spec.name for spec in specs))

    def ask(backend: Backend, machine: Machine) -> HostReading:
        paths = paths_to_ask(specs, machine) or (machine.data or "~",)
        return backend.survey(Question(names, paths, machine.data, cards))

    asked = session.asked(excepted)
    heard = {item.machine.name: item for item in ask_all(session, asked, ask)}
    alone = heard[asked[0].name].error if len(session.inventory.machines) == 1 and asked else None
    if alone is not None and not isinstance(alone, HostUnreachable):
        raise alone
    views = tuple(_view(machine, heard.get(machine.name), excepted) for machine in session.inventory.machines)
    return Fleet(views, session.inventory.file, session.inventory.digest, session.client.user)


def _view(machine: Machine, heard: Heard[HostReading] | None, excepted: tuple[str, ...]) -> MachineView:
    if machine.name in excepted:
        return MachineView(machine, "excepted", why="by --except")
    if machine.down or heard is None:
        return MachineView(machine, "down", why="down: true in machines.yaml")
    if heard.error is not None:
        state = "unsupported" if heard.error.code == NOT_SUPPORTED else "silent"
        return MachineView(machine, state, why=heard.error.message)
    return MachineView(machine, "answered", heard.answer)
