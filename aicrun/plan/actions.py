"""From a move to the run plan that people read and that apply carries out: sign, headline, rows, draft, ways out.

It must not decide which move (see `reconcile.py`) or which place (see `place.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aicrun.plan import records, refusals, words
from aicrun.plan.admit import Need
from aicrun.plan.commands import of_run, typed
from aicrun.plan.draft import RUN_ID, Site, digest_of, draft, values_at
from aicrun.plan.model import Candidate, CardOn, Fleet, MachineView, Options, Refusal, RunPlan, Sign, Wanted, Way
from aicrun.plan.nearest import nearest, places_name, to_wait_for
from aicrun.plan.place import Placement
from aicrun.plan.placeholders import names_in
from aicrun.plan.reconcile import Column, Found, Move, Outcome
from aicrun.plan.rejected import rejected
from aicrun.plan.steps import asks, environment_rows, large_files, measured, steps, terms
from aicrun.spec.model import Machine
from aicrun.wire.facts import HostReading
from aicrun.wire.names import SAFE_VALUE, VARIABLES
from aicrun.wire.status import Status

# Upload targets that this version can write to.
SCHEMES = ("file",)


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


def run_plan(
    task: Task, placement: Placement, fleet: Fleet, options: Options, lines: Mapping[Candidate, int]
) -> RunPlan:
    """The plan of one run, complete; `lines` counts runs of this plan that wait for a card already."""
    found, move = task.outcome.found, task.outcome.move
    if move is Move.KEEP_OR_MOVE and (not placement.chosen or _same_place(task, placement)):
        move = Move.KEEP
    if found is not None and move in (Move.AWAIT, Move.KEEP):
        return _keep(task, found, fleet)
    if found is not None and move is Move.UPLOAD:
        return _upload(task, found)
    if found is not None and move is Move.REFUSE:
        return _refused(task, refusals.of_record(task.wanted, task.outcome, found), placement)
    refusal = _before_start(task, placement, fleet)
    if refusal is not None:
        return _refused(task, refusal, placement)
    return _start(task, placement, fleet, options, lines)


def machine_of(fleet: Fleet, name: str) -> tuple[MachineView, HostReading]:
    """The machine of that name with its reading; only for machines that answered."""
    for view in fleet.machines:
        if view.machine.name == name and view.reading is not None:
            return view, view.reading
    raise LookupError(f"no reading of {name}")


def _blank(task: Task, sign: Sign, headline: str) -> RunPlan:
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
        warnings=large_files(task.wanted) if outcome.starts else (),
    )


def _refused(task: Task, refusal: Refusal, placement: Placement) -> RunPlan:
    found = task.outcome.found
    return replace(
        _blank(task, Sign.REFUSE, refusal.words),
        refusal=refusal,
        rows=refusal.facts,
        ways=refusal.ways,
        verdicts=placement.verdicts,
        machine=found.view.machine.name if found is not None else "",
        run_id=found.job.run_id if found is not None else "",
    )


def _keep(task: Task, found: Found, fleet: Fleet) -> RunPlan:
    outcome = task.outcome
    name, machine = task.wanted.spec.name, found.view.machine.name
    living = not found.standing.status.terminal
    base = replace(_blank(task, Sign.KEEP, ""), machine=machine, run_id=found.job.run_id, from_nothing=False)
    place = records.where(found)
    if outcome.move is Move.AWAIT:
        who = f"{words.name(found.job.client.user)} from {words.name(found.job.client.host)}"
        told = f"keep, {who} is starting it on {place}, {words.ago(found.job.age_s)}"
        return replace(base, headline=told, ways=(Way("follow it", of_run("logs -f", name)),))
    supervised = tuple(item for item in outcome.changes if item.kind == "supervision")
    if living and supervised and found.standing.status is not Status.STOP_IN_PROGRESS:
        view, reading = machine_of(fleet, machine)
        chosen = records.cards_of(found)
        made = draft(task.wanted, Site(view.machine, reading, chosen, found.job.run_id))
        told = f"change in place, it goes on on {place}"
        return replace(base, sign=Sign.CHANGE, headline=told, draft=made, chosen=chosen)
    if living:
        told = f"keep, {records.status_words(found)} on {place} with this spec, {words.duration(records.since(found))}"
        told = told.replace(" (training)", "")
        step = ", ".join(part for part in (records.progress(found.job), records.to_go(found)) if part)
        rows = (("", step),) if step else ()
        return replace(base, headline=told, rows=rows, ways=(Way("watch it", of_run("logs -f", name)),))
    return _keep_ended(task, found, base)


def _keep_ended(task: Task, found: Found, base: RunPlan) -> RunPlan:
    spec = task.wanted.spec
    told = f"keep, succeeded {words.ago(records.since(found))}"
    again = Way("train it again", typed("apply", spec, "--again"))
    ways: tuple[Way, ...] = (Way("look at it", of_run("inspect", spec.name)),)
    rows: tuple[tuple[str, str], ...] = ()
    if task.outcome.column is Column.SOURCE:
        told += "; source changed, --again to train it"
        change = next(item for item in task.outcome.changes if item.path == "source")
        rows = (("source", f"was {change.old}"), ("", f"now {change.new}"))
        ways = (again, *ways)
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
    return replace(
        _blank(task, Sign.UPLOAD, f"upload again from {records.where(found)}, the training is not repeated"),
        machine=found.view.machine.name,
        run_id=found.job.run_id,
        from_nothing=False,
        rows=tuple(rows),
        in_order=(("upload", f"to {target}, then verified"),),
        ways=(Way("do it", typed("apply", spec)),),
    )


def _before_start(task: Task, placement: Placement, fleet: Fleet) -> Refusal | None:
    """What refuses a start although the table allows it."""
    wanted, outcome = task.wanted, task.outcome
    if outcome.blocked:
        place = places_name(placement.chosen)
        would = f"{place} would fit" if place else "nothing there fits now"
        return refusals.silent(wanted, outcome.blocked, fleet, would)
    if outcome.unreadable:
        return refusals.unreadable(outcome.unreadable)
    setup = wanted.spec.setup
    if setup is not None and setup.requirements and setup.requirements not in wanted.files:
        return refusals.no_requirements(wanted.spec, setup.requirements)
    lacking = _without_data(placement, fleet)
    if lacking and not placement.chosen:
        return refusals.no_data(wanted, lacking, fleet.inventory_file)
    return None


def _without_data(placement: Placement, fleet: Fleet) -> tuple[Machine, ...]:
    """Machines that nothing but a missing `data:` speaks against."""
    names = [
        verdict.candidate.machine
        for verdict in placement.verdicts
        if verdict.rejections and {reason.token for reason in verdict.rejections} == {"no_data"}
    ]
    return tuple(view.machine for view in fleet.machines if view.machine.name in names)


def _start(task: Task, placement: Placement, fleet: Fleet, options: Options, lines: Mapping[Candidate, int]) -> RunPlan:
    wanted, spec, outcome = task.wanted, task.wanted.spec, task.outcome
    chosen, gpu, sign = placement.chosen, task.wanted.spec.machine.gpu, _sign(outcome.move)
    if not chosen and gpu is not None and spec.queue_wait_s > 0:
        chosen, sign = to_wait_for(placement.verdicts, gpu.count, lines), Sign.WAIT
    if not chosen:
        return rejected(wanted, _blank(task, Sign.REFUSE, ""), placement.verdicts, fleet)
    view, reading = machine_of(fleet, chosen[0].machine)
    site = Site(view.machine, reading, chosen, task.run_id, outcome.named)
    unsafe = _unsafe(wanted, site)
    if unsafe is not None:
        return _refused(task, unsafe, placement)
    made = draft(wanted, site)
    waits = sign is Sign.WAIT
    history = measured(wanted, fleet)
    none_yet = "nothing yet; the first run measures the peak" if gpu is not None else ""
    rows = [("asks" if not place else "", line) for place, line in enumerate(asks(spec, view.machine.data))]
    rows += [("measured", history or none_yet)] if history or none_yet else []
    rows = _replace_rows(task, placement) if sign is Sign.REPLACE else [*rows, *_history_rows(task)]
    after = _line_rows(task, placement, chosen, fleet) if waits else ()
    in_order = steps(wanted, made, reading, places_name(chosen) if waits else "")
    if sign is Sign.REPLACE:
        in_order = _with_stop(in_order, task)
    return replace(
        _blank(task, sign, _headline(task, sign, chosen)),
        chosen=chosen,
        machine=view.machine.name,
        verdicts=placement.verdicts,
        rows=tuple(rows),
        after=after,
        terms=terms(spec),
        nearest="" if waits else nearest(placement.verdicts, chosen),
        in_order=in_order,
        env=environment_rows(wanted, made),
        ways=_start_ways(task, sign, options),
        draft=made,
        run_id=task.run_id,
        from_nothing=not task.continues,
        apply_refusal=_not_yet(wanted),
    )


def _sign(move: Move) -> Sign:
    return {Move.REPLACE: Sign.REPLACE, Move.KEEP_OR_MOVE: Sign.MOVE}.get(move, Sign.START)


def _headline(task: Task, sign: Sign, chosen: tuple[Candidate, ...]) -> str:
    models = list(dict.fromkeys(item.model for item in chosen if isinstance(item, CardOn)))
    place = ", ".join((places_name(chosen), *models))
    found = task.outcome.found
    if sign is Sign.WAIT:
        return f"wait in line for {place}"
    if sign is Sign.MOVE and found is not None:
        return f"move from the line of {records.where(found)} to {place}"
    if sign is Sign.REPLACE and found is not None:
        return f"stop on {records.where(found)}, then start on {place}"
    return f"start on {place}"


def _replace_rows(task: Task, placement: Placement) -> list[tuple[str, str]]:
    found = task.outcome.found
    if found is None:
        return []
    rows = [("lost", records.lost(found, task.continues)), ("kept", records.kept(found))]
    if any(isinstance(item, CardOn) for item in placement.chosen):
        rows.append(("card", f"its ticket for {places_name(placement.chosen)} is taken before the stop"))
    return [*rows, *_history_rows(task)]


def _history_rows(task: Task) -> list[tuple[str, str]]:
    """Whether a run that was there before goes on or begins anew; nothing for a run nobody has seen."""
    found = task.outcome.found
    if found is None:
        return []
    if not task.continues:
        return [("run id", "a new one: it starts from nothing")]
    newest = found.job.checkpoints.newest if found.job.checkpoints is not None else ""
    told = f"resumes from {words.name(newest)}" if newest else "it has no checkpoint yet"
    return [("run id", f"{found.job.run_id}, kept: {told}")]


def _line_rows(
    task: Task, placement: Placement, chosen: tuple[Candidate, ...], fleet: Fleet
) -> tuple[tuple[str, str], ...]:
    verdict = next(item for item in placement.verdicts if item.candidate == chosen[0])
    holder = next((reason.offered for reason in verdict.rejections if reason.token in ("held", "taken_by_plan")), "")
    who = f"{holder} holds it" if holder else "it is in use"
    rows = [("line", f"{places_name(chosen)}: {who}; {task.wanted.spec.name} would stand in line")]
    for view in fleet.machines:
        for job in view.reading.jobs if view.reading is not None else ():
            if holder and job.run == holder and view.machine.name == chosen[0].machine:
                told = records.progress(job)
                rows += [("", f"{holder} says {told}")] if told else []
    wait = words.typed(task.wanted.spec.queue_wait_s)
    rows.append(("wait", f"{wait} at most (queue.wait), then it is rejected"))
    return tuple(rows)


def _with_stop(in_order: tuple[tuple[str, str], ...], task: Task) -> tuple[tuple[str, str], ...]:
    found = task.outcome.found
    if found is None:
        return in_order
    grace = found.job.supervision.get("limits", {}) if isinstance(found.job.supervision.get("limits"), dict) else {}
    told = f"job {found.job.job_id}: asks it to end, {grace.get('grace', '30s')} grace, then kills it"
    after_push = 1 if in_order and in_order[0][0] == "push" else 0
    return (*in_order[:after_push], ("stop", told), *in_order[after_push:])


def _start_ways(task: Task, sign: Sign, options: Options) -> tuple[Way, ...]:
    spec = task.wanted.spec
    flags = {
        "--again": options.again,
        "--fresh": options.fresh,
        "--forget": options.forget,
        "--use-kept": options.use_kept,
    }
    said = [flag for flag, is_set in flags.items() if is_set]
    if sign is Sign.REPLACE:
        return (Way("do it", typed("apply", spec, "--replace", *said)),)
    if sign is Sign.WAIT:
        return (
            Way("join the line", typed("apply", spec, *said)),
            Way("do not wait", typed("plan", spec, "--set", "queue.wait=0", *said)),
        )
    if sign is Sign.MOVE:
        return (Way("move it", typed("apply", spec, *said)),)
    return (
        Way("keep it", typed("plan", spec, *said, "-o", "plan.json")),
        Way("start it", typed("apply", spec, *said)),
    )


def _not_yet(wanted: Wanted) -> Refusal | None:
    if wanted.spec.machine.gpu is not None:
        return refusals.no_leases_yet()
    upload = wanted.spec.checkpoints.upload
    if upload is not None and upload.scheme not in SCHEMES:
        return refusals.no_target_yet(wanted.spec, upload.scheme)
    return None


def _unsafe(wanted: Wanted, site: Site) -> Refusal | None:
    """A placeholder of a text command whose value the shell would not take as one plain word."""
    if wanted.spec.is_argv:
        return None
    values = values_at(wanted, site)
    for name in sorted(names_in(" ".join(wanted.spec.command))):
        value = values.get(name, "").replace(RUN_ID, "").replace("${job.id}", "")
        if not SAFE_VALUE.match(value):
            return refusals.unsafe_value(wanted.spec, name, value, VARIABLES.get(name, "AICRUN_RUN_NAME"))
    return None


def _same_place(task: Task, placement: Placement) -> bool:
    found = task.outcome.found
    if found is None:
        return False
    cards = tuple(item.uuid for item in placement.chosen if isinstance(item, CardOn))
    here = placement.chosen[0].machine == found.view.machine.name
    return here and (not cards or cards == found.job.cards)
