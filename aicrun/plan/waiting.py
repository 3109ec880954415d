"""Which card a run that got none stands in line for.

It must not judge anew: everything comes from the verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aicrun.plan.model import Candidate, CardOn, Verdict
from aicrun.plan.nearest import WAITABLE, later_spare
from aicrun.spec.model import CardDemand

_STRANGERS = frozenset(("foreign", "utilization", "compute_mode", "drained"))


@dataclass(frozen=True, slots=True)
class Place:
    """A card that waiting frees; `stranger` when nobody's ticket tells when, `rank` orders them, the best first."""

    card: CardOn
    stranger: bool
    rank: tuple[bool, bool, int, int]


def places_of(verdicts: tuple[Verdict, ...]) -> tuple[Place, ...]:
    """The cards that waiting frees: held by a run before used by a stranger, displays last, the tightest first."""
    found = []
    for number, verdict in enumerate(verdicts):
        spare = later_spare(verdict)
        tokens = {reason.token for reason in verdict.rejections}
        if spare is None or not tokens <= WAITABLE or not isinstance(verdict.candidate, CardOn):
            continue
        display = any(remark.startswith("display, ") for remark in verdict.remarks)
        # On a drained machine the card that waits for nothing else is the first to come free.
        more_than_drained = "drained" in tokens and tokens != {"drained"}
        rank = (display, more_than_drained, spare, number)
        found.append(Place(verdict.candidate, bool(tokens & _STRANGERS), rank))
    return tuple(sorted(found, key=lambda place: (place.stranger, place.rank)))


def to_wait_for(places: tuple[Place, ...], demand: CardDemand, lines: Mapping[Candidate, int]) -> tuple[Candidate, ...]:
    """The cards to stand in line for, the shortest line first; several are of one machine; empty when there are none.

    `lines` counts the runs of this plan that stand in line for a card already.
    """
    if demand.count > 1:
        return _bulk(places, demand, lines)
    best: tuple[int, Place] | None = None
    for place in places:
        if best is not None and place.stranger and not best[1].stranger:
            break
        waiting = lines.get(place.card, 0)
        if best is None or waiting < best[0]:
            best = (waiting, place)
        # Places are in order, so that an empty line cannot be bettered.
        if waiting == 0:
            break
    return (best[1].card,) if best is not None else ()


def _bulk(places: tuple[Place, ...], demand: CardDemand, lines: Mapping[Candidate, int]) -> tuple[Candidate, ...]:
    boxes: dict[tuple[str, str], list[Place]] = {}
    for place in places:
        boxes.setdefault((place.card.machine, place.card.model if demand.same_model else ""), []).append(place)
    full = [box[: demand.count] for box in boxes.values() if len(box) >= demand.count]
    best = min(
        full,
        key=lambda box: (
            any(place.stranger for place in box),
            sum(lines.get(place.card, 0) for place in box),
            box[0].rank,
        ),
        default=[],
    )
    return tuple(sorted((place.card for place in best), key=lambda card: card.index))
