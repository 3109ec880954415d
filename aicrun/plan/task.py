"""One run of a plan in the making, and the two plans every other is made from: the blank one and the refused one.

It must not decide anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from aicrun.plan.admit import Need
from aicrun.plan.draft import digest_of
from aicrun.plan.model import Refusal, RunPlan, Sign, Wanted
from aicrun.plan.place import Placement
from aicrun.plan.reconcile import Outcome
from aicrun.plan.source_words import source_warnings


@dataclass(frozen=True, slots=True)
class Task:
    """One run of a plan in the making."""

    wanted: Wanted
    outcome: Outcome
    need: Need
    continues: bool

    @property
    def run_id(self) -> str:
        """The run id that is kept; empty when the start draws a new one."""
        found = self.outcome.found
        return found.job.run_id if self.continues and found is not None else ""


def blank(task: Task, sign: Sign, headline: str) -> RunPlan:
    """A plan with what every plan of this run has."""
    spec, outcome = task.wanted.spec, task.outcome
    return RunPlan(
        sign,
        spec.name,
        headline,
        spec,
        digest_of(task.wanted),
        changes=outcome.changes,
        job=outcome.found.job if outcome.found is not None else None,
        job_machine=outcome.found.view.machine.name if outcome.found is not None else "",
        named=outcome.named,
        warnings=source_warnings(task.wanted) if outcome.starts else (),
        largest=task.wanted.largest if outcome.starts else (),
    )


def refused(task: Task, refusal: Refusal, placement: Placement) -> RunPlan:
    """A plan that refuses, with its facts as rows."""
    found = task.outcome.found
    return replace(
        blank(task, Sign.REFUSE, refusal.words),
        refusal=refusal,
        rows=refusal.facts,
        ways=refusal.ways,
        verdicts=placement.verdicts,
        machine=found.view.machine.name if found is not None else "",
        run_id=found.job.run_id if found is not None else "",
    )
