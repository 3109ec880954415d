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
# Whoever was asked for nothing is waited for so long.
LEFT_S = 1.0
NOT_SUPPORTED = "AIC-E590"
# A connection that stood and ended in the middle of a question.
CUT = "AIC-E511"
# The machine was reached: its python3, its folder, its system or its shell is what refuses.
_REACHED = frozenset(("AIC-E510", "AIC-E513", "AIC-E514", "AIC-E516"))

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
    """`ask` on every machine in parallel, in the order given; see `Asking`."""
    return Asking(session, machines, ask).answers()


class Asking(Generic[T]):
    """`ask` on every machine in parallel, begun at once; whoever began does something else until it wants the answers.

    One that is late by the session's deadline is heard as `HostUnreachable`, and its connection is given up. `ask` must
    change nothing: where a connection is cut in the middle of it, it is asked once more over a fresh one.
    """

    def __init__(self, session: Session, machines: tuple[Machine, ...], ask: Callable[[Backend, Machine], T]) -> None:
        self._session, self._machines, self._ask = session, machines, ask
        self._end = time.monotonic() + session.deadline_s
        self._heard: dict[str, Heard[T]] = {}
        # Of those that are asked again: what they are heard as should the second answer be late.
        self._cut: dict[str, Heard[T]] = {}
        self._faults: list[BaseException] = []
        self._missing = {machine.name for machine in machines}
        self._over = threading.Event()
        for machine in machines:
            threading.Thread(target=self._one, args=(machine,), daemon=True).start()

    def _one(self, machine: Machine) -> None:
        try:
            self._heard[machine.name] = _asked(self._session, machine, self._ask, self._cut, self._over)
        except AicrunError as error:
            self._heard[machine.name] = Heard(machine, error=error)
        except BaseException as fault:  # noqa: BLE001  # carried to the caller's thread, which raises it
            self._faults.append(fault)
        self._missing.discard(machine.name)
        if not self._missing:
            self._over.set()

    def answers(self) -> tuple[Heard[T], ...]:
        """What each answered, in the order given; waits for the rest."""
        machines = self._machines
        if machines:
            _wait(self._session, self._over, self._end, lambda: _standing(machines, dict(self._heard)))
        if self._faults:
            raise self._faults[0]
        answers = dict(self._heard)
        for machine in machines:
            if machine.name not in answers:
                self._session.leave(machine.name)
        answers = {**self._cut, **answers}
        return tuple(answers.get(machine.name) or _late(machine, self._session.deadline_s) for machine in machines)

    def leave(self) -> None:
        """Nobody wants the answers any more; who has nearly answered is waited for, so that its connection is ended."""
        if self._machines:
            self._over.wait(LEFT_S)
        self._over.set()


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


def _wait(session: Session, over: threading.Event, end: float, standing: Callable[[], Waiting]) -> None:
    """Until all have answered, or the deadline, and then it is `over`; whoever watches is told of each change."""
    pause_s, told = TOLD_AFTER_S, None
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


def nothing_brought(machine: Machine) -> tuple[str, ...]:
    """For what brings nothing: no key."""
    del machine
    return ()


def survey(
    session: Session,
    specs: tuple[RunSpec, ...],
    excepted: tuple[str, ...] = (),
    cards: bool = True,
    brought: Callable[[Machine], tuple[str, ...]] = nothing_brought,
) -> Fleet:
    """All machines as they are now, in inventory order; see `Looking`."""
    return Looking(session, specs, excepted, cards, brought).fleet()


class Looking:
    """A look at all machines, begun at once; `specs` say which runs and volumes to ask about.

    `brought` says which keys of inputs may be on a machine from an earlier run.
    """

    def __init__(
        self,
        session: Session,
        specs: tuple[RunSpec, ...],
        excepted: tuple[str, ...] = (),
        cards: bool = True,
        brought: Callable[[Machine], tuple[str, ...]] = nothing_brought,
    ) -> None:
        for name in excepted:
            session.machine(name)
        self._session, self._excepted = session, excepted
        self._ways: dict[str, Reached | None] = {}
        names = tuple(dict.fromkeys(spec.name for spec in specs))

        def ask(backend: Backend, machine: Machine) -> HostReading:
            paths = paths_to_ask(specs, machine) or (machine.data or "~",)
            try:
                programs = (*programs_to_ask(specs, machine), *interpreters_to_ask(specs, machine))
                programs = tuple(dict.fromkeys((*programs, *fetchers_to_ask(specs, machine))))
                about = (wheels_to_ask(specs, machine), inputs_to_ask(specs, machine), brought(machine))
                return backend.survey(Question(names, paths, machine.data, cards, machine.path, programs, *about))
            finally:
                # Also of one that gave no answer; a configuration that cannot be read was told by the survey.
                with contextlib.suppress(AicrunError):
                    self._ways[machine.name] = backend.reached()

        self._asked = session.asked(excepted)
        self._asking = Asking(session, self._asked, ask)

    def fleet(self) -> Fleet:
        """What was seen, in inventory order.

        Raises what the only machine of an inventory answered when it refused: there is nothing else to plan with.
        """
        session = self._session
        heard = {item.machine.name: item for item in self._asking.answers()}
        is_alone = len(session.inventory.machines) == 1 and self._asked
        alone = heard[self._asked[0].name].error if is_alone else None
        here = isinstance(session.inventory.machines[0].reach, LocalReach) if is_alone else False
        if alone is not None and (here or _refuses(alone) or not isinstance(alone, HostUnreachable)):
            raise alone
        _remember(session, heard)
        answered = sum(item.answer is not None for item in heard.values())
        remembered = _remembered(session) if len(heard) > answered else {}
        views = (_view(machine, heard.get(machine.name), self._excepted) for machine in session.inventory.machines)
        views = (replace(view, reached=self._ways.get(view.machine.name)) for view in views)
        known = counted_once(tuple(_with_memory(view, remembered.get(view.machine.name)) for view in views))
        return Fleet(known, session.inventory.file, session.inventory.digest, session.client.user)

    def leave(self) -> None:
        """Nobody wants to know any more."""
        self._asking.leave()


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


def _key(machine: Machine) -> tuple[str, str]:
    return machine.name, repr(machine.reach)


def _remember(session: Session, heard: dict[str, Heard[HostReading]]) -> None:
    answered = {_key(item.machine): item for item in heard.values() if item.answer is not None}
    rows = {key: json.dumps(to_json(item.answer)) for key, item in answered.items()}
    if rows:
        session.ledger.remember(rows)


def _remembered(session: Session) -> dict[str, tuple[HostReading, float]]:
    """The last reading of each machine and its age; what another version wrote and nobody can read is left out."""
    found = {}
    kept = session.ledger.remembered()
    for machine in session.inventory.machines:
        text, age_s = kept.get(_key(machine), ("", 0.0))
        try:
            found[machine.name] = (from_json(HostReading, json.loads(text)), age_s)
        except (ValueError, WireError):
            continue
    return found


def _refuses(error: AicrunError) -> bool:
    """Whether the machine was reached and cannot be looked at: an agent cannot be put there, or cannot run."""
    return error.code in _REACHED


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
        return MachineView(machine, state, why=heard.error.message, refuses=_refuses(heard.error))
    return MachineView(machine, "answered", heard.answer)
