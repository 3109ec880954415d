"""Whether a card fits a demand: one check for each reason, all run, and one verdict for every card of the fleet.

It must not choose (see `place.py`): it says what fits and what speaks against the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from aicrun.plan import words
from aicrun.plan.admit import Need, machine_rejections, machine_unknown, unasked
from aicrun.plan.kept_cards import keeps
from aicrun.plan.model import CardOn, Fleet, HostOn, MachineView, Rejection, Verdict
from aicrun.plan.versions import parse, within
from aicrun.spec.model import CardDemand, Machine
from aicrun.wire.facts import Card, CardProcess, HostReading
from aicrun.wire.status import status_of

# A display card must keep this much more: a desktop's browser and player take about that (design section 5).
DISPLAY_MIB = 1024
# What the system and the job's own host side keep of a memory that processor and card share.
SHARED_MARGIN_MIB = 4096
# Words of a model that make it another card when the spec does not say them too (`RTX 3090` is no `RTX 3090 Ti`).
_QUALIFIERS = frozenset(("ti", "super", "ada", "laptop", "mobile", "max", "d", "s", "g", "x", "m", "e"))


@dataclass(frozen=True, slots=True)
class Held:
    """Who holds a card, in words for people; `own` when it is a job that this very start replaces."""

    words: str
    run: str
    own: bool


@dataclass(frozen=True, slots=True)
class Seat:
    """One card with all that its checks look at; `alone` when it is the box's only card.

    `shares` when its memory is taken from the machine's, for its driver tells none: an estimate.
    """

    machine: Machine
    reading: HostReading
    card: Card
    demand: CardDemand
    need: Need
    alone: bool
    held: Held | None
    shares: bool = False

    @property
    def need_mib(self) -> int:
        """Free VRAM asked of this card: the demand, its headroom, and more where a desktop lives on it.

        A box's only card stays usable: more is not asked of one that could never give it.
        """
        need = self.demand.vram_mib + self.demand.headroom_mib
        room = self.room_mib
        if not self.card.display or (self.alone and room is not None and need <= room < need + DISPLAY_MIB):
            return need
        return need + DISPLAY_MIB

    @property
    def room_mib(self) -> int | None:
        """What would be free if nobody were on the card: its size less what the driver reserves."""
        total = self.card.vram_total_mib
        return None if total is None else total - (self.card.vram_reserved_mib or 0)

    @property
    def free_mib(self) -> int | None:
        """What the driver says is free, with what a job that goes away gives back.

        Where nobody can tell what that one holds: all of the card's room but what everybody else has of it.
        """
        free, room = self.card.vram_free_mib, self.room_mib
        if self.held is None or not self.held.own or room is None:
            return free
        own = [one.vram_mib for one in self.card.processes if one.job_id in self.need.own_jobs]
        if free is not None and own and None not in own:
            return min(room, free + sum(vram or 0 for vram in own))
        others = (one.vram_mib or 0 for one in self.card.processes if one.job_id not in self.need.own_jobs)
        return max(0, room - sum(others))

    @property
    def strangers(self) -> tuple[CardProcess, ...]:
        """Compute processes on the card that are of no job which this start takes the place of."""
        found = (process for process in self.card.processes if process.kind == "compute")
        return tuple(process for process in found if process.job_id not in self.need.own_jobs)


def verdicts(fleet: Fleet, need: Need) -> tuple[Verdict, ...]:
    """One verdict for every card (or for the machine itself where no card is asked or known), in inventory order."""
    return tuple(verdict for view in fleet.machines for verdict in machine_verdicts(view, need))


def machine_verdicts(view: MachineView, need: Need) -> tuple[Verdict, ...]:
    """The verdicts of one machine, cards in index order; never empty."""
    reading = view.reading
    host = HostOn(view.machine.name)
    if reading is None:
        return (Verdict(host, unasked(view, need)),)
    against = machine_rejections(view, reading, need)
    unknown = machine_unknown(view, reading, need)
    demand = need.spec.machine.gpu
    if demand is None:
        return (Verdict(host, against, "" if against else unknown, remarks=_load(reading, need)),)
    cards = reading.cards
    if cards.state == "none" or (cards.state == "devices" and not cards.cards):
        return (Verdict(host, (*against, _no_card(reading))),)
    if cards.state != "devices":
        why = words.harmless(cards.detail or cards.reason) or "nothing could be read"
        return (Verdict(host, against, "" if against else f"cards cannot be read: {why}"),)
    seats = [_seat(view.machine, reading, card, need) for card in sorted(cards.cards, key=lambda item: item.index)]
    found = [_card_verdict(seat, against, unknown) for seat in seats]
    return tuple(_enough(found, demand))


def model_matches(wanted: str, model: str) -> bool:
    """Loosely the same model: case, spaces and vendor do not matter, a qualifier such as Ti does."""
    asked, has = _tokens(wanted), _tokens(model)
    for start in range(len(has) - len(asked) + 1):
        if has[start : start + len(asked)] == asked:
            rest = has[start + len(asked) : start + len(asked) + 1]
            return not (rest and rest[0] in _QUALIFIERS)
    return False


def _tokens(text: str) -> list[str]:
    return [part for part in re.findall(r"[a-z]+|\d+", text.lower()) if part not in ("nvidia", "geforce", "tesla")]


def _no_card(reading: HostReading) -> Rejection:
    reason = {"no_driver": "no NVIDIA driver", "no_device": "a driver, no card"}.get(reading.cards.reason, "no card")
    detail = words.harmless(reading.cards.detail)
    # The host's own sentence says it all when it begins alike.
    told = detail if detail.startswith(reason) else ": ".join(part for part in (reason, detail) if part)
    return Rejection("no_card", "a card", "none", True, told)


def _seat(machine: Machine, reading: HostReading, card: Card, need: Need) -> Seat:
    demand = need.spec.machine.gpu
    if demand is None:
        raise ValueError("a seat is asked for a run without a card")
    held, is_alone = _holder(reading, card, need), len(reading.cards.cards) == 1
    if machine.shared_memory and card.vram_total_mib is None and reading.memory_free_mib is not None:
        return Seat(machine, reading, _sharing(card, reading), demand, need, is_alone, held, shares=True)
    return Seat(machine, reading, card, demand, need, is_alone, held)


def _sharing(card: Card, reading: HostReading) -> Card:
    """The card with the machine's own memory for its own, less a margin."""
    has = max(0, (reading.memory_free_mib or 0) - SHARED_MARGIN_MIB)
    return replace(card, vram_total_mib=reading.memory_mib, vram_free_mib=has, vram_reserved_mib=SHARED_MARGIN_MIB)


