"""What a plan shows of the fields that changed since a job that has ended."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.plan.test_screens import _cpu, _fleet, _running, golden
from unit.plan.worlds import answered, fleet, home, job, lab, machine, sft_wish, spec, wish

from aicrun.cli.views.plan_human import plan_screen
from aicrun.plan.decide import plan
from aicrun.plan.model import Options


def test_a_run_that_succeeded_with_another_spec_starts_and_says_what_changed() -> None:
    _, new = _running()
    record = job(sft_wish(), "succeeded", ended_age_s=2 * 86400.0)
    text = golden("5_start_changed", plan((new,), _fleet(lab(jobs=(record,)), home()), Options()))
    assert "env.LR                1e-4 -> 3e-4" in text
    several = plan((new, wish(spec("digits"))), _fleet(lab(jobs=(record,)), home()), Options())
    headline = plan_screen(several, width=80, verbose=False, ascii=False).plain.split("\n\n")[0]
    assert "changed since it succeeded 2d ago" in " ".join(headline.split())


@pytest.mark.parametrize("state", ["failed", "stopped", "unknown", "upload failed"])
def test_what_changed_since_a_job_that_ended_is_shown_whatever_is_done_about_it(state: str) -> None:
    old = _cpu()
    new = replace(old, spec=replace(old.spec, execution={**old.spec.execution, "command": "python other.py"}))
    seen = fleet(answered("here", (), machine("here", data=""), jobs=(job(old, state),)), file="")
    for options in (Options(), Options(again=True)):
        text = plan_screen(plan((new,), seen, options), width=80, verbose=False, ascii=False).plain
        assert "changed since its last job, " in text
        assert "needs a new start" not in text
        assert "+ python other.py" in text or "-> python other.py" in text


def test_a_long_list_of_changes_is_counted_and_whole_with_v() -> None:
    old = _cpu()
    env = {f"V{n}": str(n) for n in range(20)}
    new = replace(old, spec=replace(old.spec, execution={**old.spec.execution, "env": env}))
    seen = fleet(answered("here", (), machine("here", data=""), jobs=(job(old, "succeeded"),)), file="")
    short, whole = (
        plan_screen(plan((new,), seen, Options()), width=80, verbose=v, ascii=False).plain for v in (False, True)
    )
    assert short.count("env.V") == 7
    assert "(13 more: aicrun plan run.yaml -v)" in short
    assert whole.count("env.V") == 20
