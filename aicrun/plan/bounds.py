"""The facts that a plan depends on, as (what, value) in words, so that a saved plan can name what moved.

It must not judge whether a change matters: every bound that differs makes the plan stale.
"""

from __future__ import annotations

from collections.abc import Iterator

from aicrun.plan import words
from aicrun.plan.admit import Need
from aicrun.plan.changes import source_words
from aicrun.plan.fit import verdicts
from aicrun.plan.model import Bound, CardOn, Fleet, HostOn, RunPlan, Sign, Wanted
from aicrun.plan.nearest import place_name
from aicrun.plan.reconcile import found_in, unreadable_in
from aicrun.wire.status import status_of

_FREE = frozenset((Sign.START, Sign.REPLACE, Sign.MOVE))


def bounds_of(runs: tuple[RunPlan, ...], fleet: Fleet, wanted: tuple[Wanted, ...]) -> tuple[Bound, ...]:
    """Every fact that `runs` depend on as it is in `fleet`, each once, the inventory first."""
    found = [Bound("machines.yaml", words.short(fleet.inventory_digest) or "none")]
    for item, wish in zip(runs, wanted, strict=True):
        found += _of_run(item, fleet, wish)
    return tuple(dict.fromkeys(found))


def _of_run(item: RunPlan, fleet: Fleet, wish: Wanted) -> Iterator[Bound]:
    yield Bound(f"source of {item.run}", _source(wish))
    yield Bound(f"jobs of {item.run}", _jobs(fleet, item.run))
    for view in fleet.machines:
        if view.machine.name != item.machine:
            continue
        if view.reading is None:
            yield Bound(f"{item.machine} answers", view.state)
            continue
        yield Bound(f"identity of {item.machine}", view.reading.host_id)
        if item.spec.machine.gpu is not None:
            yield Bound(f"driver of {item.machine}", view.reading.cards.driver or "none")
            known = {card.uuid: card.index for card in view.reading.cards.cards}
            for card in item.chosen:
                if isinstance(card, CardOn):
                    place = known.get(card.uuid)
                    yield Bound(f"card {card.uuid}", "gone" if place is None else f"{card.machine}[{place}]")
    if item.sign in _FREE:
        yield from _places(item, fleet, wish)


def _places(item: RunPlan, fleet: Fleet, wish: Wanted) -> Iterator[Bound]:
    given_up = (item.job.job_id,) if item.job is not None and item.sign is not Sign.START else ()
    only = tuple(view for view in fleet.machines if view.machine.name == item.machine)
    need = Need(wish.spec, own_jobs=given_up, use_kept=True)
    judged = {verdict.candidate: verdict for verdict in verdicts(Fleet(only), need)}
    for candidate in item.chosen:
        verdict = judged.get(candidate)
        if verdict is None:
            told = "gone" if isinstance(candidate, CardOn) else "no answer"
        else:
            told = "fits" if verdict.fits else verdict.unknown or "; ".join(item.words for item in verdict.rejections)
        yield Bound(place_name(candidate) if not isinstance(candidate, HostOn) else f"{candidate.machine} for it", told)


def _source(wish: Wanted) -> str:
    if wish.source is None:
        return "none"
    dirty = f": {', '.join(wish.source.dirty[:3])}" if wish.source.dirty else ""
    return f"tree {words.short(wish.source.tree)}, {source_words(wish.source)}{dirty}"


def _jobs(fleet: Fleet, run: str) -> str:
    """Job ids with their status, on every machine; what a start may follow and what must not appear meanwhile."""
    told = [f"{item.job.job_id} {status_of(item.job).status.value}" for item in found_in(fleet, run)]
    told += [f"unreadable on {machine}" for machine, _ in unreadable_in(fleet, run)]
    return ", ".join(sorted(told)) or "none"
