"""From a move to the run plan that people read and that apply carries out: kept, uploaded, refused or started.

It must not decide which move (see `reconcile.py`) or which place (see `place.py`).
"""

from __future__ import annotations

from dataclasses import replace

from aicrun.plan import records, refusals, words
from aicrun.plan.changes import delivered
from aicrun.plan.commands import of_run, typed
from aicrun.plan.draft import Site, draft
from aicrun.plan.known import Found, Known
from aicrun.plan.model import CardOn, FieldChange, RunPlan, Sign, Way
from aicrun.plan.place import Placement
from aicrun.plan.reconcile import Column, Move
from aicrun.plan.starting import World, started
from aicrun.plan.task import Task, blank, refused
from aicrun.wire.status import Status


def run_plan(task: Task, placement: Placement, world: World) -> RunPlan:
    """The plan of one run, complete."""
    found, move = task.outcome.found, task.outcome.move
    if move is Move.KEEP_OR_MOVE and (not placement.chosen or _same_place(task, placement)):
        move = Move.KEEP
    if found is not None and move in (Move.AWAIT, Move.KEEP):
        return _keep(task, found, world.known)
    if found is not None and move is Move.UPLOAD:
        return _upload(task, found)
    if found is not None and move is Move.REFUSE:
        return refused(task, refusals.of_record(task.wanted, task.outcome, found), placement)
    return started(task, placement, world)


def _keep(task: Task, found: Found, known: Known) -> RunPlan:
    outcome = task.outcome
    name, machine = task.wanted.spec.name, found.view.machine.name
    living = not found.standing.status.terminal
    base = replace(blank(task, Sign.KEEP, ""), machine=machine, run_id=found.job.run_id, from_nothing=False)
    place = records.where(found)
    if outcome.move is Move.AWAIT:
        who = f"{words.name(found.job.client.user)} from {words.name(found.job.client.host)}"
        told = f"keep, {who} is starting it on {place}, {words.ago(found.job.age_s)}"
        return replace(base, headline=told, ways=(Way("follow it", of_run("logs -f", name)),))
    if not living:
        return _keep_ended(task, found, base)
    stops = found.standing.status is Status.STOP_IN_PROGRESS
    if not stops and any(item.kind == "supervision" for item in outcome.changes):
        return _change(task, found, known, base)
    told = f"keep, {records.status_words(found)} on {place} with this spec, {words.duration(records.since(found))}"
    told = told.replace(" (training)", "")
    step = ", ".join(part for part in (records.progress(found.job), records.to_go(found)) if part)
    rows = [("", step)] if step else []
    rows += [("", words.harmless(found.standing.why))] if found.job.next_attempt is not None else []
    rows += _later(outcome.changes)
    return replace(base, headline=told, rows=tuple(rows), ways=(Way("watch it", of_run("logs -f", name)),))


def _change(task: Task, found: Found, known: Known, base: RunPlan) -> RunPlan:
    """A change in place: the spec of the plan holds what will be delivered, which is not always all that was edited."""
    view, reading = known.answered(found.view.machine.name)
    chosen = records.cards_of(found)
    spec = task.wanted.spec
    spec = replace(spec, supervision=delivered(found.job.supervision, spec.supervision))
    return replace(
        base,
        sign=Sign.CHANGE,
        headline=f"change in place, it goes on on {records.where(found)}",
        spec=spec,
        chosen=chosen,
        draft=draft(replace(task.wanted, spec=spec), Site(view.machine, reading, chosen, found.job.run_id)),
        rows=tuple(_later(task.outcome.changes)),
        ways=(Way("do it", typed("apply", task.wanted.spec)),),
    )


def _later(changes: tuple[FieldChange, ...]) -> list[tuple[str, str]]:
    """That some edited fields act from the next start on; said as long as they differ."""
    paths = ", ".join(item.path for item in changes if item.kind == "later")
    return [("later", f"{words.cut(words.harmless(paths), 120)}: acts from the next start on")] if paths else []


def _keep_ended(task: Task, found: Found, base: RunPlan) -> RunPlan:
    spec = task.wanted.spec
    told = f"keep, succeeded {words.ago(records.since(found))}"
    saved = found.job.checkpoints is not None and bool(found.job.checkpoints.newest)
    second = (
        Way("fetch the last", of_run("fetch", spec.name)) if saved else Way("look at it", of_run("inspect", spec.name))
    )
    ways = (Way("train it again", typed("apply", spec, "--again")), second)
    rows: tuple[tuple[str, str], ...] = ()
    if task.outcome.column is Column.SOURCE:
        told += "; source changed, --again to train it"
        change = next(item for item in task.outcome.changes if item.path == "source")
        rows = (("source", f"was {change.old}"), ("", f"now {change.new}"))
    elif task.outcome.changes:
        paths = ", ".join(item.path for item in task.outcome.changes)
        rows = (("differs", f"{words.cut(paths, 200)}: it has ended, so nothing acts on it any more"),)
    return replace(base, headline=told, rows=rows, ways=ways)


def _upload(task: Task, found: Found) -> RunPlan:
    spec, upload = task.wanted.spec, found.job.upload_request
    target = words.harmless(upload.destination) if upload is not None else "its target"
    rows = [("ended", f"{records.status_words(found)} {words.ago(records.since(found))} on {records.where(found)}")]
    reason = records.cause(found)
    rows += [("cause", reason)] if reason else []
    rows.append(("kept", records.kept(found)))
    rows += _later(task.outcome.changes)
    return replace(
        blank(task, Sign.UPLOAD, f"upload again from {records.where(found)}, the training is not repeated"),
        machine=found.view.machine.name,
        run_id=found.job.run_id,
        from_nothing=False,
        rows=tuple(rows),
        in_order=(("upload", f"to {target}, then verified"),),
        ways=(Way("do it", typed("apply", spec)),),
    )


def _same_place(task: Task, placement: Placement) -> bool:
    found = task.outcome.found
    if found is None:
        return False
    cards = tuple(item.uuid for item in placement.chosen if isinstance(item, CardOn))
    here = placement.chosen[0].machine == found.view.machine.name
    return here and (not cards or cards == found.job.cards)