def _holder(reading: HostReading, card: Card, need: Need) -> Held | None:
    """The live ticket's word first, then a job of ours that says it, then a process that carries a job id."""
    holder = card.holder
    if holder is not None:
        run = words.name(holder.run)
        whose = "you" if holder.yours else words.name(holder.account)
        told = f"held by run {run} of {whose}, {words.duration(holder.age_s)}"
        return Held(told, run, holder.job_id in need.own_jobs)
    for job in reading.jobs:
        waits = job.line is not None and not job.line.granted
        if card.uuid in job.cards and not waits and not status_of(job).status.terminal:
            told = f"held by run {words.name(job.run)} of you, {words.duration(job.age_s)}"
            return Held(told, words.name(job.run), job.job_id in need.own_jobs)
    for process in card.processes:
        if process.job_id:
            told = f"held by job {words.name(process.job_id)} of {words.name(process.user) or 'somebody'}"
            return Held(told, "", process.job_id in need.own_jobs)
    return None


def _card_verdict(seat: Seat, against: tuple[Rejection, ...], unknown: str) -> Verdict:
    card = seat.card
    candidate = CardOn(seat.machine.name, card.index, card.uuid, words.card_model(card.model))
    rejections = (*against, *(reason for check in CHECKS for reason in check(seat)))
    free = seat.free_mib
    if not unknown and (card.vram_total_mib is None or free is None):
        unknown = _unreadable(card)
    if not unknown and not card.uuid:
        unknown = "its UUID cannot be read, so that nobody could lock it"
    spare = None if rejections or unknown or free is None else free - seat.need_mib
    return Verdict(
        candidate,
        rejections,
        "" if rejections else unknown,
        spare_mib=spare,
        free_mib=free,
        total_mib=card.vram_total_mib,
        need_mib=seat.need_mib,
        room_mib=seat.room_mib,
        remarks=tuple(_remarks(seat)),
    )


