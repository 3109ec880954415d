"""Asks all machines at once. A machine that does not answer is an answer, never a crash."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from aicrun.errors import AicrunError, HostUnreachable
from aicrun.hosts.backend import Backend, Question
from aicrun.lifecycle.session import Session
from aicrun.plan.ask import paths_to_ask
from aicrun.plan.first_word import programs_to_ask
from aicrun.plan.model import Fleet, MachineView
from aicrun.plan.twins import counted_once
from aicrun.spec.model import LocalReach, Machine, Reached, RunSpec
from aicrun.wire.codec import WireError, from_json, to_json
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

    ways: dict[str, Reached | None] = {}

    def ask(backend: Backend, machine: Machine) -> HostReading:
        paths = paths_to_ask(specs, machine) or (machine.data or "~",)
        try:
            programs = programs_to_ask(specs, machine)
            return backend.survey(Question(names, paths, machine.data, cards, machine.path, programs))
        finally:
            # Also of one that gave no answer; a configuration that cannot be read was told by the survey.
            with contextlib.suppress(AicrunError):
                ways[machine.name] = backend.reached()

    asked = session.asked(excepted)
    heard = {item.machine.name: item for item in ask_all(session, asked, ask)}
    alone = heard[asked[0].name].error if len(session.inventory.machines) == 1 and asked else None
    if alone is not None and not isinstance(alone, HostUnreachable):
        raise alone
    _remember(session, heard)
    remembered = _remembered(session) if len(heard) > sum(item.answer is not None for item in heard.values()) else {}
    views = (_view(machine, heard.get(machine.name), excepted) for machine in session.inventory.machines)
    views = (replace(view, reached=ways.get(view.machine.name)) for view in views)
    known = counted_once(tuple(_with_memory(view, remembered.get(view.machine.name)) for view in views))
    return Fleet(known, session.inventory.file, session.inventory.digest, session.client.user)


def offline(session: Session, excepted: tuple[str, ...] = ()) -> Fleet:
    """All machines as this client saw them last; nobody is asked. One that was never seen is silent."""
    for name in excepted:
        session.machine(name)
    remembered = _remembered(session)
    views = []
    for machine in session.inventory.machines:
        last = remembered.get(machine.name)
        if machine.name in excepted or machine.down:
            views.append(_view(machine, None, excepted))
        elif last is None:
            views.append(MachineView(machine, "silent", why="never seen by this client"))
        else:
            views.append(MachineView(machine, "remembered", last[0], seen=last[0], seen_age_s=last[1]))
    return Fleet(
        counted_once(tuple(views)), session.inventory.file, session.inventory.digest, session.client.user, offline=True
    )


def _remember(session: Session, heard: dict[str, Heard[HostReading]]) -> None:
    far = [
        item for item in heard.values() if item.answer is not None and not isinstance(item.machine.reach, LocalReach)
    ]
    rows = {(item.machine.name, repr(item.machine.reach)): json.dumps(to_json(item.answer)) for item in far}
    if rows:
        session.ledger.remember(rows)


def _remembered(session: Session) -> dict[str, tuple[HostReading, float]]:
    """The last reading of each machine and its age; what another version wrote and nobody can read is left out."""
    found = {}
    kept = session.ledger.remembered()
    for machine in session.inventory.machines:
        text, age_s = kept.get((machine.name, repr(machine.reach)), ("", 0.0))
        try:
            found[machine.name] = (from_json(HostReading, json.loads(text)), age_s)
        except (ValueError, WireError):
            continue
    return found


def _with_memory(view: MachineView, last: tuple[HostReading, float] | None) -> MachineView:
    if view.state != "silent" or last is None:
        return view
    return replace(view, seen=last[0], seen_age_s=last[1])


def _view(machine: Machine, heard: Heard[HostReading] | None, excepted: tuple[str, ...]) -> MachineView:
    if machine.name in excepted:
        return MachineView(machine, "excepted", why="by --except")
    if machine.down or heard is None:
        return MachineView(machine, "down", why="down: true in machines.yaml")
    if heard.error is not None:
        state = "unsupported" if heard.error.code == NOT_SUPPORTED else "silent"
        return MachineView(machine, state, why=heard.error.message)
    return MachineView(machine, "answered", heard.answer)
