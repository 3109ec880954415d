"""The plan of a run that starts, waits, moves or replaces: its job, its steps, its rows, its ways out.

It must not decide whether it starts or where: that is settled before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aicrun.plan import records, refusals, setup_refusals, words
from aicrun.plan.cache_folders import cache_warnings
from aicrun.plan.commands import typed
from aicrun.plan.draft import RUN_ID, Site, draft, values_at
from aicrun.plan.environment import files_read, lock_of
from aicrun.plan.first_word import first_word_warnings, interpreter_rows
from aicrun.plan.kept_cards import gone_warnings
from aicrun.plan.known import Known
from aicrun.plan.left_out import left_out, left_out_warnings, unseen_rows
from aicrun.plan.locks import is_lock, local_sources, outside, unlike_wheels
from aicrun.plan.model import Candidate, CardOn, Options, Refusal, Rejection, RunPlan, Sign, Wanted, Way
from aicrun.plan.nearest import places_name, tighter
from aicrun.plan.place import Placement
from aicrun.plan.placeholders import names_in
from aicrun.plan.reconcile import Column, Move, Row
from aicrun.plan.rejected import rejected
from aicrun.plan.rooms import filled_warnings, room_warnings
from aicrun.plan.source_words import source_warnings
from aicrun.plan.steps import asks, environment_rows, input_rows, measured, steps, terms
from aicrun.plan.surviving import survival_rows, survival_warnings
from aicrun.plan.task import Task, blank, refused
from aicrun.plan.waiting import to_wait_for
from aicrun.plan.whose_home import owner_rows
from aicrun.spec.model import Machine
from aicrun.wire.jobs import JobRequest
from aicrun.wire.names import SAFE_VALUE, VARIABLES


@dataclass(frozen=True, slots=True)
class World:
    """What a start is worded from: the fleet, what was said, and how many of this plan wait for a card already."""

    known: Known
    options: Options
    lines: Mapping[Candidate, int]


def started(task: Task, placement: Placement, world: World) -> RunPlan:
    """The plan of a run whose move is to start, or what refuses that after all."""
    refusal = _refusal(task, placement, world.known)
    if refusal is not None:
        return refused(task, refusal, placement)
    gpu, chosen, sign = task.wanted.spec.machine.gpu, placement.chosen, _sign(task.outcome.move)
    if not chosen and gpu is not None and task.wanted.spec.queue_wait_s > 0:
        chosen, sign = to_wait_for(placement.queue, gpu, world.lines), Sign.WAIT
    if not chosen:
        return rejected(task.wanted, blank(task, Sign.REFUSE, ""), placement.verdicts, world.known)
    view, reading = world.known.answered(chosen[0].machine)
    site = Site(view.machine, reading, chosen, task.run_id, task.outcome.named, task.outcome.first_attempt)
    site = replace(site, left_out=left_out(task.wanted, world.known))
    unsafe = _unsafe(task.wanted, site)
    if unsafe is not None:
        return refused(task, unsafe, placement)
    return _worded(task, placement, world, sign, site)


def _refusal(task: Task, placement: Placement, known: Known) -> Refusal | None:
    """What refuses a start although the table allows it."""
    wanted, outcome = task.wanted, task.outcome
    if outcome.blocked:
        place = places_name(placement.chosen)
        would = f"{place} would fit" if place else "nothing there fits now"
        return refusals.silent(wanted, outcome.blocked, known.fleet, would)
    if outcome.unreadable:
        return refusals.unreadable(outcome.unreadable)
    gone = _revision_missing(task, placement, known)
    if gone is not None:
        return gone
    unmade = _unmade_environment(wanted)
    if unmade is not None:
        return unmade
    lacking = _without_data(placement, known) if not placement.chosen else ()
    return refusals.no_data(wanted, lacking, known.fleet.inventory_file) if lacking else None


def _unmade_environment(wanted: Wanted) -> Refusal | None:
    """What refuses the setup before any machine is chosen: a file that is missing, a lock of another kind or place."""
    setup, source = wanted.spec.setup, wanted.source
    if source is not None and source.git and not source.commit:
        # Nobody could read it: what is in it is not known.
        return None
    missing = next((path for path in files_read(setup) if path not in wanted.files), "")
    if missing:
        return setup_refusals.no_file(wanted.spec, missing)
    text = lock_of(wanted)
    if setup is None or not (setup.lock or setup.project):
        return None
    if not is_lock(text):
        return setup_refusals.no_lock(wanted.spec)
    if setup.wheels and (apart := unlike_wheels(text)):
        return setup_refusals.not_in_wheels(wanted.spec, apart)
    apart = outside(text) if setup.project else local_sources(text)
    return setup_refusals.local_sources(wanted.spec, apart) if apart else None


def _revision_missing(task: Task, placement: Placement, known: Known) -> Refusal | None:
    """A revision that no machine finds; one that could not be asked for is a reason against its machine."""
    spec = task.wanted.spec
    source = spec.source
    if source is None or not source.git or placement.chosen:
        return None
    answers = [
        (name, one)
        for name, view in known.views.items()
        if view.reading is not None
        for one in view.reading.git
        if (one.git, one.revision) == (source.git, source.revision)
    ]
    missing = [(name, one.detail) for name, one in answers if one.word == "missing"]
    if not missing or any(one.word == "ok" for _, one in answers):
        return None
    return refusals.no_revision(spec, missing)


def _without_data(placement: Placement, known: Known) -> tuple[Machine, ...]:
    """Machines that nothing but a missing `data:` speaks against."""
    names = dict.fromkeys(
        verdict.candidate.machine
        for verdict in placement.verdicts
        if verdict.rejections and {reason.token for reason in verdict.rejections} == {"no_data"}
    )
    return tuple(known.views[name].machine for name in names)


def _worded(task: Task, placement: Placement, world: World, sign: Sign, site: Site) -> RunPlan:
    """The plan of a start at `site`, with every row."""
    wanted, chosen = task.wanted, site.chosen
    made = draft(wanted, site)
    line = places_name(chosen) if sign is Sign.WAIT else ""
    in_order = steps(wanted, made, site.reading, line)
    rows = _rows(task, world.known, site, made)
    if sign is Sign.REPLACE:
        in_order, rows = _with_stop(in_order, task), _replace_rows(task, placement, made)
    return replace(
        blank(task, sign, _headline(task, sign, chosen)),
        chosen=chosen,
        machine=site.machine.name,
        verdicts=placement.verdicts,
        rows=tuple(rows),
        after=_line_rows(task, placement, chosen, world.known) if line else (),
        terms=(
            *interpreter_rows(wanted.spec, site, made),
            *input_rows(made),
            *terms(wanted),
            *_terms(wanted, site, world.known),
        ),
        nearest=_nearest(placement),
        in_order=in_order,
        env=environment_rows(wanted, made),
        ways=_start_ways(task, sign, world.options),
        draft=made,
        run_id=task.run_id,
        from_nothing=not task.continues,
        warnings=_warnings(wanted, site, made, world.known),
    )


def _terms(wanted: Wanted, site: Site, known: Known) -> tuple[tuple[str, str], ...]:
    """As whom and under what the run lives on its machine."""
    owners = owner_rows(wanted.spec, site.machine, site.reading)
    return (*owners, *survival_rows(site.reading), *unseen_rows(wanted, known))


def _warnings(wanted: Wanted, site: Site, made: JobRequest, known: Known) -> tuple[str, ...]:
    return (
        *source_warnings(wanted),
        *cache_warnings(site, made),
        *survival_warnings(site),
        *gone_warnings(site.machine, site.reading),
        *first_word_warnings(wanted.spec, site, made),
        *room_warnings(wanted.spec, site),
        *filled_warnings(wanted.spec, site, made),
        *left_out_warnings(wanted, known),
    )


def _nearest(placement: Placement) -> str:
    # Cards asked in bulk are compared by none of them alone.
    if placement.first is None or len(placement.chosen) > 1:
        return ""
    return tighter(placement.first, placement.later)


def _rows(task: Task, known: Known, site: Site, made: JobRequest) -> list[tuple[str, str]]:
    """What is asked, what was measured before, and whether an earlier run goes on."""
    spec = task.wanted.spec
    rows = [("asks" if not place else "", line) for place, line in enumerate(asks(spec, site.machine.data))]
    none_yet = "nothing yet; the first run measures the peak" if spec.machine.gpu is not None else ""
    history = measured(task.wanted, known) or none_yet
    rows += [("measured", history)] if history else []
    return [*rows, *_history_rows(task, made), *_retry_rows(task)]


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
    if task.outcome.row is Row.SUCCEEDED and found is not None and task.outcome.column is Column.OTHER:
        return f"start on {place}; changed since it succeeded {words.ago(records.since(found))}"
    return f"start on {place}"


def _replace_rows(task: Task, placement: Placement, made: JobRequest) -> list[tuple[str, str]]:
    found = task.outcome.found
    if found is None:
        return []
    goes_on = task.continues and records.is_same_folder(found, made)
    rows = [("lost", records.lost(found, goes_on)), ("kept", records.kept(found))]
    if any(isinstance(item, CardOn) for item in placement.chosen):
        rows.append(("card", f"its ticket for {places_name(placement.chosen)} is taken before the stop"))
    return [*rows, *_history_rows(task, made)]


def _history_rows(task: Task, made: JobRequest) -> list[tuple[str, str]]:
    """Whether a run that was there before goes on or begins anew; nothing for a run nobody has seen."""
    found = task.outcome.found
    if found is None:
        return []
    if not task.continues:
        return [("run id", "a new one: it starts from nothing")]
    told, *more = records.resumes_from(found, made)
    return [("run id", f"{found.job.run_id}, kept: {told}"), *(("", line) for line in more)]


def _retry_rows(task: Task) -> list[tuple[str, str]]:
    """That this start is an attempt of the retry rule, and after what."""
    found, rule = task.outcome.found, task.wanted.spec.retry
    if found is None or rule is None or task.outcome.first_attempt == 1:
        return []
    told = f"attempt {task.outcome.first_attempt} of {rule.most + 1}, after {records.status_words(found)}"
    cause = records.cause(found)
    return [("retry", told), *([("", cause)] if cause else [])]


def _line_rows(
    task: Task, placement: Placement, chosen: tuple[Candidate, ...], known: Known
) -> tuple[tuple[str, str], ...]:
    verdict = next(item for item in placement.verdicts if item.candidate == chosen[0])
    holding = next((reason for reason in verdict.rejections if reason.token in ("held", "taken_by_plan")), None)
    holder, whose = _holder(holding) if holding is not None else ("", "")
    drained = next((reason.words for reason in verdict.rejections if reason.token == "drained"), "")
    who = ", ".join(part for part in (f"{whose} holds it" if whose else "", drained) if part) or "it is in use"
    rows = [("line", f"{places_name(chosen)}: {who}; {task.wanted.spec.name} would stand in line")]
    here = [found for found in known.records.get(holder, ()) if found.view.machine.name == chosen[0].machine]
    pace = [", ".join(part for part in (records.progress(one.job), records.to_go(one)) if part) for one in here[:1]]
    rows += [("", f"{holder} says {told}") for told in pace if told]
    wait = words.typed(task.wanted.spec.queue_wait_s)
    rows.append(("wait", f"{wait} at most (queue.wait), then it is rejected"))
    return tuple(rows)


def _holder(reason: Rejection) -> tuple[str, str]:
    """The run of this account that holds a card (empty: none), and its holder in words, whose run it is included."""
    told = reason.words.removeprefix("held by run ")
    if reason.token == "taken_by_plan" or " of you, " in told:
        return reason.offered, reason.offered
    # Another account's run may have the name of one of ours.
    return "", told.removeprefix("held by ").rpartition(", ")[0] or told.removeprefix("held by ")


def _with_stop(in_order: tuple[tuple[str, str], ...], task: Task) -> tuple[tuple[str, str], ...]:
    found = task.outcome.found
    if found is None:
        return in_order
    grace = found.job.supervision.get("limits", {}) if isinstance(found.job.supervision.get("limits"), dict) else {}
    told = f"job {found.job.job_id}: asks it to end, {grace.get('grace', '30s')} grace, then kills it"
    after_push = len([step for step, _ in in_order if step == "push"])
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