def _unreadable(card: Card) -> str:
    why = card.unreadable.get("vram_free_mib") or card.unreadable.get("vram_total_mib") or ""
    # A driver that knows no such number belongs to a card without memory of its own, as a rule.
    shared = "; is it the machine's own? see shared_memory" if why == "not_supported" else ""
    return "memory not readable" + (f": {words.harmless(why)}" if why else "") + shared


def _enough(found: list[Verdict], demand: CardDemand) -> Iterator[Verdict]:
    """With more cards asked than this machine can give, each of its cards gets that reason too."""
    if demand.count == 1:
        return iter(found)
    usable = [item for item in found if item.fits]
    ever = [item for item in found if not item.lasting]
    if _largest_group(usable, demand) >= demand.count:
        return iter(found)
    alike = " of one model" if demand.same_model else ""
    lasting = _largest_group(ever, demand) < demand.count
    has = _largest_group(ever if lasting else usable, demand)
    told = f"asks {demand.count} cards{alike}, {has} {'can' if lasting else 'now'} fit"
    reason = Rejection("count", str(demand.count), str(has), lasting, told)
    return (replace(item, rejections=(*item.rejections, reason), unknown="", spare_mib=None) for item in found)


def _largest_group(found: list[Verdict], demand: CardDemand) -> int:
    if not demand.same_model:
        return len(found)
    models = [item.candidate.model for item in found if isinstance(item.candidate, CardOn)]
    return max((models.count(model) for model in set(models)), default=0)


def _remarks(seat: Seat) -> Iterator[str]:
    if seat.card.display:
        yield "display, so last"
    if seat.shares:
        yield "its memory is an estimate: it shares the machine's"
    if not seat.card.processes_listed and seat.held is None:
        yield "its processes cannot be listed"


def _load(reading: HostReading, need: Need) -> tuple[str, ...]:
    """A floor of cores counts those that exist; that they are busy at this moment is told, and rejects nothing."""
    wanted = need.spec.machine.cpus or 1
    return ("its cores are busy now",) if reading.cpus_free is not None and reading.cpus_free < wanted else ()


def _pinned(seat: Seat) -> Iterator[Rejection]:
    if seat.demand.uuid and seat.card.uuid.lower() != seat.demand.uuid.lower():
        yield Rejection("uuid", seat.demand.uuid, seat.card.uuid, True, f"asks card {seat.demand.uuid[:12]}")
    if seat.demand.index is not None and seat.card.index != seat.demand.index:
        yield Rejection("index", str(seat.demand.index), str(seat.card.index), True, f"asks index {seat.demand.index}")


def _state(seat: Seat) -> Iterator[Rejection]:
    if seat.card.state != "ok":
        state = words.name(seat.card.state)
        yield Rejection("card_state", "a working card", state, True, f"{state}: the machine needs a look or a reboot")


def _kept(seat: Seat) -> Iterator[Rejection]:
    if keeps(seat.machine, seat.card) and not seat.need.use_kept:
        yield Rejection("kept_by_owner", "a card for runs", "keep_free", True, "kept_by_owner")


def _model(seat: Seat) -> Iterator[Rejection]:
    wanted = seat.demand.models
    if wanted and not any(model_matches(model, seat.card.model) for model in wanted):
        asked = words.joined(wanted, "or")
        yield Rejection("model", asked, words.card_model(seat.card.model), True, f"asks {asked}")


