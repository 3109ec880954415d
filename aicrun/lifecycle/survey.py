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
from aicrun.lifecycle.events import Waiting
from aicrun.lifecycle.session import Session
from aicrun.plan.ask import interpreters_to_ask, paths_to_ask, wheels_to_ask
from aicrun.plan.first_word import programs_to_ask
from aicrun.plan.inputs import fetchers_to_ask, inputs_to_ask
from aicrun.plan.model import Fleet, MachineView
from aicrun.plan.twins import counted_once
from aicrun.spec.model import LocalReach, Machine, Reached, RunSpec
from aicrun.wire.codec import WireError, from_json, to_json
from aicrun.wire.facts import HostReading

# A second of silence asks for a word; what changes several times a second is read by nobody.
TOLD_AFTER_S = 1.0
TOLD_EACH_S = 0.25
NOT_SUPPORTED = "AIC-E590"
# A connection that stood and ended in the middle of a question.
CUT = "AIC-E511"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Heard(Generic[T]):
    """What one machine answered: `answer`, or the error in its place."""

    machine: Machine
    answer: T | None = None
    error: AicrunError | None = None


def ask_all(
    session: Session, machines: tuple[Machine, ...], ask: Callable[[Backend, Machine], T]
) -> tuple[Heard[T], ...]:
    """`ask` on every machine in parallel, in the order given.

    One that is late by the session's deadline is heard as `HostUnreachable`, and its connection is given up. `ask` must
    change nothing: where a connection is cut in the middle of it, it is asked once more over a fresh one.
    """
    heard: dict[str, Heard[T]] = {}
    # Of those that are asked again: what they are heard as should the second answer be late.
    cut: dict[str, Heard[T]] = {}
    faults: list[BaseException] = []
    missing = {machine.name for machine in machines}
    over = threading.Event()

    def one(machine: Machine) -> None:
        try:
            heard[machine.name] = _asked(session, machine, ask, cut, over)
        except AicrunError as error:
            heard[machine.name] = Heard(machine, error=error)
        except BaseException as fault:  # noqa: BLE001  # carried to the caller's thread, which raises it
            faults.append(fault)
        missing.discard(machine.name)
        if not missing:
            over.set()

    for machine in machines:
        threading.Thread(target=one, args=(machine,), daemon=True).start()
    if machines:
        _wait(session, over, lambda: _standing(machines, dict(heard)))
    if faults:
        raise faults[0]
    answers = dict(heard)
    for machine in machines:
        if machine.name not in answers:
            session.leave(machine.name)
    answers = {**cut, **answers}
    return tuple(answers.get(machine.name) or _late(machine, session.deadline_s) for machine in machines)


def _asked(
    session: Session,
    machine: Machine,
    ask: Callable[[Backend, Machine], T],
    cut: dict[str, Heard[T]],
    over: threading.Event,
) -> Heard[T]:
    """The answer, the second one where the connection was cut in the middle of the first; raises `AicrunError`.

    Once it is `over` nobody asks again: then it was cut by us.
    """
    try:
        return Heard(machine, ask(session.backend(machine.name), machine))
    except HostUnreachable as error:
        if error.code != CUT or over.is_set():
            raise
        cut[machine.name] = Heard(machine, error=error)
        session.leave(machine.name)
    return Heard(machine, ask(session.backend(machine.name), machine))


def _wait(session: Session, over: threading.Event, standing: Callable[[], Waiting]) -> None:
    """Until all have answered, or the deadline, and then it is `over`; whoever watches is told of each change."""
    end, pause_s = time.monotonic() + session.deadline_s, TOLD_AFTER_S
    told = None
    try:
        while (left_s := end - time.monotonic()) > 0 and not over.wait(min(pause_s, left_s)):
            if (now := standing()) != told:
                session.waiting(now)
                told = now
            pause_s = TOLD_EACH_S
    finally:
        over.set()
        session.waiting(None)


def _standing(machines: tuple[Machine, ...], heard: dict[str, Heard[T]]) -> Waiting:
    failed = sum(item.error is not None for item in heard.values())
    return Waiting(len(machines), failed, tuple(machine.name for machine in machines if machine.name not in heard))


def _late(machine: Machine, deadline_s: float) -> Heard[T]:
    return Heard(machine, error=HostUnreachable("AIC-E591", f"{machine.name} gave no answer within {deadline_s:.0f}s"))


def survey(
    session: Session,
    specs: tuple[RunSpec, ...],
    excepted: tuple[str, ...] = (),
    cards: bool = True,
    brought: tuple[str, ...] = (),
) -> Fleet:
    """All machines as they are now, in inventory order; `specs` say which runs and volumes to ask about.

    `brought` are keys of inputs that may be there from an earlier run.

    Raises what the only machine of an inventory answered when it refused: there is nothing else to plan with.
    """
    for name in excepted:
        session.machine(name)
    names = tuple(dict.fromkeys(spec.name for spec in specs))

    ways: dict[str, Reached | None] = {}

    def ask(backend: Backend, machine: Machine) -> HostReading:
        paths = paths_to_ask(specs, machine) or (machine.data or "~",)
        try:
            programs = (*programs_to_ask(specs, machine), *interpreters_to_ask(specs, machine))
            # First: of many words a host answers for the first hundred.
            programs = tuple(dict.fromkeys((*fetchers_to_ask(specs, machine), *programs)))
            about = (wheels_to_ask(specs, machine), inputs_to_ask(specs, machine), brought)
            return backend.survey(Question(names, paths, machine.data, cards, machine.path, programs, *about))
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
