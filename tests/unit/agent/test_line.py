"""Whose turn it is: tables, and the laws of the line for every set of tickets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicrun.agent.line import HOLDS, PAUSES, WAITING, Ticket, holder_of, in_order, may_try, waiting_for

CARDS = ("GPU-a", "GPU-b", "GPU-c")


def waits(number: int, cards: str, uid: int = 1, priority: int = 0) -> Ticket:
    return Ticket(number, f"{number:016x}", uid, True, WAITING, tuple(f"GPU-{c}" for c in cards), priority)


def holds(number: int, cards: str, uid: int = 1) -> Ticket:
    return replace(waits(number, cards, uid), says=HOLDS)


TABLE = [
    ("alone", [waits(1, "a")], 1, True, 1),
    ("second", [waits(1, "a"), waits(2, "a")], 2, False, 2),
    ("another card", [waits(1, "a"), waits(2, "b")], 2, True, 1),
    ("held", [holds(1, "a"), waits(2, "a")], 2, False, 1),
    ("held elsewhere", [holds(1, "b"), waits(2, "a")], 2, True, 1),
    ("no passing a job of many cards", [holds(1, "a"), waits(2, "ab"), waits(3, "b")], 3, False, 2),
    ("the dead are skipped", [replace(waits(1, "a"), live=False), waits(2, "a")], 2, True, 1),
    ("a dead holder holds nothing", [replace(holds(1, "a"), live=False), waits(2, "a")], 2, True, 1),
    ("without words nobody is in the way", [replace(waits(1, "a"), says=""), waits(2, "a")], 2, True, 1),
    ("who pauses is passed meanwhile", [replace(waits(1, "a"), says=PAUSES), waits(2, "a")], 2, True, 1),
    ("after its pause it is before who came later", [waits(1, "a"), waits(2, "a")], 2, False, 2),
    ("also before one who holds the card by then", [waits(1, "a"), holds(2, "a"), waits(3, "a")], 3, False, 2),
    ("own priority", [waits(1, "a"), waits(2, "a", priority=1)], 2, True, 1),
    ("the passed one waits", [waits(1, "a"), waits(2, "a", priority=1)], 1, False, 2),
    ("another's priority is nothing", [waits(1, "a"), waits(2, "a", uid=2, priority=9)], 2, False, 2),
    ("never past another", [waits(1, "a"), waits(2, "a", uid=2), waits(3, "a", priority=9)], 3, False, 3),
    (
        "past another who wants other cards",
        [waits(1, "a"), waits(2, "b", uid=2), waits(3, "a", priority=9)],
        3,
        True,
        1,
    ),
    ("behind an own equal", [waits(1, "a", priority=1), waits(2, "a"), waits(3, "a", priority=1)], 3, False, 2),
]


@pytest.mark.parametrize(("tickets", "mine", "may", "position"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE])
def test_turn(tickets: list[Ticket], mine: int, may: bool, position: int) -> None:
    turn = may_try(tickets, next(one for one in tickets if one.number == mine))
    assert (turn.may_try, turn.position) == (may, position)


def test_the_ticket_ahead_is_the_last_before_mine_and_the_holder_is_named() -> None:
    tickets = [holds(1, "a"), waits(2, "a"), waits(3, "b"), waits(4, "a"), waits(5, "a")]
    turn = may_try(tickets, tickets[-1])
    assert turn.ahead == tickets[3]
    assert turn.holder == tickets[0]
    assert holder_of(tickets, "GPU-a") == tickets[0]
    assert waiting_for(tickets, "GPU-a") == 3


@st.composite
def lines(draw: st.DrawFn) -> list[Ticket]:
    count = draw(st.integers(1, 8))
    found = []
    for number in range(count):
        cards = tuple(sorted(draw(st.sets(st.sampled_from(CARDS), min_size=1))))
        says = draw(st.sampled_from((WAITING, WAITING, WAITING, HOLDS, "")))
        uid, priority = draw(st.integers(1, 3)), draw(st.integers(-1, 2))
        found.append(
            Ticket(number, f"{number:016x}", uid, draw(st.booleans()) or number % 3 > 0, says, cards, priority)
        )
    return draw(st.permutations(found))


def standing(tickets: list[Ticket]) -> list[Ticket]:
    return [one for one in tickets if one.live and one.says == WAITING]


@given(lines())
def test_nobody_passes_another_account_on_a_card(tickets: list[Ticket]) -> None:
    line = in_order(standing(tickets))
    for place, late in enumerate(line):
        for early in line[place + 1 :]:
            if late.number > early.number and late.wants(early):
                assert late.uid == early.uid
                assert late.priority > early.priority


@given(lines())
def test_equal_priority_of_one_account_is_first_in_first_out(tickets: list[Ticket]) -> None:
    line = in_order(standing(tickets))
    for place, one in enumerate(line):
        for other in line[place + 1 :]:
            if one.uid == other.uid and one.priority == other.priority and one.wants(other):
                assert one.number < other.number


@given(lines())
def test_those_who_may_try_at_once_want_different_cards(tickets: list[Ticket]) -> None:
    trying = [one for one in standing(tickets) if may_try(tickets, one).may_try]
    for place, one in enumerate(trying):
        assert not any(one.wants(other) for other in trying[place + 1 :])


@given(lines())
def test_everybody_comes_to_their_turn_and_nobody_is_pushed_back_by_another(tickets: list[Ticket]) -> None:
    """Jobs start and end until the line is empty: no set of tickets waits for itself."""
    left = [replace(one, live=False) if one.says == HOLDS else one for one in tickets]
    late = Ticket(99, "f" * 16, 9, True, WAITING, CARDS, 9)
    while standing(left):
        trying = [one for one in standing(left) if may_try(left, one).may_try]
        assert trying
        # A newcomer of another account, however important to itself, changes nobody's turn.
        assert all(may_try([*left, late], one) == may_try(left, one) for one in standing(left))
        left = [one for one in left if one not in trying]


@given(lines())
def test_the_dead_change_nothing(tickets: list[Ticket]) -> None:
    living = [one for one in tickets if one.live]
    for mine in standing(tickets):
        assert may_try(tickets, mine) == may_try(living, mine)
