"""The table of reconcile, row by row: a record, how the spec differs from it, what was said, and the action.

A cell reads `<sign> [exit code] <kept|new|code>`: the run id that is kept, a new one, or the code of the refusal; with
`attempt N` when the start goes on with the attempts of before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml
from support import REPOSITORY
from unit.plan.worlds import answered, fleet, job, machine, silent, spec, wish

from aicrun.plan.decide import plan
from aicrun.plan.model import MachineView, Options, RunPlan, Wanted, Way
from aicrun.plan.reconcile import TABLE, Row
from aicrun.spec.model import RetrySpec, Selector, SourceSpec
from aicrun.wire.facts import CardProcess
from aicrun.wire.jobs import Source
from aicrun.wire.seen import Checkpoints

CASES = sorted((REPOSITORY / "tests/cases/reconcile").glob("*.yaml"))
FLAGS = {
    "plain": Options(),
    "again": Options(again=True),
    "fresh": Options(fresh=True),
    "replace": Options(replace=True),
    "forget": Options(forget=True),
}
RUN_ID = "3f9a1c0e77b2d416"


def _cells() -> list[Any]:
    found = []
    for path in CASES:
        case = yaml.safe_load(path.read_text("utf-8"))
        for column, cells in case["expect"].items():
            for flag, told in cells.items():
                found.append(pytest.param(case, column, flag, told, id=f"{path.stem}-{column}-{flag}"))
    return found


@pytest.mark.parametrize(("case", "column", "flag", "told"), _cells())
def test_a_cell_of_the_table(case: dict[str, Any], column: str, flag: str, told: str) -> None:
    old = _then(case)
    new = _now(old, column)
    records = (job(old, case["record"], machine="lab", attempt=case.get("attempt", 1)),) if case["record"] else ()
    item = plan((new,), fleet(answered("lab", jobs=records), answered("desk")), FLAGS[flag]).runs[0]
    assert _told(item) == told, item.headline
    _is_consistent(item, old, bool(records))


def _is_consistent(item: RunPlan, old: Wanted, had_record: bool) -> None:
    starts = item.sign.value in "+±"
    assert (item.draft is not None) is (starts or item.sign.value == "~")
    if starts and had_record and item.job is not None:
        assert item.named == (item.job.job_id,)
    if item.draft is not None:
        assert item.draft.run_id == item.run_id
    assert (item.refusal is not None) is (item.sign.value == "x")
    if item.refusal is not None:
        assert item.ways and all(way.command.startswith("aicrun ") for way in item.ways)


def _told(item: RunPlan) -> str:
    if item.refusal is not None:
        return f"{item.sign.value} {item.refusal.exit} {item.refusal.code}"
    told = f"{item.sign.value} {'kept' if item.run_id == RUN_ID else 'new'}"
    first = item.draft.first_attempt if item.draft is not None else 1
    return f"{told} attempt {first}" if first > 1 else told


def _then(case: dict[str, Any]) -> Wanted:
    execution: dict[str, Any] = {"command": "python train.py", "env": {"LR": "1e-4"}}
    supervision: dict[str, Any] = {"limits": {"max_duration": "12h"}}
    if case.get("resume"):
        execution["resume"] = {"from": "latest"}
    one = spec(execution=execution, supervision=supervision, source=SourceSpec("/home/ana/project"))
    if case.get("retry"):
        rule = RetrySpec(case.get("max", 3), tuple(case["retry"]), 60, 900)
        supervision["retry"] = {"max": str(rule.most), "when": case["retry"]}
        one = replace(one, retry=rule, supervision=supervision)
    return wish(one, source=Source("aa" * 32, 3, 100, "9f2c1ab0ffee", "main"))


def _now(old: Wanted, column: str) -> Wanted:
    if column == "same":
        return old
    if column == "source":
        return replace(old, source=Source("bb" * 32, 4, 120, "0a1b2c3d4e5f", "main"))
    if column == "words":
        return replace(old, spec=replace(old.spec, supervision={"limits": {"max_duration": "18h"}}))
    execution = {**old.spec.execution, "env": {"LR": "3e-4"}}
    return replace(old, spec=replace(old.spec, execution=execution))


def test_every_row_of_the_table_has_a_case() -> None:
    shown = set()
    for path in CASES:
        case = yaml.safe_load(path.read_text("utf-8"))
        old = _then(case)
        records = (job(old, case["record"]),) if case["record"] else ()
        from aicrun.plan.known import known_of
        from aicrun.plan.reconcile import reconcile

        shown.add(reconcile(old, known_of(fleet(answered("lab", jobs=records))), Options()).row)
    assert shown == set(Row) == set(TABLE)


# A machine that gave no answer.


def _with_silent(view: MachineView, selector: Selector, known_on: tuple[str, ...] = (), flag: str = "plain") -> RunPlan:
    wanted = wish(spec(machine=selector), known_on=known_on)
    return plan((wanted,), fleet(answered("lab"), view), FLAGS[flag]).runs[0]


@pytest.mark.parametrize(
    ("entry", "state", "selector", "known_on", "flag", "sign"),
    [
        ({}, "silent", Selector(), (), "plain", "x"),
        ({}, "unsupported", Selector(), (), "plain", "x"),
        ({}, "down", Selector(), (), "plain", "+"),
        ({}, "excepted", Selector(), (), "plain", "+"),
        ({}, "silent", Selector(names=("lab",)), (), "plain", "+"),
        ({"labels": {"site": "home"}}, "silent", Selector(labels={"site": "lab"}), (), "plain", "x no place"),
        ({}, "silent", Selector(names=("lab",)), ("home",), "plain", "x"),
        ({}, "silent", Selector(names=("lab",)), ("home",), "forget", "+"),
        ({}, "silent", Selector(), ("home",), "forget", "x"),
        ({}, "silent", Selector(), (), "again", "x"),
        ({"sleeps": True}, "silent", Selector(), (), "plain", "+"),
        ({"sleeps": True}, "silent", Selector(names=("lab", "home")), (), "plain", "x"),
        ({"sleeps": True}, "silent", Selector(), ("home",), "plain", "x"),
        ({}, "down", Selector(), ("home",), "plain", "+"),
    ],
)
def test_a_silent_machine_may_hold_the_run(
    entry: dict[str, Any], state: str, selector: Selector, known_on: tuple[str, ...], flag: str, sign: str
) -> None:
    view = MachineView(machine("home", **entry), state, why="no answer within 5s")
    item = _with_silent(view, selector, known_on, flag)
    assert item.sign.value == sign[0], item.headline
    if sign == "x":
        assert item.refusal is not None
        assert (item.refusal.exit, item.refusal.code) == (6, "AIC-E671")
        assert any("--except home" in way.command for way in item.ways)


def test_a_silent_machine_does_not_hide_a_run_that_goes_on() -> None:
    wanted = wish(spec())
    item = plan((wanted,), fleet(answered("lab", jobs=(job(wanted),)), silent("home")), Options()).runs[0]
    assert item.sign.value == "="


def test_what_would_happen_without_the_silent_machine_is_told() -> None:
    item = _with_silent(silent("home"), Selector())
    assert ("others", "lab answered, it has no copy; lab would fit") in item.rows


# Several records.


def test_a_living_record_counts_before_a_newer_one_that_ended() -> None:
    wanted = wish(spec())
    ended = job(wanted, "failed", job_id="b" * 16, age_s=10.0)
    going = job(wanted, "running", job_id="a" * 16)
    item = plan((wanted,), fleet(answered("lab", jobs=(ended,)), answered("desk", jobs=(going,))), Options()).runs[0]
    assert (item.sign.value, item.machine, item.named) == ("=", "desk", ("b" * 16,))


def test_of_two_ended_records_the_newer_counts_and_both_are_named() -> None:
    wanted = wish(spec())
    old = job(wanted, "failed", job_id="a" * 16, age_s=9000.0)
    new = job(wanted, "succeeded", job_id="b" * 16, age_s=90.0)
    view = fleet(answered("lab", jobs=(old,)), answered("desk", jobs=(new,)))
    assert plan((wanted,), view, Options()).runs[0].sign.value == "="
    again = plan((wanted,), view, Options(again=True)).runs[0]
    assert set(again.named) == {"a" * 16, "b" * 16}


def test_a_record_that_cannot_be_read_refuses_a_start() -> None:
    view = answered("lab", unreadable_records=("sft-run/7c1e09d2a4b86f13",))
    item = plan((wish(spec()),), fleet(view), Options(again=True, forget=True)).runs[0]
    assert item.refusal is not None
    assert (item.refusal.exit, item.refusal.code) == (8, "AIC-E677")
    other = plan((wish(spec("other-run")),), fleet(view), Options()).runs[0]
    assert other.sign.value == "+"


def test_a_run_that_waits_moves_to_a_card_that_is_free() -> None:
    from unit.plan.worlds import card, gpu_spec, held

    busy = card(0, "RTX 3090", 24, 2, holder=held("dpo", "bo", 60.0))
    wanted = wish(gpu_spec(20))
    waiting = job(wanted, "waiting", cards=(busy.uuid,))
    there = answered("lab", (busy,), jobs=(waiting,))
    assert plan((wanted,), fleet(there), Options()).runs[0].sign.value == "="
    item = plan((wanted,), fleet(there, answered("desk", (card(0, "RTX 3090", 24),))), Options()).runs[0]
    assert (item.sign.value, item.machine, item.job_machine) == (">", "desk", "lab")
    assert item.named == (waiting.job_id,)


FOLDER = f"/home/ana/aic-jobs/sft-run/checkpoints/{RUN_ID}"
WHY = "checkpoint-750 skipped: trainer_state.json is missing"


def test_an_earlier_checkpoint_keeps_a_resuming_run_on_its_machine() -> None:
    execution = {"command": "python train.py", "resume": {"from": "latest"}}
    wanted = wish(spec(execution=execution))
    ended = job(
        wanted, "failed", checkpoints=Checkpoints(FOLDER, "checkpoint-750", 60.0, 1, 2, 1, "checkpoint-500", 90.0, WHY)
    )
    view = fleet(answered("desk", cpus_free=64.0), answered("lab", jobs=(ended,)))
    item = plan((wanted,), view, Options(again=True)).runs[0]
    assert (item.machine, item.from_nothing, item.run_id) == ("lab", False, RUN_ID)
    assert item.verdicts[0].rejections[0].token == "checkpoint_elsewhere"
    assert item.rows[item.rows.index(("run id", f"{RUN_ID}, kept: resumes from checkpoint-500")) + 1] == ("", WHY)


def test_a_machine_that_was_named_otherwise_still_holds_its_checkpoint() -> None:
    execution = {"command": "python train.py", "resume": {"from": "latest"}}
    wanted = replace(wish(spec(execution=execution)), known_on=("lab",))
    saved = Checkpoints(FOLDER, "checkpoint-500", 60.0, 1, 2, 1, "checkpoint-500", 90.0)
    renamed = answered("new-name", jobs=(job(wanted, "failed", checkpoints=saved),))
    item = plan((wanted,), fleet(answered("desk", cpus_free=64.0), renamed), Options(again=True)).runs[0]
    assert (item.machine, item.run_id) == ("new-name", RUN_ID)


def test_a_checkpoint_on_a_machine_that_will_not_do_is_told_with_what_it_costs() -> None:
    execution = {"command": "python train.py", "resume": {"from": "latest"}}
    wanted = wish(spec(execution=execution, machine=Selector(names=("desk",))))
    saved = Checkpoints(FOLDER, "checkpoint-500", 60.0, 1, 2, 1, "checkpoint-500", 90.0)
    view = fleet(answered("desk"), answered("lab", jobs=(job(wanted, "failed", checkpoints=saved),)))
    item = plan((wanted,), view, Options(again=True)).runs[0]
    assert item.sign.value == "x"
    assert ("resumes", "from a checkpoint on lab; another machine would begin from nothing") in item.rows
    assert Way("from nothing, elsewhere", "aicrun apply run.yaml --fresh") in item.ways
    fresh = plan((wanted,), view, Options(fresh=True)).runs[0]
    assert (fresh.machine, fresh.from_nothing) == ("desk", True)


def test_what_a_machine_saved_that_is_down_is_not_gone_on_from_and_that_is_said() -> None:
    execution = {"command": "python train.py", "resume": {"from": "latest"}}
    down = MachineView(machine("home"), "down")
    for rule, told in ((execution, ", and what it saved there is not gone on from"), ({"command": "x"}, "")):
        wanted = replace(wish(spec(execution=rule)), known_on=("home",))
        item = plan((wanted,), fleet(answered("desk"), down), Options()).runs[0]
        assert item.warnings == (
            f"home was not asked (down: true): a second copy of sft-run may be running there{told}",
        )


@pytest.mark.parametrize(
    ("there", "rule", "words"),
    [
        ("/elsewhere", {"from": "latest"}, "from nothing, in another checkpoint folder"),
        ("", {"from": "latest", "complete_when": "done"}, "resumes by another rule than before, from what passes it"),
    ],
)
def test_a_start_by_another_rule_or_in_another_folder_promises_no_checkpoint(
    there: str, rule: dict[str, str], words: str
) -> None:
    wanted = wish(spec(execution={"command": "python train.py", "resume": {"from": "latest"}}))
    made = plan((wanted,), fleet(answered("lab")), Options()).runs[0].draft
    assert made is not None
    path = there or made.checkpoints.replace("${run.id}", RUN_ID)
    saved = Checkpoints(path, "checkpoint-500", 60.0, 1, 2, 1, "checkpoint-500", 90.0)
    again = wish(spec(execution={"command": "python train.py", "resume": rule}))
    item = plan((again,), fleet(answered("lab", jobs=(job(wanted, "failed", checkpoints=saved),))), Options(again=True))
    assert ("run id", f"{RUN_ID}, kept: {words}") in item.runs[0].rows


def test_where_no_checkpoint_is_whole_another_machine_will_do() -> None:
    execution = {"command": "python train.py", "resume": {"from": "latest"}}
    wanted = wish(spec(execution=execution))
    ended = job(wanted, "failed", checkpoints=Checkpoints(FOLDER, "checkpoint-750", 60.0, 1, 1, 1, skipped=WHY))
    item = plan((wanted,), fleet(answered("desk", cpus_free=64.0), answered("lab", jobs=(ended,))), Options(again=True))
    assert item.runs[0].machine == "desk"
    assert ("run id", f"{RUN_ID}, kept: no checkpoint of it is whole: from nothing") in item.runs[0].rows


def test_a_run_that_began_without_a_rule_may_have_a_start() -> None:
    wanted = wish(spec(execution={"command": "python train.py", "resume": {"from": "latest"}}))
    ended = job(wish(spec()), "failed", checkpoints=Checkpoints(FOLDER, "checkpoint-750", 60.0, 1, 1, 1))
    item = plan((wanted,), fleet(answered("desk", cpus_free=64.0), answered("lab", jobs=(ended,))), Options(again=True))
    assert item.runs[0].machine == "lab"
    assert ("run id", f"{RUN_ID}, kept: resumes from its newest checkpoint that is whole") in item.runs[0].rows


def test_a_start_names_what_ended_and_not_what_never_was() -> None:
    wanted = wish(spec())
    records = (
        job(wanted, "withdrawn", job_id="a" * 16),
        job(wanted, "never started", job_id="b" * 16),
        job(wanted, "failed", job_id="c" * 16),
    )
    item = plan((wanted,), fleet(answered("lab", jobs=records)), Options(again=True)).runs[0]
    assert set(item.named) == {"b" * 16, "c" * 16}


def test_what_a_replaced_job_holds_is_free_for_the_new_one() -> None:
    from unit.plan.worlds import card, gpu_spec

    old = wish(gpu_spec(20))
    full = card(0, "RTX 3090", 24, 2)
    record = job(old, cards=(full.uuid,))
    new = replace(old, spec=replace(old.spec, execution={"command": "other"}))
    view = fleet(answered("lab", (full,), machine("lab", max_jobs=1), jobs=(record,), active_jobs=1))
    refused = plan((new,), view, Options()).runs[0]
    assert refused.sign.value == "x"
    item = plan((new,), view, Options(replace=True)).runs[0]
    assert (item.sign.value, item.machine) == ("±", "lab")
    assert item.named == (record.job_id,)


@pytest.mark.parametrize(("desktop_gib", "sign"), [(1.0, "±"), (3.0, "…")])
@pytest.mark.parametrize("is_told", [True, False])
def test_a_replaced_job_is_not_stopped_for_room_that_a_desktop_has(
    desktop_gib: float, sign: str, is_told: bool
) -> None:
    from unit.plan.worlds import GIB, card, gpu_spec

    old = wish(gpu_spec(20))
    record = job(old)
    processes = (
        CardProcess(1, "graphics", round(desktop_gib * GIB), "root", "Xorg"),
        CardProcess(2, "compute", 20 * GIB if is_told else None, "ana", "python", record.job_id),
    )
    shared = card(0, "RTX 4090", 24, 24 - 0.3 - 20 - desktop_gib, processes=processes, display=True)
    new = replace(old, spec=replace(old.spec, execution={"command": "other"}))
    view = fleet(answered("lab", (shared,), jobs=(replace(record, cards=(shared.uuid,)),)))
    item = plan((new,), view, Options(replace=True)).runs[0]
    assert item.sign.value == sign, item.headline


def test_a_card_is_held_by_a_job_that_says_so_and_by_a_process_that_carries_one() -> None:
    from unit.plan.worlds import card, gpu_spec, stranger

    other = job(wish(spec("other-run")), cards=("GPU-a",))
    marked = replace(stranger(4711, "python", "bo", 1.0), job_id="f" * 16)
    cards = (
        card(0, "RTX 3090", 24, uuid="GPU-a"),
        card(1, "RTX 3090", 24, uuid="GPU-b", processes=(marked,)),
    )
    item = plan((wish(gpu_spec(20)),), fleet(answered("lab", cards, jobs=(other,))), Options()).runs[0]
    told = [verdict.rejections[0].words for verdict in item.verdicts]
    assert told == ["held by run other-run of you, 3h 08m", f"held by job {'f' * 16} of bo"]
    ended = fleet(answered("lab", cards[:1], jobs=(job(wish(spec("other-run")), "failed", cards=("GPU-a",)),)))
    assert plan((wish(gpu_spec(20)),), ended, Options()).runs[0].sign.value == "+"


def _edited(limits: str, target: str) -> Wanted:
    supervision = {"limits": {"max_duration": limits}, "checkpoints": {"upload": {"to": target}}}
    return wish(spec(supervision=supervision))


def test_a_field_that_no_living_job_takes_up_is_not_said_to_change_in_place() -> None:
    record = job(_edited("12h", "file:/a"))
    item = plan((_edited("12h", "file:/b"),), fleet(answered("lab", jobs=(record,))), Options()).runs[0]
    assert item.sign.value == "="
    assert ("later", "checkpoints.upload.to: acts from the next start on") in item.rows


def test_only_what_acts_is_delivered_to_a_living_job() -> None:
    record = job(_edited("12h", "file:/a"))
    edited = _edited("18h", "file:/b")
    item = plan((edited,), fleet(answered("lab", jobs=(record,))), Options()).runs[0]
    assert item.sign.value == "~"
    delivered = {"limits": {"max_duration": "18h"}, "checkpoints": {"upload": {"to": "file:/a"}}}
    assert item.spec.supervision == delivered
    assert item.draft is not None and item.draft.supervision == delivered
    # Once delivered, the rest is still told and nothing is delivered again.
    after = job(edited, supervision=delivered)
    then = plan((edited,), fleet(answered("lab", jobs=(after,))), Options()).runs[0]
    assert (then.sign.value, [label for label, _ in then.rows]) == ("=", ["later"])


def test_a_field_that_was_taken_out_of_the_spec_is_taken_from_the_job() -> None:
    record = job(_edited("12h", "file:/a"))
    bare = wish(spec(supervision={"checkpoints": {"upload": {"to": "file:/a"}}}))
    item = plan((bare,), fleet(answered("lab", jobs=(record,))), Options()).runs[0]
    assert (item.sign.value, item.spec.supervision) == ("~", bare.spec.supervision)
    assert [(change.path, change.old, change.new) for change in item.changes] == [("limits.max_duration", "12h", None)]
