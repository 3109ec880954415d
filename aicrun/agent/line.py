"""Whose turn it is: one pure function over the tickets that stand. It must not read, lock or write anything.

The line is one order for all, so that two jobs never wait for each other. Nobody passes a ticket of another account
that wants a card of theirs; among tickets of one account the higher priority goes first as far as that allows.
"""

from typing import Iterable, List, Optional, Tuple

from aicrun.wire import lean

WAITING = "waiting"
HOLDS = "holds"
# It waits out a pause before it tries again: others may have its cards meanwhile, its place is kept by its number.
PAUSES = "pauses"


@lean.dataclass(frozen=True)
class Ticket:
    """One job that stands in line or holds cards. `number` is its boot-time, `uid` the kernel's word for its account.

    Everything but `number`, `job_id`, `uid` and `live` is its owner's word and counts only while it is `live`.
    `since_s` is boot-time seconds; `says` is `waiting`, `holds`, `pauses` or empty.
    """

    number: int
    job_id: str
    uid: int
    live: bool = True
    says: str = ""
    cards: Tuple[str, ...] = ()
    priority: int = 0
    run: str = ""
    pid: int = 0
    since_s: float = 0.0

    def wants(self, other: "Ticket") -> bool:
        """True when both speak of one card."""
        return not set(self.cards).isdisjoint(other.cards)


@lean.dataclass(frozen=True)
class Turn:
    """Whether a ticket may try for its cards. `position` counts from 1 those that wait for a card of its.

    `ahead` is the ticket to look at while it waits, `holder` one that holds a card of its.
    """

    may_try: bool
    position: int
    ahead: Optional[Ticket] = None
    holder: Optional[Ticket] = None


def may_try(tickets: Iterable[Ticket], mine: Ticket) -> Turn:
    """The turn of `mine` among `tickets` (which may hold it too); dead ones and those without words are skipped."""
    others = [one for one in tickets if one.live and _key(one) != _key(mine)]
    holder = next((one for one in others if one.says == HOLDS and one.wants(mine)), None)
    line = in_order([one for one in others if one.says == WAITING] + [mine])
    before = [one for one in line[: line.index(mine)] if one.wants(mine)]
    ahead = before[-1] if before else None
    return Turn(ahead is None and holder is None, len(before) + 1, ahead, holder)


def in_order(waiting: Iterable[Ticket]) -> List[Ticket]:
    """The line of those that wait, first to last."""
    line: List[Ticket] = []
    for ticket in sorted(waiting, key=_key):
        line.insert(_place(line, ticket), ticket)
    return line


def holder_of(tickets: Iterable[Ticket], uuid: str) -> Optional[Ticket]:
    """The live ticket that says it holds the card, None when none does."""
    return next((one for one in tickets if one.live and one.says == HOLDS and uuid in one.cards), None)


def waiting_for(tickets: Iterable[Ticket], uuid: str) -> int:
    """How many live tickets wait for the card."""
    return sum(1 for one in tickets if one.live and one.says == WAITING and uuid in one.cards)


def _place(line: List[Ticket], ticket: Ticket) -> int:
    """Where a ticket later than all of `line` goes: before own ones of lower priority, never past anybody else."""
    place = len(line)
    for index in range(len(line) - 1, -1, -1):
        other = line[index]
        if other.uid == ticket.uid and other.priority < ticket.priority and other.wants(ticket):
            place = index
        elif other.wants(ticket):
            break
    return place


def _key(ticket: Ticket) -> Tuple[int, str]:
    return ticket.number, ticket.job_id
