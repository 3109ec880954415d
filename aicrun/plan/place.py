"""Which card each run gets: best fit, and as many runs of one call as possible.

Best fit is the least free VRAM left over, then lower utilization, then inventory order, then index; display cards
come last. It must not judge whether a card fits (see `fit.py`), and never gives one card to two runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from aicrun.plan.admit import Need
from aicrun.plan.kinds import Kinds
from aicrun.plan.model import Candidate, CardOn, Fleet, HostOn, Rejection, Verdict
from aicrun.plan.nearest import tightest_later
from aicrun.plan.waiting import Place, places_of

Rank = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """What one run gets: `chosen` cards (or the machine) now, else empty; `verdicts` on everything, always.

    `first` is the verdict of the first chosen card; `later` is the tightest fit among cards that are not free now;
    `queue` are the cards that waiting frees, for a run that got none.
    """

    chosen: tuple[Candidate, ...]
    verdicts: tuple[Verdict, ...]
    first: Verdict | None = None
    later: Verdict | None = None
    queue: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class _Group:
    """Runs that ask alike: their verdicts, and the places that fit them, the best first."""

    need: Need
    verdicts: tuple[Verdict, ...]
    fitting: tuple[Candidate, ...]
    fits: Mapping[Candidate, Verdict]
    later: Verdict | None


@dataclass(slots=True)
class _Board:
    """Who has which place so far; cards go to one run each, a machine takes runs until it is full."""

    holder: dict[Candidate, int] = field(default_factory=dict)
    seats: dict[str, int] = field(default_factory=dict)
    chosen: dict[int, tuple[Candidate, ...]] = field(default_factory=dict)

    def give(self, number: int, places: tuple[Candidate, ...]) -> None:
        """Hand `places`, all on one machine, to run `number`; a run takes one seat of the machine."""
        self.holder.update((place, number) for place in places)
        self.seats[places[0].machine] -= 1
        self.chosen[number] = places

    def take_back(self, number: int) -> None:
        """Undo `give`."""
        places = self.chosen.pop(number)
        for place in places:
            del self.holder[place]
        self.seats[places[0].machine] += 1


def place(needs: tuple[Need, ...], fleet: Fleet) -> tuple[Placement, ...]:
    """A placement for each of `needs`, in their order; a run that got nothing has no `chosen`."""
    groups = _grouped(needs, fleet)
    cores = _Cores(fleet, frozenset(job_id for need in needs for job_id in need.own_jobs))
    has_bulk = any(_count(group) > 1 for group in groups)
    boards = [_attempt(groups, cores, bulk_first) for bulk_first in ((True, False) if has_bulk else (True,))]
    # Cards asked in bulk go first unless that leaves more runs without any.
    board = max(boards, key=lambda item: len(item.chosen))
    without: dict[int, Placement] = {}
    placed = []
    for number, group in enumerate(groups):
        chosen = board.chosen.get(number, ())
        if chosen:
            placed.append(Placement(chosen, group.verdicts, group.fits[chosen[0]], group.later))
            continue
        # Runs that ask alike and got nothing share what they are told.
        if id(group) not in without:
            without[id(group)] = _without(group, board, needs)
        placed.append(without[id(group)])
    return tuple(placed)


def _ranked(fits: Mapping[Candidate, Verdict], utilization: _ByCard) -> tuple[Candidate, ...]:
    """The places that fit, the best first; `fits` is in inventory order, which settles what is equal."""
    equal: dict[Rank, list[Candidate]] = {}
    for candidate, verdict in fits.items():
        display = any(remark.startswith("display, ") for remark in verdict.remarks)
        equal.setdefault((display, verdict.spare_mib or 0, utilization.of(candidate)), []).append(candidate)
    return tuple(candidate for rank in sorted(equal) for candidate in equal[rank])


def order_of(fleet: Fleet) -> dict[str, int]:
    """Machine name to its place in the inventory."""
    return {view.machine.name: place for place, view in enumerate(fleet.machines)}


class _ByCard:
    """Utilization in percent, looked up by machine and uuid, so that no candidate has to be built for it."""

    def __init__(self, fleet: Fleet) -> None:
        self._found: dict[str, dict[str, int]] = {}
        for view in fleet.machines:
            cards = view.reading.cards.cards if view.reading else ()
            self._found[view.machine.name] = {card.uuid: card.utilization_percent or 0 for card in cards}

    def of(self, place: Candidate) -> int:
        """That of a card, 0 where it is not told."""
        return self._found.get(place.machine, {}).get(place.uuid, 0) if isinstance(place, CardOn) else 0


class _Cores:
    """Free cores and seats of each machine, and which have no card: the order for runs without a card."""

    def __init__(self, fleet: Fleet, given_up: frozenset[str]) -> None:
        """`given_up` are jobs that make room: the runs that replace or move them are among those placed."""
        self.order = order_of(fleet)
        self.free: dict[str, float] = {}
        self.seats: dict[str, int] = {}
        self.has_cards: dict[str, bool] = {}
        for view in fleet.machines:
            reading, name = view.reading, view.machine.name
            if reading is not None:
                self.free[name] = reading.cpus if reading.cpus_free is None else reading.cpus_free
                self.has_cards[name] = reading.cards.state != "none"
                leaving = len([job for job in reading.jobs if job.job_id in given_up]) if given_up else 0
                self.seats[name] = max(0, view.machine.max_jobs - reading.active_jobs + leaving)


def _grouped(needs: tuple[Need, ...], fleet: Fleet) -> tuple[_Group, ...]:
    made: dict[str, _Group] = {}
    kinds = Kinds(fleet)
    utilization = _ByCard(fleet)
    found = []
    for need in needs:
        key = need.group
        if key not in made:
            all_verdicts = kinds.verdicts(need)
            fits = {item.candidate: item for item in all_verdicts if not item.rejections and not item.unknown}
            made[key] = _Group(need, all_verdicts, _ranked(fits, utilization), fits, tightest_later(all_verdicts))
        found.append(made[key])
    return tuple(found)


def _attempt(groups: tuple[_Group, ...], cores: _Cores, bulk_first: bool) -> _Board:
    board = _Board(seats=dict(cores.seats))
    single = [number for number, group in enumerate(groups) if _count(group) == 1]
    multi = sorted(
        (number for number, group in enumerate(groups) if _count(group) > 1),
        key=lambda number: (_count(groups[number]), number),
    )
    if bulk_first:
        _place_bulk(multi, groups, board)
    _place_single(single, groups, board)
    if not bulk_first:
        _place_bulk(multi, groups, board)
    _place_hosts([number for number, group in enumerate(groups) if _count(group) == 0], groups, board, cores)
    return board


def _count(group: _Group) -> int:
    demand = group.need.spec.machine.gpu
    return 0 if demand is None else demand.count


def _place_bulk(numbers: Iterable[int], groups: tuple[_Group, ...], board: _Board) -> None:
    for number in numbers:
        cards = best_bundle(groups[number], board.holder, board.seats)
        if cards:
            board.give(number, cards)


def best_bundle(group: _Group, taken: dict[Candidate, int], seats: dict[str, int]) -> tuple[Candidate, ...]:
    """The best cards on one machine for a demand of several, all or none: the least total spare wins."""
    demand = group.need.spec.machine.gpu
    if demand is None:
        return ()
    bundles: dict[tuple[str, str], list[Candidate]] = {}
    for card in group.fitting:
        if card not in taken and seats.get(card.machine, 0) > 0 and isinstance(card, CardOn):
            key = (card.machine, card.model if demand.same_model else "")
            bundles.setdefault(key, []).append(card)
    full = [tuple(cards[: demand.count]) for cards in bundles.values() if len(cards) >= demand.count]
    return min(full, key=lambda cards: sum(group.fits[card].spare_mib or 0 for card in cards), default=())


def _place_single(numbers: list[int], groups: tuple[_Group, ...], board: _Board) -> None:
    """Each run takes its best free card; where none is left, runs that can move make room (augmenting paths)."""
    for number in numbers:
        chain = _chain(number, groups, board)
        for mover, _ in chain:
            if mover in board.chosen:
                board.take_back(mover)
        for mover, card in chain:
            board.give(mover, (card,))


def _chain(number: int, groups: tuple[_Group, ...], board: _Board) -> list[tuple[int, Candidate]]:
    """(run, its new card) pairs that give `number` a card, breadth first, so that as few runs move as possible."""
    came: dict[int, tuple[int, Candidate] | None] = {number: None}
    seen = {id(groups[number])}
    ways = [number]
    singles = [run for run in board.chosen if _count(groups[run]) == 1]
    for run in ways:
        group = groups[run]
        free = _free_card(group, board)
        if free is not None:
            return _walk_back(run, free, came)
        for other in singles:
            card = board.chosen[other][0]
            if id(groups[other]) not in seen and card in group.fits:
                seen.add(id(groups[other]))
                came[other] = (run, card)
                ways.append(other)
    return []


def _walk_back(run: int, card: Candidate, came: dict[int, tuple[int, Candidate] | None]) -> list[tuple[int, Candidate]]:
    moves = [(run, card)]
    step = came[run]
    while step is not None:
        moves.append(step)
        step = came[step[0]]
    return moves


def _free_card(group: _Group, board: _Board) -> Candidate | None:
    for card in group.fitting:
        if card not in board.holder and board.seats.get(card.machine, 0) > 0:
            return card
    return None


def _place_hosts(numbers: list[int], groups: tuple[_Group, ...], board: _Board, cores: _Cores) -> None:
    free = dict(cores.free)
    for number in numbers:
        group = groups[number]
        places = [item for item in group.fitting if board.seats.get(item.machine, 0) > 0]
        if not places:
            continue
        best = min(
            places, key=lambda item: (cores.has_cards[item.machine], -free[item.machine], cores.order[item.machine])
        )
        free[best.machine] -= group.need.spec.machine.cpus or 1
        board.seats[best.machine] -= 1
        board.chosen[number] = (best,)


def _without(group: _Group, board: _Board, needs: tuple[Need, ...]) -> Placement:
    found = group.verdicts
    if group.fits:
        found = tuple(_gone(item, board, needs) for item in found)
    return Placement((), found, queue=places_of(found))


def _gone(verdict: Verdict, board: _Board, needs: tuple[Need, ...]) -> Verdict:
    """The verdict of a place that fits, for a run that did not get it."""
    if not verdict.fits:
        return verdict
    taker = board.holder.get(verdict.candidate)
    if taker is not None:
        name = needs[taker].spec.name
        reason = Rejection("taken_by_plan", "a card nobody holds", name, False, f"goes to run {name} of this plan")
    elif isinstance(verdict.candidate, HostOn) or board.seats.get(verdict.candidate.machine, 0) <= 0:
        reason = Rejection("too_many_jobs", "a free seat", "none", False, "the runs of this plan fill max_jobs")
    else:
        reason = Rejection("count", "enough cards", "too few", False, "the other runs of this plan leave too few cards")
    return replace(verdict, rejections=(reason,), spare_mib=None)