def _total(seat: Seat) -> Iterator[Rejection]:
    total, bounds = seat.card.vram_total_mib, seat.demand.total_vram_mib
    if total is None or bounds is None:
        return
    for limit, bad, side in ((bounds.low, total < (bounds.low or 0), "least"), (bounds.high, False, "most")):
        if side == "most" and limit is not None:
            bad = total > limit
        if limit is not None and bad:
            first, second = words.apart(limit, total)
            yield Rejection("total_vram", f"at {side} {first}", second, True, f"asks a card of at {side} {first}")


def _vram(seat: Seat) -> Iterator[Rejection]:
    room, free, need = seat.room_mib, seat.free_mib, seat.need_mib
    if room is None or free is None:
        return
    if room < need:
        asked, has = words.apart(need, room)
        yield Rejection("vram_size", asked, has, True, f"asks {asked}")
    elif free < need:
        asked, has = words.apart(need, free)
        yield Rejection("vram_free", asked, has, False, f"asks {asked} free")


def _holding(seat: Seat) -> Iterator[Rejection]:
    if seat.held is not None and not seat.held.own:
        yield Rejection("held", "a card nobody holds", seat.held.run or "held", False, seat.held.words)


def _foreign(seat: Seat) -> Iterator[Rejection]:
    if seat.demand.foreign_allowed or (seat.held is not None and not seat.held.own):
        return
    strangers = seat.strangers
    if strangers:
        told = "; ".join(_stranger(process) for process in strangers[:2])
        more = f" and {len(strangers) - 2} more" if len(strangers) > 2 else ""
        yield Rejection("foreign", "no compute process", str(len(strangers)), False, told + more)


def _stranger(process: CardProcess) -> str:
    who = f" of {words.name(process.user)}" if process.user else ""
    amount = f", {words.gib(process.vram_mib)}" if process.vram_mib is not None else ""
    return f"pid {process.pid} {words.name(process.name) or 'process'}{who}{amount}"


def _busy(seat: Seat) -> Iterator[Rejection]:
    used, most = seat.card.utilization_percent, seat.demand.max_utilization_percent
    if not seat.card.processes_listed and seat.held is None and used is not None and used > most:
        looks = seat.card.utilization_looks
        often = f"up to {used}% busy in {looks} looks" if looks > 1 else f"{used}% busy"
        told = f"{often}, and its processes cannot be listed"
        yield Rejection("utilization", f"at most {most}%", f"{used}%", False, told)


def _compute_mode(seat: Seat) -> Iterator[Rejection]:
    mode = seat.card.compute_mode
    if mode == "prohibited":
        yield Rejection("compute_mode", "default", mode, True, "compute mode prohibited")
    elif (
        mode.startswith("exclusive")
        and seat.held is None
        and any(process.kind == "compute" for process in seat.card.processes)
    ):
        yield Rejection("compute_mode", "default", mode, False, f"compute mode {mode}, and a process is on it")


def _mig(seat: Seat) -> Iterator[Rejection]:
    if seat.card.mig == "on":
        yield Rejection("mig_unsupported", "MIG off", "MIG on", True, "mig_unsupported")


def _versions(seat: Seat) -> Iterator[Rejection]:
    rows = (
        ("compute_capability", seat.demand.compute_capability, seat.card.compute_capability, "compute capability"),
        ("driver", seat.demand.driver, seat.reading.cards.driver, "driver"),
        ("cuda", seat.demand.cuda, seat.reading.cards.cuda, "CUDA"),
    )
    for token, bounds, has, noun in rows:
        if bounds is not None and not (parse(has) and within(parse(has), bounds)):
            low, high = (".".join(map(str, side)) if side else "" for side in (bounds.low, bounds.high))
            asked, shown = f"{low}..{high}", words.harmless(has) or "unknown"
            yield Rejection(token, asked, shown, True, f"{noun} {shown}, asks {asked}")


CHECKS: tuple[Callable[[Seat], Iterator[Rejection]], ...] = (
    _pinned,
    _state,
    _mig,
    _model,
    _total,
    _vram,
    _versions,
    _compute_mode,
    _holding,
    _foreign,
    _busy,
    _kept,
)
