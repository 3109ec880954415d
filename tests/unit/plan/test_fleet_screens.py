"""The screens of a fleet that cannot be seen whole: who was left out, sleeps, is there twice, holds the card."""

from __future__ import annotations

from dataclasses import replace

from unit.plan.test_screens import golden
from unit.plan.worlds import ATTIC, fleet, held, lab, machine, sft_wish, silent

from aicrun.plan.decide import plan
from aicrun.plan.model import Options
from aicrun.plan.twins import counted_once

AWAY = "no answer within 5s on 203.0.113.7 port 22 (connect timed out)"


def test_a_machine_that_was_left_out_is_a_warning() -> None:
    home = replace(silent("home"), state="excepted", why="by --except")
    golden("7_excepted", plan((sft_wish(),), fleet(lab(), home), Options()))


def test_a_machine_that_sleeps_blocks_a_run_that_the_ledger_names_there() -> None:
    home = silent("home", AWAY, sleeps=True)
    text = golden("7_asleep", plan((replace(sft_wish(), known_on=("home",)),), fleet(lab(), home), Options()))
    assert "--forget" in text
    (unknown,) = plan((sft_wish(),), fleet(lab(), home), Options()).runs
    assert unknown.headline.startswith("start on lab")


def test_two_machines_that_are_silent_are_both_named() -> None:
    golden("7_silent_two", plan((sft_wish(),), fleet(lab(), silent("home", AWAY), silent("den", AWAY)), Options()))


def test_one_machine_under_two_names_is_counted_once() -> None:
    again = replace(lab(), machine=machine("lab-lan"))
    golden("counted_once", plan((sft_wish(),), fleet(*counted_once((lab(), again))), Options()))


def test_a_card_that_a_run_of_the_same_name_of_another_account_holds() -> None:
    theirs = lab(7.7, held("sft-run", "alice", 720.0))
    golden("2_theirs", plan((sft_wish(),), fleet(theirs), Options()))


def test_a_name_that_no_machine_has_is_told_with_those_that_there_are() -> None:
    wished = sft_wish(
        machine=replace(sft_wish().spec.machine, names=("lob",)), overrides=("machine.name=lob", "name=x")
    )
    text = golden("3_no_such_machine", plan((wished,), fleet(lab(), ATTIC), Options()))
    assert "aicrun plan run.yaml --set name=x --set machine.name=lab" in text


def test_leaving_out_the_only_machine_that_is_named_is_no_way_out() -> None:
    named = sft_wish(machine=replace(sft_wish().spec.machine, names=("home",)))
    (refused,) = plan((named,), fleet(lab(), silent("home", AWAY)), Options()).runs
    assert refused.refusal is not None
    assert not any("--except" in way.command for way in refused.refusal.ways)
    (alone,) = plan((sft_wish(),), fleet(silent("home", AWAY), silent("den", AWAY)), Options()).runs
    assert alone.refusal is not None
    assert not any("--except" in way.command for way in alone.refusal.ways)
    (others,) = plan((sft_wish(),), fleet(lab(), silent("home", AWAY)), Options()).runs
    assert others.refusal is not None
    assert any("--except home" in way.command for way in others.refusal.ways)


def test_a_machine_that_was_reached_and_cannot_be_looked_at_is_not_called_silent() -> None:
    full = "the agent cannot be put on home: /home/ana/.local/state: No space left on device"
    golden("7_refuses", plan((sft_wish(),), fleet(lab(), replace(silent("home", full), refuses=True)), Options()))
