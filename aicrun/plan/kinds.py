"""Machines that are alike in all but name are judged once: the cost of a plan follows the kinds, not the number.

It must not judge by itself (see `fit.py`) and never takes two machines for one kind when a spec can tell them apart.
"""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import Any

from aicrun.plan.admit import Need
from aicrun.plan.fit import machine_verdicts
from aicrun.plan.inputs import deciding
from aicrun.plan.model import Candidate, CardOn, Fleet, HostOn, MachineView, Verdict
from aicrun.plan.places import volumes
from aicrun.plan.words import card_model
from aicrun.spec.model import Machine
from aicrun.wire import lean
from aicrun.wire.facts import Card, Cards, HostReading

# What names a machine, a card or a moment, and what no verdict reads; everything else of a record makes the kind.
_NAMES: dict[type, tuple[str, ...]] = {
    Machine: ("name", "reach", "line"),
    HostReading: ("hostname", "host_id", "boot", "took_s", "agent_digest", "notes", "measured", "cards"),
    Cards: ("cards",),
    Card: ("uuid", "pci_bus_id", "temperature_c", "power_w"),
}


class Kinds:
    """The machines of one fleet by kind; made once for a plan."""

    def __init__(self, fleet: Fleet) -> None:
        numbers: dict[Any, int] = {}
        self._views = fleet.machines
        self._cards = [_cards_on(view) for view in fleet.machines]
        self._kinds = [_number(view, numbers) for view in fleet.machines]

    def verdicts(self, need: Need) -> tuple[Verdict, ...]:
        """As `fit.verdicts`: one for every card (or machine where no card is asked or known), in inventory order."""
        shares = _shares(need)
        judged: dict[int, tuple[bool, tuple[tuple[Any, ...], ...]]] = {}
        found: list[Verdict] = []
        for view, cards, kind in zip(self._views, self._cards, self._kinds, strict=True):
            known = judged.get(kind) if kind is not None and shares else None
            if known is not None:
                places = cards if known[0] else (HostOn(view.machine.name),)
                found += [Verdict(place, *rest) for place, rest in zip(places, known[1], strict=True)]
                continue
            made = machine_verdicts(view, need)
            found += made
            if kind is not None:
                judged[kind] = (isinstance(made[0].candidate, CardOn), tuple(map(_BUT_THE_PLACE, made)))
        return tuple(found)


def _shares(need: Need) -> bool:
    """False for a need that names a machine, a card or a job, or has a machine's name in a path."""
    selector = need.spec.machine
    named = selector.names or need.own_jobs or need.only_on or (selector.gpu is not None and selector.gpu.uuid)
    setup = need.spec.setup
    folders = (*volumes(need.spec), *((setup.venv, setup.wheels) if setup is not None else ()))
    folders += tuple(need.spec.inputs.values())
    folders += tuple(value for one in need.spec.brought.values() for value in deciding(need.spec, one).values())
    return not named and not any("machine.name" in path for path in folders)


def _number(view: MachineView, numbers: dict[Any, int]) -> int | None:
    """The kind of a machine; None for one that is a kind by itself."""
    if view.reading is None or not all(isinstance(kept, int) for kept in view.machine.keep_free):
        return None
    try:
        key = (_facts(view.machine), _facts(view.reading), _facts(view.reading.cards), _cards(view.reading))
        return numbers.setdefault(key, len(numbers))
    except TypeError:
        # Records of runs and their like are no plain values: such a machine is judged on its own.
        return None


def _cards(reading: HostReading) -> tuple[Any, ...]:
    ordered = sorted(reading.cards.cards, key=lambda card: card.index)
    return tuple((_facts(card), bool(card.uuid)) for card in ordered)


def _cards_on(view: MachineView) -> tuple[Candidate, ...]:
    cards = view.reading.cards.cards if view.reading is not None else ()
    ordered = sorted(cards, key=lambda card: card.index)
    return tuple(CardOn(view.machine.name, card.index, card.uuid, card_model(card.model)) for card in ordered)


def _facts(record: Any) -> tuple[Any, ...]:
    values = _READERS[type(record)](record)
    return tuple(tuple(sorted(value.items())) if isinstance(value, dict) else value for value in values)


def _reader(kind: type) -> attrgetter[tuple[Any, ...]]:
    every = lean.slots_of(kind) if kind in (HostReading, Cards, Card) else fields(kind)
    return attrgetter(*(item.name for item in every if item.name not in _NAMES[kind]))


_READERS = {kind: _reader(kind) for kind in _NAMES}
# A verdict's first field is its place.
_BUT_THE_PLACE = attrgetter(*(item.name for item in fields(Verdict)[1:]))
