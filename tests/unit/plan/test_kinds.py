"""Machines of one kind are judged once, and nobody can tell: every verdict is the one that each would get alone."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from unit.plan.test_laws import fleets, wishes
from unit.plan.worlds import answered, card, demand, fleet, machine, spec, wish

from aicrun.plan.admit import Need
from aicrun.plan.fit import verdicts
from aicrun.plan.kinds import Kinds
from aicrun.plan.model import CardOn, Fleet, MachineView, Wanted
from aicrun.spec.model import Selector, SetupSpec
from aicrun.wire.codec import replace as with_facts
from aicrun.wire.facts import HostReading, Program


def twin(view: MachineView, number: int) -> MachineView:
    """The same machine under another name, with cards of its own."""
    found = view.reading
    if found is not None:
        cards = tuple(with_facts(one, uuid=f"{one.uuid}-{number}") for one in found.cards.cards)
        found = with_facts(found, hostname=f"twin{number}", cards=with_facts(found.cards, cards=cards))
    return replace(view, machine=replace(view.machine, name=f"{view.machine.name}-{number}"), reading=found)


def with_twins(view: Fleet) -> Fleet:
    return replace(view, machines=(*view.machines, *(twin(one, place) for place, one in enumerate(view.machines))))


@given(fleets(), wishes())
def test_each_verdict_is_the_one_of_the_machine_alone(view: Fleet, wanted: tuple[Wanted, ...]) -> None:
    many = with_twins(view)
    kinds = Kinds(many)
    for one in wanted:
        assert kinds.verdicts(Need(one)) == verdicts(many, Need(one))


@given(st.sampled_from(("names", "uuid", "only_on", "kept", "keep_free", "path")))
def test_who_is_named_is_told_apart(what: str) -> None:
    first = answered("lab", (card(0, "RTX A6000", 48, uuid="GPU-1"),))
    kept: tuple[int | str, ...] = ("GPU-1",) if what == "keep_free" else ()
    entry = machine("attic", keep_free=kept)
    second = answered("attic", (card(0, "RTX A6000", 48, uuid="GPU-2"),), entry)
    first = replace(first, machine=replace(first.machine, keep_free=kept))
    asked = demand(20, uuid="GPU-2" if what == "uuid" else "")
    selector = Selector(gpu=asked, names=("attic",) if what == "names" else ())
    more = {"workspace": "/srv/${machine.name}"} if what == "path" else {}
    need = Need(wish(spec("run", machine=selector, **more)), only_on="attic" if what == "only_on" else "")
    many = fleet(first, second)
    assert Kinds(many).verdicts(need) == verdicts(many, need)


def test_a_machine_that_lacks_what_another_has_is_no_twin_of_it() -> None:
    """The environment that a spec names is a program that was looked for on each."""
    need = Need(wish(spec("run", setup=SetupSpec(venv="/opt/venv"))))
    there, lacking = (Program("/opt/venv/bin/python", "", place) for place in ("/opt/venv/bin/python", ""))
    both = fleet(answered("a", programs=(lacking,)), answered("b", programs=(there,)))
    assert [one.fits for one in Kinds(both).verdicts(need)] == [False, True]
    assert Kinds(both).verdicts(need) == verdicts(both, need)


def test_a_card_without_an_identity_is_no_twin_of_one_that_has_it() -> None:
    bare = answered("attic", (card(0, "RTX A6000", 48, uuid=""),))
    many = fleet(answered("lab", (card(0, "RTX A6000", 48),)), bare)
    need = Need(wish(spec("run", machine=Selector(gpu=demand(20)))))
    found = Kinds(many).verdicts(need)
    assert found == verdicts(many, need)
    assert [bool(one.unknown) for one in found] == [False, True]


def test_every_fact_of_a_reading_makes_a_kind_unless_it_is_a_name_or_is_never_judged() -> None:
    need = Need(wish(spec("run", machine=Selector(gpu=demand(20)))))
    lab = answered("lab", (card(0, "RTX A6000", 48),))
    assert isinstance(lab.reading, HostReading)
    drained = replace(lab.reading and twin(lab, 1), reading=with_facts(lab.reading, active_jobs=99))
    many = fleet(lab, twin(lab, 2), drained)
    assert [one.fits for one in Kinds(many).verdicts(need)] == [True, True, False]
    assert all(isinstance(one.candidate, CardOn) for one in Kinds(many).verdicts(need))
