"""Starts one job at most once: reserve, look, settle, confirm, as the start protocol proves it.

A job id is minted and written to the ledger before the host hears of it; a lost reply is cured by asking for the same
id again. It must not choose where a run goes.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aicrun.errors import AicrunError, HostRefused, HostUnreachable, Way
from aicrun.hosts.backend import Reserved
from aicrun.lifecycle import silence
from aicrun.lifecycle.events import StepBegan, StepDone, Tell
from aicrun.lifecycle.patience import Patience
from aicrun.lifecycle.session import Session
from aicrun.lifecycle.survey import ask_all
from aicrun.plan.draft import filled
from aicrun.plan.model import RunPlan
from aicrun.wire.codec import replace
from aicrun.wire.jobs import JobReport, JobRequest
from aicrun.wire.names import GATE_S

# Five attempts settle every race that was explored; the rank stays, or rivals could withdraw each other for ever.
_ATTEMPTS_MOST = 5
# A host's reason for its no: the gate was passed before anybody confirmed.
_EXPIRED = "expired"
_RESEND_S = 30.0
_AWAIT_S = GATE_S + 10


@dataclass(frozen=True, slots=True)
class Started:
    """The job that stands now; `adopted` when another apply had started it."""

    machine: str
    report: JobReport
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """One start of one run: where, with which rank, and which machines must answer that they hold no other copy.

    `before_confirm` is called once the start is settled: a replaced job is stopped there, a moved one leaves its line.
    It gets `touch`, which keeps the reservation alive, and returns the job that goes on in spite of it, if one does.
    `secrets` and `diff` (what the source differs in from its commit) go along with the reserve and nowhere else.
    """

    session: Session
    item: RunPlan
    rank: str
    others: tuple[str, ...]
    tell: Tell
    before_confirm: Callable[[Callable[[], None]], Started | None] | None = None
    secrets: Mapping[str, Any] = field(default_factory=dict, repr=False)
    diff: bytes = field(default=b"", repr=False)

    @property
    def machine(self) -> str:
        """Where the job shall run."""
        return self.item.machine


def start(wanted: Start) -> Started:
    """Start the run, or adopt the job that another client started meanwhile.

    Raises `HostRefused` for the host's no, `HostUnreachable` when nothing can be told: then the same call again is
    safe, and adopts the job if there is one.
    """
    began = time.monotonic()
    wanted.tell(StepBegan(wanted.item.run, "start", f"on {wanted.machine}"))
    for _ in range(_ATTEMPTS_MOST):
        started = _attempt(wanted)
        if started is not None:
            words = f"{started.machine}, job {started.report.job_id}"
            if wanted.item.job is not None and started.report.job_id == wanted.item.job.job_id:
                words = f"{started.machine} has just started {wanted.item.run}, so that it stays there"
            elif started.adopted:
                who = started.report.client
                words = f"{started.machine} holds {wanted.item.run} already: started by {who.user} from {who.host}"
            wanted.tell(StepDone(wanted.item.run, "start", words, time.monotonic() - began))
            return started
    raise _unsettled(wanted)


def _unsettled(wanted: Start) -> HostRefused:
    return HostRefused(
        "AIC-E620",
        f"{wanted.item.run} could not be settled: others are starting it at this moment",
        token="busy",
        ways=(Way("see who started it", f"aicrun inspect {wanted.item.run}"),),
    )


def _attempt(wanted: Start) -> Started | None:
    request = _request(wanted)
    alone = not wanted.others and wanted.before_confirm is None
    wanted.session.ledger.note(request.job_id, request.run, wanted.machine, "reserving")
    reserved = _reserved(wanted, request, alone)
    if reserved.answer == "busy":
        wanted.session.ledger.drop(request.job_id)
        return _adopt(wanted, reserved)
    if reserved.answer != "ok":
        wanted.session.ledger.drop(request.job_id)
        _check_chance(wanted, reserved.reason)
        return None
    if not alone:
        rival = _settled(wanted, request)
        if rival is not None:
            _leave(wanted, request, f"{rival.report.job_id} was first")
            return rival
        stays = _before(wanted, request)
        if stays is not None:
            _leave(wanted, request, f"{stays.report.job_id} goes on")
            return stays
        if not _confirmed(wanted, request):
            return None
    wanted.session.ledger.note(request.job_id, request.run, wanted.machine, "started")
    return Started(wanted.machine, _standing(wanted, request))


def _request(wanted: Start) -> JobRequest:
    item = wanted.item
    if item.draft is None:
        raise AicrunError("AIC-E001", f"the plan of {item.run} has no job to start")
    named = tuple(dict.fromkeys((*item.draft.named, *item.named)))
    return filled(
        replace(item.draft, named=named),
        job_id=secrets.token_hex(8),
        run_id=item.run_id or secrets.token_hex(8),
        rank=wanted.rank,
        client=wanted.session.client,
    )


def _reserved(wanted: Start, request: JobRequest, alone: bool) -> Reserved:
    """What the machine answers to the reservation; `alone`: it is the confirm too, and may have started the run."""
    try:
        brought = (wanted.secrets, wanted.diff)
        return _patience(wanted, wanted.machine).ask(lambda backend: backend.reserve(request, alone, *brought))
    except HostUnreachable as error:
        raise (silence.not_known if alone else silence.not_started)(request, wanted.item.spec, error) from error


def _standing(wanted: Start, request: JobRequest) -> JobReport:
    """The job that was just started."""
    try:
        return _patience(wanted, wanted.machine).ask(lambda backend: backend.job(request.job_id))
    except HostUnreachable as error:
        raise silence.started(request, error) from error


def _patience(wanted: Start, machine: str) -> Patience:
    return Patience(wanted.session, machine, wanted.item.run, wanted.tell, _RESEND_S)


def _adopt(wanted: Start, reserved: Reserved) -> Started | None:
    rival = reserved.report
    if rival is None:
        return None
    if rival.decision == "undecided":
        rival = _await_decision(wanted, wanted.machine, rival, None)
        if rival is None:
            return None
    return Started(wanted.machine, rival, adopted=True)


def _await_decision(
    wanted: Start, machine: str, rival: JobReport, touch: Callable[[], None] | None
) -> JobReport | None:
    """The rival once it was decided `go`, None once it can never start; `touch` keeps the own reservation alive.

    Raises `HostRefused` for one that stays undecided: its client lives (it may be stopping an old job for long), and
    whoever went on would start a second copy.
    """
    patience = _patience(wanted, machine)
    end = time.monotonic() + _AWAIT_S
    while rival.decision == "undecided" and time.monotonic() < end:
        job_id = rival.job_id
        rival = patience.ask(lambda backend: backend.wait(job_id, "scheduling", 10.0))  # noqa: B023  # used at once
        if touch is not None:
            touch()
    if rival.decision == "undecided":
        raise _unsettled(wanted)
    return rival if rival.decision == "go" else None


def _settled(wanted: Start, request: JobRequest) -> Started | None:
    """The rival that won, or None; whatever fails here, nothing of this start stays."""
    try:
        return _settle(wanted, request)
    except AicrunError as error:
        # A machine that is silent is not asked once more: what is reserved there ends by itself.
        if error.code != "AIC-E595":
            _leave(wanted, request, f"refused: {error.code}")
        raise


def _settle(wanted: Start, request: JobRequest) -> Started | None:
    """Decide all rivals that were seen after the own reserve; the rival that won, or None."""
    machines = tuple(wanted.session.machine(name) for name in dict.fromkeys((wanted.machine, *wanted.others)))
    heard = ask_all(wanted.session, machines, lambda backend, _: backend.look(request.run))
    rivals: list[tuple[str, JobReport]] = []
    for item in heard:
        unreadable = item.answer is not None and bool(item.answer[1])
        if item.answer is None or unreadable:
            raise _unheard(wanted, request, item.machine.name, item.error)
        mine = (request.job_id, *request.named)
        rivals += [(item.machine.name, report) for report in item.answer[0] if report.job_id not in mine]
    for machine, rival in sorted(rivals, key=lambda pair: (pair[1].rank, pair[1].job_id)):
        try:
            won = _decided(wanted, request, machine, rival)
        except HostUnreachable as error:
            raise _unheard(wanted, request, machine, error) from error
        if won is not None:
            return Started(machine, won, adopted=True)
    return None


def _unheard(wanted: Start, request: JobRequest, machine: str, error: AicrunError | None) -> HostUnreachable:
    """What a start ends with that a machine keeps from being settled."""
    if error is not None and machine == wanted.machine:
        return silence.not_started(request, wanted.item.spec, error)
    why = error.message if error is not None else "a record of this run cannot be read there"
    return silence.may_hold(request, wanted.item.spec, machine, why)


def _decided(wanted: Start, request: JobRequest, machine: str, rival: JobReport) -> JobReport | None:
    if rival.decision == "go":
        return rival
    if rival.rank > wanted.rank:
        decision = _withdraw(wanted, machine, rival.job_id, f"by {request.job_id} of {wanted.session.by}")
        return rival if decision == "go" else None
    _touch(wanted, request)
    return _await_decision(wanted, machine, rival, lambda: _touch(wanted, request))


def _withdraw(wanted: Start, machine: str, job_id: str, reason: str) -> str:
    decision = wanted.session.backend(machine).withdraw(job_id, reason)[0]
    wanted.session.ledger.note(job_id, wanted.item.run, machine, "started" if decision == "go" else "withdrawn")
    return decision


def _touch(wanted: Start, request: JobRequest) -> None:
    # Only progress rests on it: a reservation that ended meanwhile answers `no` to its confirm.
    try:
        wanted.session.backend(wanted.machine).touch(request.job_id)
    except HostUnreachable:
        wanted.session.drop(wanted.machine)


def _before(wanted: Start, request: JobRequest) -> Started | None:
    """What must be done before the gate may open; whatever fails here, nothing of this start stays."""
    if wanted.before_confirm is None:
        return None
    item = wanted.item
    try:
        return wanted.before_confirm(lambda: _touch(wanted, request))
    except HostUnreachable as error:
        if item.job_machine != wanted.machine:
            _leave(wanted, request, f"refused: {error.code}")
        old = item.job.job_id if item.job is not None else item.run
        raise silence.old_not_known(request, item.spec, (old, item.job_machine), error) from error
    except AicrunError as error:
        _leave(wanted, request, f"refused: {error.code}")
        raise


def _confirmed(wanted: Start, request: JobRequest) -> bool:
    try:
        wanted.session.ledger.note(request.job_id, request.run, wanted.machine, "confirming")
        decision, why = _patience(wanted, wanted.machine).ask(lambda backend: backend.confirm(request.job_id))
    except HostUnreachable as error:
        raise silence.not_known(request, wanted.item.spec, error) from error
    except HostRefused as refusal:
        _leave(wanted, request, f"refused: {refusal.code}")
        raise
    if decision != "go":
        _check_chance(wanted, why)
    return decision == "go"


def _check_chance(wanted: Start, why: str) -> None:
    """Raise for a no that another attempt is no answer to: only time and a rival's start are a reason to try again.

    A person's stop, say, is meant for whatever start it met.
    """
    if why and why != _EXPIRED and not why.startswith("by "):
        raise HostRefused(
            "AIC-E612",
            f"{wanted.machine}: the start of {wanted.item.run} was refused before it began: {why}",
            token="start_failed",
            ways=(Way("see how it stands", f"aicrun inspect {wanted.item.run}"),),
        )


def _leave(wanted: Start, request: JobRequest, reason: str) -> None:
    """Withdraw the own reservation, which must not stay for a minute; unconfirmed it starts nothing anyway."""
    with contextlib.suppress(AicrunError):
        _withdraw(wanted, wanted.machine, request.job_id, reason)


def settle_leftovers(session: Session, run: str) -> None:
    """Withdraw what a killed client of this ledger left reserved, so that the next start need not wait for its gate.

    A machine that does not answer now is left alone: the plan sees its silence.
    """
    for left in session.ledger.starts(run):
        if left.step not in ("reserving", "confirming") or left.client_lives:
            continue
        try:
            decision = session.backend(left.machine).withdraw(left.job_id, "its client is gone")[0]
        except AicrunError:
            session.drop(left.machine)
            continue
        session.ledger.note(left.job_id, run, left.machine, "started" if decision == "go" else "withdrawn")
