"""One machine under two names is told and counted once; what only looks like it is not; who was left out is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unit.plan.worlds import answered, card, fleet, gpu_spec, machine, silent, wish

from aicrun.plan.decide import plan
from aicrun.plan.model import Fleet, MachineView, Options, Sign
from aicrun.plan.twins import counted_once
from aicrun.wire.codec import replace as swap
from aicrun.wire.facts import BootIdentity

LAB = answered("lab", (card(0, "RTX A6000", 48), card(1, "RTX A6000", 48)))


def again(view: MachineView, name: str, **facts: Any) -> MachineView:
    """The same host under another name, but for what is told."""
    assert view.reading is not None
    return replace(view, machine=machine(name), reading=swap(view.reading, **facts))


def states(*views: MachineView) -> list[str]:
    return [view.state for view in counted_once(views)]


def test_the_second_name_of_a_machine_gives_no_reading() -> None:
    first, second = counted_once((LAB, again(LAB, "lab-lan")))
    assert (first, second.state, second.reading) == (LAB, "twin", None)
    assert second.why == "lab under another name"
    assert states(LAB, again(LAB, "a"), again(LAB, "b")) == ["answered", "twin", "twin"]


@pytest.mark.parametrize(
    "facts",
    [
        {"uid": 1001, "account": "bo", "state_root": "/home/bo/.local/state/aicrun"},
        {"boot": BootIdentity("other", "pid:[1]", 10)},
        {"boot": BootIdentity("boot", "pid:[2]", 10)},
        {"boot": BootIdentity("boot", "pid:[1]", 99)},
        {"host_id": "other"},
        {"state_root": "/data/aicrun"},
    ],
    ids=["another account", "a clone", "a container", "a container begun later", "another id", "another state folder"],
)
def test_what_differs_in_one_thing_is_another_owner(facts: dict[str, Any]) -> None:
    assert states(LAB, again(LAB, "other", **facts)) == ["answered", "answered"]


def test_two_runs_get_the_two_cards_and_not_one_card_twice() -> None:
    there = fleet(*counted_once((LAB, again(LAB, "lab-lan"))))
    wishes = tuple(wish(gpu_spec(40, name)) for name in ("a", "b", "c"))
    made = plan(wishes, there, Options())
    assert [item.sign for item in made.runs] == [Sign.START, Sign.START, Sign.WAIT]
    assert {item.machine for item in made.runs} == {"lab"}


def test_a_twin_keeps_nothing_from_starting_and_is_no_place() -> None:
    there = fleet(*counted_once((LAB, again(LAB, "lab-lan"))))
    (item,) = plan((wish(gpu_spec(40, "a")),), there, Options()).runs
    assert item.sign is Sign.START
    (pinned,) = plan((wish(gpu_spec(40, "a", {"names": ("lab-lan",)})),), there, Options()).runs
    words = [reason.words for verdict in pinned.verdicts for reason in verdict.rejections]
    assert (pinned.sign, "is lab under another name" in words) == (Sign.REFUSE, True)


def _left(there: Fleet, known_on: tuple[str, ...] = ()) -> tuple[tuple[str, ...], tuple[str, ...]]:
    (item,) = plan((replace(wish(gpu_spec(40, "a")), known_on=known_on),), there, Options()).runs
    assert item.draft is not None, item
    return item.draft.left_out, item.warnings


def test_a_machine_that_was_left_out_is_told_and_kept_in_the_job() -> None:
    home = replace(silent("home"), state="excepted", why="by --except")
    names, warnings = _left(fleet(LAB, home))
    assert names == ("home",)
    assert "home was not asked (--except): a second copy of a may be running there" in warnings


def test_a_machine_that_is_down_is_told_only_where_something_names_it() -> None:
    home = replace(silent("home"), state="down", why="down: true in machines.yaml")
    assert _left(fleet(LAB, home)) == ((), ())
    names, warnings = _left(fleet(LAB, home), known_on=("home",))
    assert names == ("home",)
    assert "home was not asked (down: true): a second copy of a may be running there" in warnings


def test_an_excepted_machine_that_the_selector_does_not_admit_costs_nothing() -> None:
    home = replace(silent("home"), state="excepted", why="by --except")
    (item,) = plan((wish(gpu_spec(40, "a", {"names": ("lab",)})),), fleet(LAB, home), Options()).runs
    assert (item.warnings, item.draft is not None and item.draft.left_out) == ((), ())
