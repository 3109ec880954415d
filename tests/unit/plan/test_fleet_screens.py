"""The screens of a fleet that cannot be seen whole: who was left out, sleeps, is there twice, holds the card."""

from __future__ import annotations

from dataclasses import replace

from unit.plan.test_screens import golden
from unit.plan.worlds import fleet, held, lab, machine, sft_wish, silent

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
