"""How near a run came to another place: the tighter fit later, the largest that would fit, what is too small.

It must not judge anew: everything comes from the verdicts.
"""

from __future__ import annotations

from collections.abc import Iterable

from aicrun.plan import words
from aicrun.plan.model import Candidate, CardOn, HostOn, KindOn, Verdict

# Reasons that go away by themselves, so that standing in line makes sense.
WAITABLE = frozenset(
    ("held", "vram_free", "foreign", "utilization", "compute_mode", "taken_by_plan", "count", "drained")
)


def place_name(candidate: Candidate) -> str:
    """`lab[1]`, or the machine's name."""
    if isinstance(candidate, CardOn):
        return f"{candidate.machine}[{candidate.index}]"
    return f"{candidate.machine} ({candidate.kind})" if isinstance(candidate, KindOn) else candidate.machine


def places_name(chosen: tuple[Candidate, ...]) -> str:
    """`lab[0-1]` for neighbouring cards of one machine, `lab[0,2]` for others."""
    cards = [item for item in chosen if isinstance(item, CardOn)]
    if len(cards) < 2:
        return place_name(chosen[0]) if chosen else ""
    return f"{cards[0].machine}[{index_ranges([card.index for card in cards])}]"


def index_ranges(indices: Iterable[int]) -> str:
    """`0-3,6` for 0, 1, 2, 3 and 6."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(f"{low}-{high}" if high > low else str(low) for low, high in runs)


def later_spare(verdict: Verdict) -> int | None:
    """MiB left over on the card once everybody is off it; None when it can never be told or never fits."""
    if verdict.lasting or verdict.unknown or verdict.room_mib is None or verdict.need_mib is None:
        return None
    return verdict.room_mib - verdict.need_mib


def freed_when(verdict: Verdict) -> str:
    """What has to happen before this card is free: `once dpo-2 ends`."""
    for reason in verdict.rejections:
        if reason.token in ("held", "taken_by_plan"):
            return f"once {reason.offered} ends" if reason.offered != "held" else "once its holder ends"
        if reason.token in ("foreign",):
            return f"once {' '.join(reason.words.split(' ')[:2])} is gone"
        if reason.token == "drained":
            return "once its drain is lifted"
    return "once it is free"


def tightest_later(verdicts: tuple[Verdict, ...]) -> Verdict | None:
    """The card that would fit with the least spare once it is free; None when waiting frees nothing."""
    later = [(spare, verdict) for verdict in verdicts if (spare := later_spare(verdict)) is not None and spare >= 0]
    return min(((spare, item) for spare, item in later if not item.fits), key=lambda one: one[0], default=(0, None))[1]


def tighter(chosen: Verdict, later: Verdict | None) -> str:
    """The nearest miss of a run that has its card: a card that would have been the tighter fit; empty for none."""
    spare = later_spare(later) if later is not None else None
    if later is None or spare is None or chosen.spare_mib is None or spare >= chosen.spare_mib:
        return ""
    return f"{place_name(later.candidate)} is the tighter fit, {words.gib(spare)} spare, {freed_when(later)}"


def miss(verdicts: tuple[Verdict, ...]) -> str:
    """The nearest miss of a run that got nothing, in one sentence; empty when the table has said it all."""
    later = tightest_later(verdicts)
    spare = later_spare(later) if later is not None else None
    if later is not None and spare is not None:
        return f"{place_name(later.candidate)} would fit, {words.gib(spare)} spare, {freed_when(later)}"
    return _too_small(verdicts) or _fewest(verdicts)


def largest_room(verdicts: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    """The cards with the most room among those that only their size speaks against, the best first."""
    small = [item for item in verdicts if item.room_mib is not None and _only_size(item)]
    most = max((item.room_mib or 0 for item in small), default=0)
    # Cards of one kind differ by a few MiB; people see them as one size.
    return tuple(item for item in small if (item.room_mib or 0) >= most - 512)


def _only_size(verdict: Verdict) -> bool:
    lasting = {reason.token for reason in verdict.rejections if reason.lasting}
    return lasting == {"vram_size"}


def _too_small(verdicts: tuple[Verdict, ...]) -> str:
    best = largest_room(verdicts)
    if not best or best[0].total_mib is None or best[0].need_mib is None:
        return ""
    cards = [item.candidate for item in best if isinstance(item.candidate, CardOn)][:4]
    models = words.joined(list(dict.fromkeys(card.model for card in cards)))
    each = " each" if len(cards) > 1 else ""
    has, asks = words.apart(best[0].total_mib, best[0].need_mib)
    return f"{words.joined([place_name(card) for card in cards])}, {models}: {has}{each}, {asks} asked on one"


def _fewest(verdicts: tuple[Verdict, ...]) -> str:
    """The place with the fewest reasons against it, and those reasons."""
    rejected = [item for item in verdicts if item.rejections and not _was_not_asked(item)]
    # With a single place the table has said it all.
    if len(rejected) < 2:
        return ""
    best = min(rejected, key=lambda item: len(item.rejections))
    return f"{place_name(best.candidate)}: {'; '.join(reason.words for reason in best.rejections)}"


def _was_not_asked(verdict: Verdict) -> bool:
    tokens = {reason.token for reason in verdict.rejections}
    return isinstance(verdict.candidate, HostOn) and bool(tokens & {"down", "excepted", "twin"})
