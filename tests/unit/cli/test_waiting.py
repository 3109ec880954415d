"""Many machines on one screen: who has not answered yet, and who did not at the end."""

from __future__ import annotations

from aicrun.api import Fleet, MachineView
from aicrun.cli.screen import Screen, plain
from aicrun.cli.views.tables import machines_lines
from aicrun.cli.waiting import line
from aicrun.lifecycle.events import Waiting
from aicrun.spec.model import LocalReach, Machine

NAMES = tuple(f"m{number}" for number in range(1, 65))


def test_who_has_not_answered_yet_is_one_line() -> None:
    assert line(Waiting(64, 0, NAMES)) == "0 of 64 machines answered; waiting for m1, m2, m3 and 61 more"
    assert line(Waiting(64, 1, NAMES[:2])) == "61 of 64 machines answered, 1 failed; waiting for m1 and m2"
    assert line(Waiting(1, 0, NAMES[:1])) == "0 of 1 machine answered; waiting for m1"


def shown(count: int) -> str:
    why = "it refuses connections"
    views = tuple(MachineView(Machine(name, LocalReach()), "silent", why=why) for name in NAMES[:count])
    return "\n".join(map(plain, machines_lines(Screen(), Fleet(views), 1.0)))


def test_of_many_machines_those_without_an_answer_are_named_at_the_end() -> None:
    assert "No answer from m1, m2, m3 and 6 more." in shown(9)
    assert shown(9).count("no answer: it refuses connections") == 9


def test_of_few_machines_each_is_still_in_sight() -> None:
    assert "No answer from" not in shown(8)
