"""The commands that a plan says to type next: whole, so that each does what the screen above it says."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from unit.plan.worlds import answered, fleet, job, silent, spec, wish

from aicrun.cli.plans import Wishes
from aicrun.cli.screen import plain
from aicrun.cli.views.plan_human import plan_screen
from aicrun.cli.views.trouble import moved_table
from aicrun.lifecycle.saved import Stale
from aicrun.plan.commands import asked, typed_again
from aicrun.plan.decide import plan
from aicrun.plan.model import Plan, Wanted
from aicrun.plan.saved import Moved, from_document, to_document


def _asked(wishes: Wishes, *wanted: Wanted, machines: str = "", states: str = "") -> Plan:
    """The plan as the command line makes it; every run's file is `<name>.yaml`, a run named in `states` failed."""
    given = tuple(
        replace(one, spec=replace(one.spec, overrides=wishes.overrides, said=wishes.said(machines))) for one in wanted
    )
    records = tuple(job(one, "failed") for one in wanted if one.spec.name in states.split())
    files = [one.spec.file for one in wanted]
    return plan(given, fleet(answered("lab", jobs=records)), wishes.options(files))


def _run(name: str) -> Wanted:
    return wish(replace(spec(name), file=f"{name}.yaml"))


def _last(made: Plan) -> str:
    return plan_screen(made, width=80, verbose=False, ascii=False).plain.split("Plan: ")[1]


def test_a_plan_of_several_files_offers_all_of_them() -> None:
    last = _last(_asked(Wishes(), _run("one"), _run("two")))
    assert "aicrun plan one.yaml two.yaml -v\n" in last
    assert "aicrun apply one.yaml two.yaml\n" in last


def test_the_rest_is_offered_by_the_fewest_words_that_hold_in_those_files() -> None:
    runs = [_run(name) for name in ("one", "two", "six", "ten")]
    few = _last(_asked(Wishes(), *runs, states="two"))
    assert "aicrun apply one.yaml two.yaml six.yaml ten.yaml --skip two\n" in few
    many = _last(_asked(Wishes(), *runs, states="two six ten"))
    assert "aicrun apply one.yaml two.yaml six.yaml ten.yaml --only one\n" in many


def test_a_choice_among_the_runs_goes_on() -> None:
    runs = [_run(name) for name in ("one", "two", "six")]
    made = _asked(Wishes(skip=("ten",)), *runs, states="six")
    assert "aicrun plan one.yaml two.yaml six.yaml --skip ten -v\n" in _last(made)
    assert "aicrun apply one.yaml two.yaml six.yaml --skip ten --skip six\n" in _last(made)


SAID = Wishes(overrides=("env.LR=1 e",), again=True, excepted=("attic",), use_kept=True, strict=True)
WORDS = "--set 'env.LR=1 e' --again --use-kept --strict --except attic --machines 'my machines.yaml'"


def test_what_was_said_is_said_again_for_one_run_and_for_several() -> None:
    one = _asked(SAID, _run("one"), machines="my machines.yaml")
    start = next(line for line in _last(one).splitlines() if "aicrun apply" in line)
    assert sorted(shlex.split(start.split("aicrun apply ")[1])) == sorted(["one.yaml", *shlex.split(WORDS)])
    several = _last(_asked(SAID, _run("one"), _run("two"), machines="my machines.yaml"))
    assert f"aicrun apply one.yaml two.yaml {WORDS}\n" in several


def test_a_refusal_offers_the_command_with_what_was_said() -> None:
    wishes = Wishes(overrides=("env.LR=1",), excepted=("attic",))
    assert "aicrun apply one.yaml --set env.LR=1 --except attic --again\n" in _last(
        _asked(wishes, _run("one"), states="one", machines="")
    )
    given = replace(_run("one").spec, said=Wishes(again=True).said("m.yaml"))
    made = plan((wish(given),), fleet(answered("lab"), silent("home")), Wishes(again=True).options(["one.yaml"]))
    assert "aicrun apply one.yaml --again --machines m.yaml --except home\n" in _last(made)


def test_a_way_out_does_not_contradict_what_was_said() -> None:
    from aicrun.plan.commands import typed

    said = replace(_run("one").spec, said=Wishes(again=True, replace=True).said(""))
    assert typed("apply", said, "--fresh") == "aicrun apply one.yaml --replace --fresh"
    assert typed("plan", said, "--replace") == "aicrun plan one.yaml --again --replace"


def test_a_stale_plan_offers_the_whole_command_and_tells_the_two_sides_apart() -> None:
    made = _asked(Wishes(again=True), _run("one"), _run("two"), machines="m.yaml")
    saved = from_document(to_document(made))
    then, now = "6d58a9c177bb544c succeeded", "6d58a9c177bb544c succeeded, 1111111111111111 succeeded"
    stale = Stale("my plan.json", saved, (Moved("jobs of one", then, now), Moved("driver of lab", "550", "570")))
    assert stale.ways[0].command == "aicrun plan one.yaml two.yaml --again --machines m.yaml -o 'my plan.json'"
    shown = [plain(line) for line in moved_table(stale)]
    told = [line.split(None, 1) for line in shown if line.split()[0] in ("then", "now")]
    assert told == [["then", then], ["now", now]]
    assert shown[-1].split() == ["driver", "of", "lab", "550", "570"]
    assert max(map(len, shown)) <= 80


@pytest.mark.parametrize("flag", ["again", "fresh", "replace", "forget", "use_kept", "strict"])
def test_every_flag_is_said_again(flag: str) -> None:
    assert Wishes(**{flag: True}).said("") == ((f"--{flag.replace('_', '-')}",),)


def test_a_folder_that_was_typed_is_offered_as_it_was_typed() -> None:
    made = plan((_run("one"), _run("two")), fleet(answered("lab")), Wishes().options(["my specs"]))
    assert "aicrun apply 'my specs'\n" in _last(made)


def test_a_run_is_made_again_with_what_made_it_and_not_with_what_was_meant_for_one_start() -> None:
    wishes = Wishes(again=True, replace=True, overrides=("name=var-run", "command=false"))
    made = replace(_run("one").spec, overrides=wishes.overrides, said=wishes.said("lab.yaml"))
    told = asked(made)
    assert told == ("--set", "name=var-run", "--set", "command=false", "--machines", "lab.yaml")
    again = typed_again("apply", "one.yaml", told, "--again")
    assert again == "aicrun apply one.yaml --set name=var-run --set command=false --machines lab.yaml --again"
    assert typed_again("apply", "", ()) == "aicrun apply run.yaml"
