"""A saved plan: whole, by its schema, and stale with the fact named once the world moved."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from support import REPOSITORY
from unit.plan.worlds import (
    ATTIC,
    MEASURED,
    answered,
    card,
    fleet,
    gpu_box,
    held,
    home,
    job,
    lab,
    machine,
    sft_wish,
    silent,
    spec,
    wish,
)

from aicrun.cli.views.plan_json import plan_document
from aicrun.plan.decide import plan
from aicrun.plan.model import Bound, Fleet, MachineView, Options, Plan, Wanted
from aicrun.plan.saved import from_document, moved, to_document
from aicrun.spec.model import Reached, Selector
from aicrun.wire.jobs import Source

SCHEMA = json.loads((REPOSITORY / "schemas/plan.schema.json").read_text("utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
DIGITS = wish(spec("digits"), source=Source("aa" * 32, 3, 100, "9f2c1ab", "main", ("train.py",)))
LED = Reached("ana", "203.0.113.7", 2222, "OpenSSH", "proxycommand is set", ("ED25519 SHA256:8Yw0mJr1", "RSA SHA256:a"))


def _plans() -> dict[str, Plan]:
    busy = job(sft_wish(), cards=(lab().reading.cards.cards[1].uuid,))  # type: ignore[union-attr]  # it has a reading
    other = sft_wish(env={"LR": "3e-4"}, execution={"command": "x"})
    return {
        "starts": plan((sft_wish(),), fleet(gpu_box(measured=(MEASURED,)), lab(), home(), ATTIC), Options()),
        "reached": plan((DIGITS,), fleet(replace(answered("lab"), reached=LED)), Options()),
        "cpu": plan((DIGITS,), fleet(answered("lab"), file=""), Options()),
        "refused": plan((other,), fleet(lab(jobs=(busy,))), Options()),
        "replaced": plan((other,), fleet(lab(jobs=(busy,)), home()), Options(replace=True)),
        "rejected": plan((sft_wish(),), fleet(gpu_box()), Options(use_kept=True)),
        "silent": plan((DIGITS,), fleet(answered("lab"), silent("home")), Options()),
        "kept": plan((DIGITS,), fleet(answered("lab", jobs=(job(DIGITS, "succeeded"),))), Options()),
        "uploads": plan((DIGITS,), fleet(answered("lab", jobs=(job(DIGITS, "upload failed"),))), Options()),
        "empty": plan((), fleet(), Options()),
    }


def test_the_schema_is_valid_itself() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", sorted(_plans()))
def test_every_document_is_valid_and_comes_back_whole(name: str) -> None:
    made = _plans()[name]
    document = json.loads(json.dumps(plan_document(made)))
    VALIDATOR.validate(document)
    assert from_document(document) == made
    assert json.loads(json.dumps(to_document(from_document(document)))) == document


def test_the_schema_would_see_a_field_that_changed_its_name() -> None:
    document = json.loads(json.dumps(to_document(_plans()["starts"])))
    document["runs"][0]["verdicts"][0]["renamed"] = 1
    assert not VALIDATOR.is_valid(document)
    del document["runs"][0]["verdicts"][0]["renamed"]
    del document["runs"][0]["headline"]
    assert not VALIDATOR.is_valid(document)


@pytest.mark.parametrize(
    "broken",
    [
        {},
        [],
        "plan",
        {"kind": "plan", "schema_version": 2},
        {"kind": "plan", "schema_version": 1},
        {"kind": "plan", "schema_version": 1, "runs": [{}], "fleet": {}},
        {"kind": "list", "schema_version": 1},
    ],
)
def test_what_is_no_plan_is_a_value_error(broken: Any) -> None:
    with pytest.raises(ValueError, match=r"saved plan|schema_version|missing|expected"):
        from_document(broken)


def test_every_place_of_a_document_is_checked() -> None:
    document = json.loads(json.dumps(to_document(_plans()["starts"])))
    for path, value in (("sign", "?"), ("run", 3), ("verdicts", {}), ("chosen", [{"is": "planet"}]), ("named", [1])):
        broken = json.loads(json.dumps(document))
        broken["runs"][0][path] = value
        with pytest.raises(ValueError, match=path):
            from_document(broken)


# What moved.


def _moves(wanted: Wanted, now: Fleet, made: Plan, later: Wanted | None = None) -> dict[str, tuple[str, str]]:
    return {fact.what: (fact.then, fact.now) for fact in moved(made, now, (later or wanted,))}


def _gpu_world(view: MachineView) -> Fleet:
    return fleet(gpu_box(), view, home(), ATTIC)


def _reread(view: MachineView, **changes: Any) -> MachineView:
    assert view.reading is not None
    return replace(view, reading=replace(view.reading, **changes))


def test_nothing_moved_in_an_unchanged_world() -> None:
    made = plan((sft_wish(),), _gpu_world(lab()), Options())
    assert moved(made, _gpu_world(lab()), (sft_wish(),)) == ()


def test_noise_does_not_make_a_plan_stale() -> None:
    made = plan((sft_wish(),), _gpu_world(lab()), Options())
    now = _reread(lab(free1=46.1), cpus_free=3.0, memory_free_mib=90_000, active_jobs=2, took_s=0.4)
    assert moved(made, _gpu_world(now), (sft_wish(),)) == ()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda: _reread(lab(), host_id="another"), "identity of lab"),
        (lambda: _reread(lab(), cards=replace(lab().reading.cards, driver="575.57")), "driver of lab"),  # type: ignore[union-attr]  # it has one
        (lambda: lab(47.0, held("whisper-xl", "alice", 60.0)), "lab[1]"),
        (lambda: lab(3.0), "lab[1]"),
        (lambda: MachineView(lab().machine, "silent", why="no answer"), "lab answers"),
    ],
)
def test_a_fact_that_moved_is_named(change: Callable[[], MachineView], what: str) -> None:
    made = plan((sft_wish(),), _gpu_world(lab()), Options())
    assert what in _moves(sft_wish(), _gpu_world(change()), made)


def test_a_card_that_is_gone_is_named_by_its_uuid() -> None:
    made = plan((sft_wish(),), _gpu_world(lab()), Options())
    reading = lab().reading
    assert reading is not None
    fewer = replace(reading.cards, cards=reading.cards.cards[:1])
    moves = _moves(sft_wish(), _gpu_world(_reread(lab(), cards=fewer)), made)
    assert moves[f"card {reading.cards.cards[1].uuid}"] == ("lab[1]", "gone")


def test_the_source_the_inventory_and_the_jobs_are_bound_too() -> None:
    made = plan((DIGITS,), fleet(answered("lab")), Options())
    edited = replace(DIGITS, source=Source("bb" * 32, 3, 101, "9f2c1ab", "main", ("train.py", "a", "b", "c")))
    entry = machine("lab", data="/data2", env={"A": "2"})
    now = replace(fleet(answered("lab", entry=entry, jobs=(job(DIGITS),))), inventory_digest="ffff0000")
    moves = _moves(DIGITS, now, made, edited)
    assert set(moves) == {"data of lab", "env.A of lab", "source of digits", "jobs of digits"}
    assert moves["data of lab"] == ("/data", "/data2")
    assert moves["jobs of digits"] == ("none", "7c1e09d2a4b86f13 in progress")
    assert moves["source of digits"][1].endswith(": train.py, a, b")


def test_a_job_that_ended_meanwhile_makes_the_plan_stale() -> None:
    made = plan((DIGITS,), fleet(answered("lab", jobs=(job(DIGITS, "failed"),))), Options(again=True))
    now = fleet(answered("lab", jobs=(job(DIGITS, "succeeded"),)))
    assert list(_moves(DIGITS, now, made)) == ["jobs of digits"]


def test_a_machine_that_left_the_inventory_is_named() -> None:
    made = plan((DIGITS,), fleet(answered("lab")), Options())
    moves = _moves(DIGITS, fleet(answered("desk")), made)
    assert moves["identity of lab"] == ("lab-id", "not there")
    assert moves["lab for it"] == ("fits", "no answer")


@pytest.mark.parametrize(
    "now",
    [
        replace(fleet(answered("lab"), answered("home")), inventory_digest="ffff0000", inventory_file="other.yaml"),
        fleet(answered("home"), answered("lab")),
        fleet(answered("lab"), answered("home"), answered("new")),
        fleet(answered("lab"), answered("home", entry=machine("home", data="/other", max_jobs=2, labels={"a": "b"}))),
    ],
    ids=("hash", "order", "one more", "another's entry"),
)
def test_what_changed_in_the_list_and_matters_to_no_run_makes_nothing_stale(now: Fleet) -> None:
    made = plan((DIGITS,), fleet(answered("lab"), answered("home")), Options())
    assert made.runs[0].machine == "lab"
    assert _moves(DIGITS, now, made) == {}


def test_a_machine_that_nobody_would_ask_for_a_copy_any_more_makes_the_plan_stale() -> None:
    made = plan((DIGITS,), fleet(answered("lab"), answered("home"), ATTIC), Options())
    off = MachineView(machine("home", down=True), "down", why="down: true in machines.yaml")
    assert _moves(DIGITS, fleet(answered("lab")), made) == {"home in machines.yaml": ("asked", "not there")}
    assert _moves(DIGITS, fleet(answered("lab"), off, ATTIC), made) == {
        "home in machines.yaml": ("asked", "down: true")
    }
    pinned = wish(spec("digits", machine=Selector(names=("lab",))))
    only = plan((pinned,), fleet(answered("lab"), answered("home")), Options())
    assert _moves(pinned, fleet(answered("lab")), only) == {}
    assert set(_moves(pinned, fleet(answered("lab")), only, replace(pinned, known_on=("home",)))) == {
        "home in machines.yaml"
    }


def test_a_card_that_its_owner_keeps_by_now_makes_the_plan_stale() -> None:
    made = plan((sft_wish(),), _gpu_world(lab()), Options())
    kept = replace(lab(), machine=replace(lab().machine, keep_free=(1,)))
    reading = lab().reading
    assert reading is not None
    uuid = reading.cards.cards[1].uuid
    assert _moves(sft_wish(), _gpu_world(kept), made)[f"card {uuid}"] == ("lab[1]", "lab[1], kept by its owner")


def test_a_plan_that_an_older_version_bound_to_the_whole_list_is_held_against_the_rest() -> None:
    made = plan((DIGITS,), fleet(answered("lab")), Options())
    older = replace(made, bounds=(Bound("machines.yaml", "4be1c07a"), *made.bounds))
    assert _moves(DIGITS, fleet(answered("lab")), older) == {}


def test_several_cards_are_bound_each() -> None:
    pair = answered("pair", (card(0, "RTX 3090", 24), card(1, "RTX 3090", 24)))
    from unit.plan.worlds import gpu_spec

    wanted = wish(gpu_spec(20, count=2))
    made = plan((wanted,), fleet(pair), Options())
    assert {"pair[0]", "pair[1]"} <= {bound.what for bound in made.bounds}
    assert moved(made, fleet(pair), (wanted,)) == ()


def test_a_machine_that_fell_silent_and_may_hold_the_run_makes_the_plan_stale() -> None:
    made = plan((DIGITS,), fleet(answered("lab"), answered("home")), Options())
    moves = _moves(DIGITS, fleet(answered("lab"), silent("home")), made)
    assert moves == {"silent machines that may hold digits": ("none", "home")}


def test_the_exit_code_of_several_refusals_is_the_one_of_the_table() -> None:
    from unit.plan.worlds import gpu_spec

    from aicrun.errors import PRECEDENCE, Exit
    from aicrun.plan.saved import EXITS

    assert list(EXITS) == [code for code in PRECEDENCE if code in [Exit(one) for one in EXITS]]
    failed, rejected = wish(spec("failed-run")), wish(gpu_spec(90, "large-run"))
    made = plan((rejected, failed), fleet(answered("lab", jobs=(job(failed, "failed"),))), Options())
    assert [item.refusal.exit for item in made.runs if item.refusal is not None] == [5, 8]
    assert to_document(made)["exit"] == 8
