"""Root in somebody's workspace: the run lives in the owner's home, and the plan says what belongs to whom."""

from __future__ import annotations

from typing import Any

from unit.plan.worlds import answered, disk, fleet, machine, spec, wish

from aicrun.plan.decide import plan
from aicrun.plan.model import Options, RunPlan
from aicrun.wire.facts import Disk

THEIRS = disk("/home/ana/work", 100, owner="ana", owner_home="/home/ana")


def planned(place: Disk, **reading: Any) -> RunPlan:
    facts = {"uid": 0, "account": "root", "home": "/root", "disks": (place,), **reading}
    view = answered("lab", (), machine("lab", data=""), **facts)
    return plan((wish(spec(workspace="/home/ana/work")),), fleet(view), Options()).runs[0]


def test_the_owners_home_is_the_runs_and_the_plan_says_so() -> None:
    made = planned(THEIRS)
    told = "root, in a workspace of ana: HOME is /home/ana; what aicrun makes there is ana's"
    assert dict(made.terms)["account"] == f"{told}, what the command makes is root's"
    assert made.draft is not None
    assert made.draft.env["HF_HOME"] == "/home/ana/.cache/huggingface"
    # What the machine calls its cache is a word of the inventory, whoever runs there.
    assert made.draft.env["AICRUN_MACHINE_CACHE"] == "/root/.cache"


def test_in_a_workspace_of_its_own_and_for_any_other_account_nothing_is_said() -> None:
    for made in (planned(disk("/home/ana/work", 100)), planned(THEIRS, uid=1000, home="/home/bo")):
        assert "account" not in dict(made.terms)
        assert made.draft is not None
        assert "/home/ana" not in made.draft.env["HF_HOME"]
