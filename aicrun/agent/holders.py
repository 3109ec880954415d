"""Who holds each card and how many wait for it, from live tickets: words for plans and people, never a reason to grant.

It must not make anything on the machine: where nobody ever took a lock there is nobody to name.
"""

import os
from typing import Optional, Tuple

from aicrun.agent import leases, line, lock_folder, tickets
from aicrun.agent.card_users import account
from aicrun.agent.refused import Refused
from aicrun.wire.codec import replace
from aicrun.wire.facts import Card, Cards, Holder


def with_holders(found: Cards) -> Cards:
    """The cards with holder and length of line; a lock that is held without a ticket has a holder without a name."""
    if not found.cards:
        return found
    try:
        with lock_folder.seen(lock_folder.here()) as folder:
            if folder is None:
                return found
            seen = tickets.read(folder)
            return replace(found, cards=tuple(_told(folder, seen, card) for card in found.cards))
    except (Refused, OSError):
        # A reading is for planning: what cannot be locked is refused, with its reason, when a job wants it.
        return found


def _told(folder: lock_folder.LockFolder, seen: Tuple[line.Ticket, ...], card: Card) -> Card:
    if not card.uuid:
        return card
    return replace(card, holder=_holder(folder, seen, card.uuid), waiting=line.waiting_for(seen, card.uuid))


def _holder(folder: lock_folder.LockFolder, seen: Tuple[line.Ticket, ...], uuid: str) -> Optional[Holder]:
    one = line.holder_of(seen, uuid)
    if one is not None:
        age_s = max(0.0, tickets.now_s() - one.since_s)
        return Holder(one.run, account(one.uid), one.job_id, round(age_s, 1), one.uid == os.geteuid())
    return Holder("", "", "", 0.0) if leases.is_held(folder, uuid) else None
