"""Carries out a plan, action by action, and decides nothing: what it may not do, the plan has refused before.

Each action is idempotent by job id; a cut connection is cured by applying again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from aicrun.errors import HostRefused, PlanRefused, Way
from aicrun.hosts.backend import Backend
from aicrun.lifecycle.events import Happening, StepBegan, StepDone, Tell
from aicrun.lifecycle.find import Found
from aicrun.lifecycle.patience import Patience
from aicrun.lifecycle.session import Session
from aicrun.lifecycle.snapshot import Snapshot, contents
from aicrun.lifecycle.source_diff import diff_of
from aicrun.lifecycle.start import Start, Started, start
from aicrun.lifecycle.stop import until_stopped
from aicrun.lifecycle.upload import upload
from aicrun.plan.commands import typed, typed_for_all
from aicrun.plan.draft import limits as limits_of
from aicrun.plan.draft import retry as retry_of
from aicrun.plan.model import Plan, RunPlan, Sign
from aicrun.plan.secret_sources import secret_sources
from aicrun.plan.words import counted, size
from aicrun.wire.codec import to_json
from aicrun.wire.jobs import JobReport
from aicrun.wire.status import Status, status_of

# What is done between settling and confirming; it gets `touch`, which keeps the reservation alive.
BeforeConfirm = Callable[[Callable[[], None]], Started | None]
STARTS = frozenset((Sign.START, Sign.WAIT, Sign.REPLACE, Sign.MOVE))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an apply did to one run; `found` is absent for a run that was refused. `adopted`: another had started it."""

    run: str
    sign: Sign
    found: Found | None = None
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class Brought:
    """What a start brings along: the source of the run, if it has one, its inputs by name, its secrets' values.

    `diff` is what the source differs in from its commit.
    """

    snapshot: Snapshot | None
    secrets: Mapping[str, Any] = field(default_factory=dict, repr=False)
    inputs: Mapping[str, Snapshot] = field(default_factory=dict)
    diff: bytes = field(default=b"", repr=False)


def refused(plan: Plan) -> tuple[RunPlan, ...]:
    """The runs that this plan will not carry out: one of them refuses the whole apply."""
    return tuple(item for item in plan.runs if item.sign is Sign.REFUSE or item.apply_refusal is not None)


def carry_out(session: Session, plan: Plan, snapshots: Mapping[str, Snapshot], tell: Tell) -> tuple[Outcome, ...]:
    """Do all actions in the order of the plan; `snapshots` as `wanted.gathered` gives them.

    Raises `HostRefused` when the world moved since the survey (then nothing of that run was done), `PlanRefused`
    when a run of the plan is refused.
    """
    if refused(plan):
        raise PlanRefused("AIC-E630", "the plan refuses a run; nothing was changed")
    if plan.fleet.offline:
        # Nobody was asked whether a copy is there, so that nobody would be asked before the start either.
        ways = (Way("plan with what is there now", typed_for_all("plan", plan)),)
        raise PlanRefused("AIC-E632", "an offline plan asked no machine and cannot be applied", ways=ways)
    rank = secrets.token_hex(8)
    # All values before the first start: a run whose secret is missing must not leave half of the plan done.
    brought = {item.run: _brought(session, item, snapshots) for item in plan.runs}
    return tuple(_one(session, plan, item, brought[item.run], rank, tell) for item in plan.runs)


def check_secrets(session: Session, plan: Plan) -> None:
    """Raises `UsageError` (AIC-E022) when a run that would be started needs a value that this client has not."""
    for item in plan.runs:
        if item.sign in STARTS:
            session.secrets.check(item.run, secret_sources(item.spec.execution, item.spec.supervision))


def _brought(session: Session, item: RunPlan, snapshots: Mapping[str, Snapshot]) -> Brought:
    inputs = {key.partition("/")[2]: taken for key, taken in snapshots.items() if key.startswith(f"{item.run}/")}
    snapshot, source = snapshots.get(item.run), item.spec.source
    if snapshot is None or source is None or item.sign not in STARTS:
        return Brought(snapshot, _secrets(session, item), inputs)
    return Brought(snapshot, _secrets(session, item), inputs, diff_of(snapshot, source))


def _secrets(session: Session, item: RunPlan) -> Mapping[str, Any]:
    if item.sign not in STARTS:
        return {}
    return session.secrets.given(item.run, secret_sources(item.spec.execution, item.spec.supervision))


def _one(session: Session, plan: Plan, item: RunPlan, brought: Brought, rank: str, tell: Tell) -> Outcome:
    if item.sign in STARTS:
        others = tuple(
            view.machine.name
            for view in plan.fleet.machines
            if view.state == "answered" and view.machine.name != item.machine
        )
        reading = next((view.reading for view in plan.fleet.machines if view.machine.name == item.machine), None)
        _push_all(session, item, brought, tell, {one.key for one in reading.inputs_ready} if reading else set())
        if plan.options.forget and item.job is not None and status_of(item.job).status is Status.UNKNOWN:
            session.backend(item.job_machine).forget(item.job.job_id, session.by)
        before = _before_confirm(session, item, tell)
        wanted = Start(session, item, rank, others, tell, before, brought.secrets, brought.diff)
        return _outcome(item, _with_all(wanted, brought))
    found = Found(item.machine, item.job) if item.job is not None else None
    if found is not None and item.sign is Sign.CHANGE:
        found = _change(session, item, found, tell)
    elif found is not None and item.sign is Sign.UPLOAD:
        found = upload(session, found, tell)
    return Outcome(item.run, item.sign, found)


