"""The one decision: wishes and a fleet in, a plan out. Same input, same plan, for ever.

It must not read a clock, a disk, the environment or chance. Read it top to bottom: reconcile each run, place together
those that start, word each run's plan, and bind the facts it all depends on.
"""

from __future__ import annotations

from collections import Counter

from aicrun.plan.actions import run_plan
from aicrun.plan.admit import Need
from aicrun.plan.bounds import bounds_of
from aicrun.plan.known import Known, known_of
from aicrun.plan.model import Candidate, Fleet, Options, Plan, RunPlan, Sign, Wanted
from aicrun.plan.place import Placement, place
from aicrun.plan.reconcile import Move, Outcome, Row, reconcile
from aicrun.plan.records import may_resume
from aicrun.plan.starting import World
from aicrun.plan.task import Task


def plan(wanted: tuple[Wanted, ...], fleet: Fleet, options: Options) -> Plan:
    """The plan of all `wanted` runs, in their order, placed together on `fleet`."""
    known = known_of(fleet)
    tasks = tuple(_task(wish, known, options) for wish in wanted)
    starting = [number for number, task in enumerate(tasks) if task.outcome.starts]
    placed = place(tuple(tasks[number].need for number in starting), fleet)
    placements = dict(zip(starting, placed, strict=True))
    nothing = Placement((), ())
    runs: list[RunPlan] = []
    lines: Counter[Candidate] = Counter()
    world = World(known, options, lines)
    for number, task in enumerate(tasks):
        made = run_plan(task, placements.get(number, nothing), world)
        lines.update(made.chosen if made.sign is Sign.WAIT else ())
        runs.append(made)
    return Plan(tuple(runs), fleet, bounds_of(tuple(runs), known, wanted), options)


def _task(wish: Wanted, known: Known, options: Options) -> Task:
    outcome = reconcile(wish, known, options)
    continues = _continues(wish, outcome, options)
    return Task(wish, outcome, _need(wish, outcome, options, continues), continues)


def _continues(wish: Wanted, outcome: Outcome, options: Options) -> bool:
    """Whether a start goes on under the run id of before: the spec resumes, and no job of it succeeded."""
    if outcome.found is None or options.fresh or options.forget or "resume" not in wish.spec.execution:
        return False
    return outcome.row is not Row.SUCCEEDED


def _need(wish: Wanted, outcome: Outcome, options: Options, continues: bool) -> Need:
    found = outcome.found
    if found is None:
        return Need(wish, options.use_kept)
    gives_up = outcome.move in (Move.REPLACE, Move.KEEP_OR_MOVE)
    own = (found.job.job_id,) if gives_up else ()
    has_checkpoint = continues and may_resume(found)
    return Need(wish, options.use_kept, own, found.view.machine.name if has_checkpoint else "")
