"""The facts that a plan depends on, as (what, value) in words, so that a saved plan can name what moved.

Every bound that differs makes the plan stale. Of the inventory only what matters to the plan is one: the entry of the
machine that it starts on. (A machine that left the list is noticed by `saved.py`, one that came is nothing to it.)
"""

from __future__ import annotations

from collections.abc import Iterator

from aicrun.plan import words
from aicrun.plan.admit import Need
from aicrun.plan.changes import source_words
from aicrun.plan.fit import machine_verdicts
from aicrun.plan.kept_cards import keeps
from aicrun.plan.known import Known
from aicrun.plan.model import Bound, CardOn, HostOn, Options, RunPlan, Sign, Wanted
from aicrun.plan.nearest import place_name
from aicrun.plan.places import as_asked
from aicrun.plan.reconcile import may_hold
from aicrun.spec.model import Machine, SshReach
from aicrun.wire.facts import HostReading, WheelFolder

_FREE = frozenset((Sign.START, Sign.REPLACE, Sign.MOVE))


def bounds_of(runs: tuple[RunPlan, ...], known: Known, wanted: tuple[Wanted, ...]) -> tuple[Bound, ...]:
    """Every fact that `runs` depend on as it is in the fleet, each once."""
    found: list[Bound] = []
    for item, wish in zip(runs, wanted, strict=True):
        found += _of_run(item, known, wish)
    return tuple(dict.fromkeys(found))


def _of_run(item: RunPlan, known: Known, wish: Wanted) -> Iterator[Bound]:
    yield Bound(f"source of {item.run}", _source(wish))
    for name, sent in wish.sent.items():
        yield Bound(f"input {name} of {item.run}", f"files {words.short(sent.tree)}")
    yield Bound(f"jobs of {item.run}", _jobs(known, item.run))
    # A plan that was made while all answered must not start beside a copy on a machine that is silent now.
    silent = ", ".join(view.machine.name for view in may_hold(wish, known, Options()))
    yield Bound(f"silent machines that may hold {item.run}", silent or "none")
    view = known.views.get(item.machine)
    if view is not None and view.reading is None:
        yield Bound(f"{item.machine} answers", view.state)
    elif view is not None and view.reading is not None:
        yield Bound(f"identity of {item.machine}", view.reading.host_id)
        if item.sign in _FREE or item.sign is Sign.WAIT:
            yield from _entry(view.machine)
        if item.spec.machine.gpu is not None:
            yield from _cards(item, view.machine, view.reading)
        yield from _wheels(view.machine, view.reading, wish)
    if item.sign in _FREE:
        yield from _places(item, known, wish)


def _entry(machine: Machine) -> Iterator[Bound]:
    """What the inventory says of a machine and a start there follows."""
    reach = machine.reach
    listed = {
        "ssh": reach.target if isinstance(reach, SshReach) else "",
        "data": machine.data,
        "path": ":".join(machine.path),
        "max_jobs": str(machine.max_jobs),
    }
    for field, value in listed.items():
        yield Bound(f"{field} of {machine.name}", words.harmless(value) or "none")
    for name, value in machine.env.items():
        yield Bound(f"env.{name} of {machine.name}", words.harmless(value))


def _wheels(machine: Machine, reading: HostReading, wish: Wanted) -> Iterator[Bound]:
    """The wheels that an environment is built from; its key names those that the plan saw."""
    setup = wish.spec.setup
    folder = as_asked(setup.wheels, wish.spec, machine) if setup is not None else ""
    if folder:
        found = next((one for one in reading.wheels if one.path == folder), WheelFolder(folder))
        told = f"{words.counted(found.wheels, 'file')}, {words.short(found.listing) or 'none'}"
        yield Bound(f"wheels in {words.harmless(folder)} of {machine.name}", told)


def _cards(item: RunPlan, machine: Machine, reading: HostReading) -> Iterator[Bound]:
    yield Bound(f"driver of {item.machine}", reading.cards.driver or "none")
    places = {card.uuid: card for card in reading.cards.cards}
    for card in item.chosen:
        if isinstance(card, CardOn):
            there = places.get(card.uuid)
            kept = ", kept by its owner" if there is not None and keeps(machine, there) else ""
            yield Bound(f"card {card.uuid}", "gone" if there is None else f"{card.machine}[{there.index}]{kept}")


def _places(item: RunPlan, known: Known, wish: Wanted) -> Iterator[Bound]:
    """Whether what was chosen fits still."""
    given_up = (item.job.job_id,) if item.job is not None and item.sign is not Sign.START else ()
    need = Need(wish, own_jobs=given_up, use_kept=True)
    view = known.views.get(item.machine)
    judged = {verdict.candidate: verdict for verdict in (machine_verdicts(view, need) if view is not None else ())}
    for candidate in item.chosen:
        verdict = judged.get(candidate)
        if verdict is None:
            told = "gone" if isinstance(candidate, CardOn) else "no answer"
        else:
            told = "fits" if verdict.fits else verdict.unknown or "; ".join(one.words for one in verdict.rejections)
        yield Bound(f"{candidate.machine} for it" if isinstance(candidate, HostOn) else place_name(candidate), told)


def _source(wish: Wanted) -> str:
    if wish.source is None:
        return "none"
    dirty = f": {', '.join(wish.source.dirty[:3])}" if wish.source.dirty else ""
    return f"tree {words.short(wish.source.tree)}, {source_words(wish.source)}{dirty}"


def _jobs(known: Known, run: str) -> str:
    """Job ids with their status, on every machine; what a start may follow and what must not appear meanwhile."""
    told = [f"{found.job.job_id} {found.standing.status.value}" for found in known.records.get(run, ())]
    told += [f"unreadable on {machine}" for machine, _ in known.unreadable_of(run)]
    return ", ".join(sorted(told)) or "none"