def _outcome(item: RunPlan, started: Started) -> Outcome:
    if started.adopted and started.report.digest != item.digest:
        raise HostRefused(
            "AIC-E621",
            f"{item.run} was started with another spec meanwhile, on {started.machine}",
            token="busy",
            facts=(("started by", f"{started.report.client.user} from {started.report.client.host}"),),
            ways=(Way("see the difference", typed("plan", item.spec)),),
        )
    return Outcome(item.run, item.sign, Found(started.machine, started.report), started.adopted)


def _with_all(wanted: Start, brought: Brought) -> Started:
    try:
        return start(wanted)
    except HostRefused as error:
        if error.token != "store_incomplete" or not (brought.snapshot or brought.inputs):
            raise
    # The host's sweep took an object between push and reserve; pushed again it is fresh.
    _push_all(wanted.session, wanted.item, brought, wanted.tell, frozenset())
    return start(wanted)


def _push_all(session: Session, item: RunPlan, brought: Brought, tell: Tell, ready: AbstractSet[str]) -> None:
    """Push the source, and each input whose key is not among those that are `ready` there."""
    if brought.snapshot is not None:
        push(session, item, brought.snapshot, tell)
    for one in item.draft.fetches if item.draft is not None else ():
        if one.input in brought.inputs and one.key not in ready:
            push(session, item, brought.inputs[one.input], tell, f"input {one.input}: ")


def push(session: Session, item: RunPlan, snapshot: Snapshot, tell: Tell, what: str = "") -> None:
    """Send to the machine's store what it lacks of a tree; holds nothing, safe to repeat and to lose."""
    began = time.monotonic()
    source = snapshot.source
    words = f"{what}{counted(source.files, 'file')}, {size(source.bytes)} to {item.machine}"
    tell(StepBegan(item.run, "push", words))
    patience = Patience(session, item.machine, item.run, tell, 30.0)
    missing = patience.ask(lambda backend: backend.missing(source.tree, snapshot.manifest, snapshot.hashes))
    if missing:
        # What a lost connection had brought is not asked for again.
        is_first = True

        def send(backend: Backend) -> None:
            nonlocal is_first
            still = missing if is_first else backend.missing(source.tree, snapshot.manifest, snapshot.hashes)
            is_first = False
            backend.put(contents(snapshot, still))

        patience.ask(send)
    tell(StepDone(item.run, "push", what + _sent(snapshot, missing, item.machine), time.monotonic() - began))


def _sent(snapshot: Snapshot, missing: Sequence[str], machine: str) -> str:
    """What went over: all, nothing, or the files that the machine lacked."""
    source, sent = snapshot.source, contents(snapshot, missing)
    if missing and len(sent) < len(snapshot.hashes):
        part = size(sum(content.bytes for content in sent))
        return f"{len(sent):,} of {counted(source.files, 'file')}, {part} to {machine}"
    words = f"{counted(source.files, 'file')}, {size(source.bytes)} to {machine}"
    return words if missing else f"{words}: all there"


def _before_confirm(session: Session, item: RunPlan, tell: Tell) -> BeforeConfirm | None:
    """What becomes of the job that this start takes the place of, done once the start is settled.

    A client that lost has stopped nothing then, and no line is left for nothing.
    """
    job, steps = item.job, {Sign.REPLACE: _stop_old, Sign.MOVE: _leave_line}
    step = steps.get(item.sign)
    if job is None or step is None:
        return None

    def done(touch: Callable[[], None]) -> Started | None:
        def told(what: Happening) -> None:
            touch()
            tell(what)

        return step(Patience(session, item.job_machine, item.run, told, 60.0), item, job)

    return done


def _stop_old(patience: Patience, item: RunPlan, job: JobReport) -> Started | None:
    """End the replaced job; raises `PlanRefused` when its tree lives on or nobody knows its end."""
    report = patience.ask(lambda backend: backend.stop(job.job_id, patience.session.by, None))
    report = until_stopped(patience, report)
    standing = status_of(report)
    if standing.status in (Status.STOP_FAILED, Status.UNKNOWN):
        raise PlanRefused(
            "AIC-E631",
            f"{item.run}: the old job is {standing.status.value}, so the new one was not started",
            facts=(("old job", standing.why or job.job_id),),
            ways=(Way("look at it", f"aicrun inspect {job.job_id}"),),
        )
    return None


def _leave_line(patience: Patience, item: RunPlan, job: JobReport) -> Started | None:
    """Take the waiting job out of its line; the job itself when it was started at this very moment, and stays."""
    began = time.monotonic()
    patience.tell(StepBegan(item.run, "move", f"job {job.job_id} leaves the line of {item.job_machine}"))
    decision, _ = patience.ask(lambda backend: backend.unqueue(job.job_id, patience.session.by))
    if decision != "no":
        return Started(item.job_machine, patience.ask(lambda backend: backend.job(job.job_id)), adopted=True)
    words = f"job {job.job_id} left the line of {item.job_machine}"
    patience.tell(StepDone(item.run, "move", words, time.monotonic() - began))
    return None


def _change(session: Session, item: RunPlan, found: Found, tell: Tell) -> Found:
    began = time.monotonic()
    limits, retry = to_json(limits_of(item.spec)), to_json(retry_of(item.spec))
    supervision = dict(item.spec.supervision)
    report = session.backend(found.machine).supervise(found.report.job_id, supervision, limits, session.by, retry)
    tell(StepDone(item.run, "change", f"{found.machine} delivered it to the keeper", time.monotonic() - began))
    return found.as_it_is(report)
