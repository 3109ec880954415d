"""Which cards of a machine its owner keeps, and which of those that the inventory names are not there any more.

It must not judge a demand: that a kept card is rejected is said in `fit.py`.
"""

from __future__ import annotations

from aicrun.spec.model import Machine
from aicrun.wire.facts import Card, HostReading


def keeps(machine: Machine, card: Card) -> bool:
    """True for a card that `keep_free` names, by its UUID (case does not matter) or by its number."""
    if not machine.keep_free:
        return False
    named = {str(item).lower() for item in machine.keep_free}
    return str(card.index) in named or (bool(card.uuid) and card.uuid.lower() in named)


def gone(machine: Machine, reading: HostReading) -> tuple[str, ...]:
    """What `keep_free` names and no card of the machine answers to; empty when its cards are not known."""
    if reading.cards.state != "devices":
        return ()
    there = {str(card.index) for card in reading.cards.cards} | {card.uuid.lower() for card in reading.cards.cards}
    return tuple(str(item) for item in machine.keep_free if str(item).lower() not in there)


def gone_words(cards: tuple[str, ...]) -> str:
    """`keep_free names GPU-… and 3, which are not there any more`."""
    verb = "is" if len(cards) == 1 else "are"
    return f"keep_free names {' and '.join(cards)}, which {verb} not there any more"


def gone_warnings(machine: Machine, reading: HostReading) -> tuple[str, ...]:
    """One warning of a plan that places a run beside a kept card that is gone: another may stand in its slot."""
    cards = gone(machine, reading)
    return (f"{machine.name}: {gone_words(cards)}; see `aicrun machines check {machine.name}`",) if cards else ()
