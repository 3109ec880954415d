"""What holds for every fleet and every set of wishes, searched for by hypothesis."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from unit.plan.worlds import GIB, answered, card, demand, fleet, held, job, machine, silent, spec, stranger, wish

from aicrun.plan.decide import plan
from aicrun.plan.model import CardOn, Fleet, HostOn, MachineView, Options, Plan, Sign, Wanted
from aicrun.plan.saved import from_document, moved, to_document
from aicrun.spec.model import Selector

MODELS = (("RTX 3090", 24), ("RTX A6000", 48), ("T4", 15), ("GB10", 0))
settings.register_profile("plan", settings.get_profile("shared machine"), max_examples=60)
settings.load_profile("plan")


@st.composite
def cards(draw: Any, index: int) -> Any:
    model, total = draw(st.sampled_from(MODELS))
    free = draw(st.integers(0, max(total - 1, 0)))
    more: dict[str, Any] = {
        "uuid": f"GPU-{index}",
        "display": draw(st.booleans()),
        "mig": draw(st.sampled_from(("off", "off", "on"))),
        "utilization_percent": draw(st.sampled_from((None, 0, 50))),
        "processes_listed": draw(st.booleans()),
        "compute_mode": draw(st.sampled_from(("default", "default", "prohibited", "exclusive_process"))),
    }
    if draw(st.booleans()) and draw(st.booleans()):
        more["holder"] = held("other", "bo", 60.0)
    if draw(st.booleans()) and draw(st.booleans()):
        more["processes"] = (stranger(1, "python", "bo", 1.0),)
    if not total:
        more |= {"vram_total_mib": None, "vram_free_mib": None}
    return card(index, model, total or 1, free, **more)


@st.composite
def machines(draw: Any, name: str) -> MachineView:
    state = draw(st.sampled_from(("answered",) * 6 + ("down", "excepted")))
    entry = machine(name, keep_free=draw(st.sampled_from(((), (), (0,)))), max_jobs=draw(st.sampled_from((1, 2, 32))))
    if state != "answered":
        return MachineView(entry, state)
    found = tuple(draw(cards(index)) for index in range(draw(st.integers(0, 4))))
    free = draw(st.integers(0, 16))
    return answered(name, found, entry, cpus_free=float(free), active_jobs=draw(st.integers(0, 1)))


@st.composite
def fleets(draw: Any) -> Fleet:
    return fleet(*(draw(machines(f"m{place}")) for place in range(draw(st.integers(1, 4)))))


@st.composite
def wishes(draw: Any) -> tuple[Wanted, ...]:
    found = []
    for place in range(draw(st.integers(1, 5))):
        count = draw(st.sampled_from((0, 1, 1, 1, 2, 3)))
        models = draw(st.sampled_from(((), (), ("T4",), ("RTX 3090",))))
        same = draw(st.booleans())
        gpu = (
            demand(draw(st.sampled_from((4, 10, 20, 40))), count=count, models=models, same_model=same)
            if count
            else None
        )
        wait = draw(st.sampled_from((0, 86400)))
        found.append(wish(spec(f"run-{place}", machine=Selector(gpu=gpu, cpus=4), queue_wait_s=wait)))
    return tuple(found)


def _started(made: Plan) -> list[Any]:
    return [item for item in made.runs if item.sign is Sign.START]


@given(fleets(), wishes())
def test_no_plan_puts_two_runs_on_one_card(view: Fleet, wanted: tuple[Wanted, ...]) -> None:
    taken = [one for item in _started(plan(wanted, view, Options())) for one in item.chosen if isinstance(one, CardOn)]
    assert len(taken) == len(set(taken))


@given(fleets(), wishes())
def test_every_card_has_exactly_one_verdict(view: Fleet, wanted: tuple[Wanted, ...]) -> None:
    for item in plan(wanted, view, Options()).runs:
        judged = [verdict.candidate for verdict in item.verdicts]
        assert len(judged) == len(set(judged))
        for one in view.machines:
            own = [candidate for candidate in judged if candidate.machine == one.machine.name]
            has_cards = one.reading is not None and one.reading.cards.cards and item.spec.machine.gpu is not None
            if has_cards and one.reading is not None:
                assert [found.uuid for found in own if isinstance(found, CardOn)] == [
                    found.uuid for found in one.reading.cards.cards
                ]
            else:
                assert own == [HostOn(one.machine.name)]


@given(fleets(), wishes())
def test_a_verdict_fits_is_rejected_or_is_unknown_and_only_one_of_them(view: Fleet, wanted: tuple[Wanted, ...]) -> None:
    for item in plan(wanted, view, Options()).runs:
        for verdict in item.verdicts:
            assert [verdict.fits, bool(verdict.rejections), bool(verdict.unknown)].count(True) == 1
            assert all(reason.words and reason.token for reason in verdict.rejections)


@given(fleets(), wishes())
def test_the_same_input_gives_the_same_plan(view: Fleet, wanted: tuple[Wanted, ...]) -> None:
    assert plan(wanted, view, Options()) == plan(wanted, view, Options())


@given(fleets(), wishes())
def test_the_headroom_stays_free_after_placement(view: Fleet, wanted: tuple[Wanted, ...]) -> None:
    for item in _started(plan(wanted, view, Options())):
        gpu = item.spec.machine.gpu
        for verdict in item.verdicts:
            if gpu is not None and verdict.candidate in item.chosen:
                assert verdict.fits and verdict.free_mib is not None
                assert verdict.free_mib - gpu.vram_mib >= gpu.headroom_mib


@given(fleets(), wishes())
def test_several_cards_are_of_one_machine_and_all_or_none(view: Fleet, wanted: tuple[Wanted, ...]) -> None:
    for item in plan(wanted, view, Options()).runs:
        gpu = item.spec.machine.gpu
        if item.chosen and gpu is not None:
            assert len(item.chosen) == gpu.count
            assert len({one.machine for one in item.chosen}) == 1
            if gpu.same_model:
                assert len({one.model for one in item.chosen if isinstance(one, CardOn)}) == 1


@given(fleets(), wishes(), machines("extra"))
def test_adding_a_machine_never_makes_a_placement_impossible(
    view: Fleet, wanted: tuple[Wanted, ...], extra: MachineView
) -> None:
    before = len(_started(plan(wanted, view, Options())))
    after = len(_started(plan(wanted, fleet(*view.machines, extra), Options())))
    # For runs of one card the matching is exact; bulk demands are placed greedily and looked at one by one.
    if all(one.spec.machine.gpu is None or one.spec.machine.gpu.count == 1 for one in wanted):
        assert after >= before
    for one in wanted:
        if _started(plan((one,), view, Options())):
            assert _started(plan((one,), fleet(*view.machines, extra), Options()))


@given(fleets(), wishes())
def test_no_machine_takes_more_runs_than_it_admits(view: Fleet, wanted: tuple[Wanted, ...]) -> None:
    made = plan(wanted, view, Options())
    for one in view.machines:
        if one.reading is not None:
            here = [item for item in _started(made) if item.machine == one.machine.name]
            assert len(here) <= max(0, one.machine.max_jobs - one.reading.active_jobs)


@given(fleets(), wishes())
def test_a_run_alone_is_started_wherever_something_fits(view: Fleet, wanted: tuple[Wanted, ...]) -> None:
    for one in wanted:
        item = plan((one,), view, Options()).runs[0]
        assert (item.sign is Sign.START) is any(verdict.fits for verdict in item.verdicts)


@given(fleets(), wishes(), st.sampled_from(("running", "failed", "succeeded", "unknown", "undecided")), st.booleans())
def test_a_plan_and_its_document_are_the_same(view: Fleet, wanted: tuple[Wanted, ...], state: str, again: bool) -> None:
    there = answered("there", jobs=(job(wanted[0], state),))
    made = plan(wanted, fleet(*view.machines, there, silent("mute", sleeps=True)), Options(again=again))
    assert from_document(json.loads(json.dumps(to_document(made)))) == made
    assert moved(made, made.fleet, wanted) == ()


@given(fleets(), wishes(), st.sampled_from(("running", "failed", "succeeded", "unknown", "undecided")))
def test_a_run_that_is_there_is_never_started_beside_itself(
    view: Fleet, wanted: tuple[Wanted, ...], state: str
) -> None:
    record = job(wanted[0], state)
    item = plan(wanted, fleet(*view.machines, answered("there", jobs=(record,))), Options()).runs[0]
    assert item.sign is not Sign.START


def test_free_memory_is_never_taken_for_more_than_it_is() -> None:
    wanted = (wish(spec(machine=Selector(gpu=demand(20, 1)))),)
    exact, less = card(0, "RTX 3090", 24, 21), card(0, "RTX 3090", 24, 21 - 1 / GIB)
    item = plan(wanted, fleet(answered("lab", (exact,))), Options()).runs[0]
    assert item.sign is Sign.START and item.verdicts[0].spare_mib == 0
    assert plan(wanted, fleet(answered("lab", (less,))), Options()).runs[0].sign is Sign.WAIT
