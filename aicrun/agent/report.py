"""Builds the report of one job from what is known of it. It must not change anything, nor decide a status.

Ages are differences of this host's own clock, never below zero.
"""

import os
import time
from typing import Any, Dict, List, Optional, Tuple

from aicrun.agent import family, hidden_names, history, log_files, outlook, overdue, stall, uploaded
from aicrun.agent.evidence import Known, gather, limits_of, next_attempt
from aicrun.agent.home import Home
from aicrun.agent.kept import Launch
from aicrun.agent.launch import keeper_words
from aicrun.agent.process import boot_identity
from aicrun.agent.records import NewerRecord, Unreadable, read_json, read_record
from aicrun.agent.state import Place, StepSeen, place
from aicrun.wire import names
from aicrun.wire.codec import replace
from aicrun.wire.jobs import (
    Client,
    End,
    JobReport,
    JobRequest,
    RunRecord,
    StepExit,
    StepReport,
    StepStart,
    StopIntent,
    Upload,
)
from aicrun.wire.launched import Launched
from aicrun.wire.seen import Checkpoints
from aicrun.wire.upload import Early


def report_of(home: Home, run: str, job_id: str, *, events: bool = False) -> JobReport:
    """Everything about one job; raises `Unreadable` or `NewerRecord` when its record cannot be read."""
    known = gather(home, run, job_id)
    return report_from(home, known, time.time(), events=events)


def report_from(home: Home, known: Known, now: float, *, events: bool = False) -> JobReport:
    """The report of what was gathered, at `now` of this host's clock."""
    record, seen, where = known.record, known.evidence, place(known.evidence)
    stop = _stop(known, where)
    report = JobReport(
        job_id=record.job_id,
        run=record.run,
        run_id=record.run_id,
        digest=record.digest,
        client=record.client,
        age_s=_age(now, record.created_at),
        decision=where.decision,
        phase=where.phase,
        rank=record.rank,
        decision_reason=where.reason,
        supervised=where.supervised,
        steps=_steps(home, known, where, now),
        stop=stop,
        stop_age_s=_age(now, stop.at) if stop is not None else None,
        leftover_pids=known.leftover_pids,
        lost=where.lost,
        lost_detail=_lost_detail(home, known, where),
        ended_age_s=_age(now, seen.end.at) if seen.end is not None and where.phase == "ended" else None,
        execution=record.execution,
        supervision=_supervision(known),
        source=record.source,
        workspace=record.workspace,
        checkpoints=_checkpoints(home, record, now),
        upload_request=_target(known),
        upload=known.upload or (seen.end.upload if seen.end is not None else None),
        cards=record.cards,
        card_indexes=record.card_indexes,
        machine=record.machine,
        swept=seen.end is not None and not seen.has_folder,
        progress=_progress(home, known),
        facts=_facts(home, record),
        forgotten=known.forgotten,
        events=history.read(home.job_dir(record.job_id), now) if events else (),
        line=known.line if where.phase not in ("ended", "never_started") else None,
        card_allocated=known.card_allocated,
        launched=_launched(known.launch),
        early=_early(home, known, now),
        **_typed(record),
    )
    return _with_attempts(_with_stall(home, _with_sample(home, report, now), known, now), known)


def _typed(record: RunRecord) -> Dict[str, Any]:
    """What was typed to start it."""
    return {"spec_file": record.spec_file, "spec_folder": record.spec_folder, "asked": record.asked}


def _target(known: Known) -> Optional[Upload]:
    """The target that counts: that of the spec, or the one that somebody named for the ended job."""
    return known.retarget.upload if known.retarget is not None else known.record.upload


def _early(home: Home, known: Known, now: float) -> Optional[Early]:
    wanted, kept = _target(known), uploaded.read(home, known.record.run, known.record.job_id)
    # What is verified at a target that does not count any more says nothing of the one that does.
    return uploaded.told(kept, now) if wanted is not None and kept.destination == wanted.destination else None


def _with_sample(home: Home, report: JobReport, now: float) -> JobReport:
    found = outlook.sample(home.job_dir(report.job_id), now) if report.phase == "command" else {}
    return replace(report, sample=found) if found else report


def _with_stall(home: Home, report: JobReport, known: Known, now: float) -> JobReport:
    """`report` with how long its command has been silent, where a limit is set and was reached."""
    start = next((step.start for step in known.evidence.steps if step.step == "command" and step.exit is None), None)
    if report.phase != "command" or start is None:
        return report
    limit_s = limits_of(known, home.job_dir(report.job_id)).stall_s
    folder = home.step_dir(report.job_id, known.evidence.attempt, "command")
    if limit_s is None:
        return report
    ran_s = overdue.ran_s(start) if family.on_this_boot(start) else None
    silent_s = stall.silent_s(folder, known.record.checkpoints, start.started_at, now, ran_s)
    return replace(report, stalled_s=round(silent_s, 1), stall_limit_s=limit_s) if silent_s >= limit_s else report


def _with_attempts(report: JobReport, known: Known) -> JobReport:
    """`report` with which attempt this is, of how many, and which one is due."""
    seen, changed = known.evidence, known.supervision
    rule = changed.retry if changed is not None and changed.retry is not None else known.record.retry
    attempt = seen.end.attempts if seen.end is not None else seen.attempt
    told = replace(report, attempt=attempt, attempts_most=1 + rule.most, next_attempt=next_attempt(known))
    return replace(told, first_attempt=known.record.first_attempt)


def _launched(launch: Optional[Launch]) -> Optional[Launched]:
    if launch is None:
        return None
    # Keepers of 0.1.0 wrote the mode alone.
    return launch.launched or (Launched(launch.mode) if launch.mode else None)


def _supervision(known: Known) -> Dict[str, Any]:
    changed = known.supervision.supervision if known.supervision is not None else known.record.supervision
    return changed if isinstance(changed, dict) else {}


def broken(run: str, job_id: str, error: Unreadable) -> JobReport:
    """The report of a job whose record is there and cannot be read: it may have run, so its end is unknown."""
    return JobReport(
        job_id,
        run,
        run_id="",
        digest="",
        client=Client("", "", ""),
        age_s=0.0,
        decision="go",
        phase="ended",
        lost="record_lost",
        lost_detail=str(error),
        newer_schema=isinstance(error, NewerRecord),
    )


def _stop(known: Known, where: Place) -> Optional[StopIntent]:
    if known.evidence.end is not None and where.phase == "ended":
        return known.evidence.end.stop
    return known.stop


def _steps(home: Home, known: Known, where: Place, now: float) -> Tuple[StepReport, ...]:
    record, seen = known.record, known.evidence
    by_name: Dict[str, StepSeen] = {step.step: step for step in seen.steps}
    ended = _ended_steps(seen.end)
    if known.upload_exit is not None:
        ended["upload"] = known.upload_exit
    looked = ["preflight"] if "preflight" in by_name or "preflight" in ended else []
    wanted = ["setup", *looked, "command"] + (["upload"] if _target(known) is not None else [])
    single = os.path.join(home.job_dir(record.job_id), names.UPLOAD_ONLY)
    found: List[StepReport] = []
    for name in wanted:
        step = by_name.get(name) or StepSeen(name, exit=ended.get(name))
        if name == "upload" and where.phase == "ended" and os.path.exists(single):
            # How one checkpoint fared on its own says nothing of the run.
            step = StepSeen(name, exit=ended.get(name))
        # A setup is not repeated: its folder lies with the first attempt.
        folder = home.step_dir(record.job_id, seen.first if name == "setup" else seen.attempt, name)
        found.append(_step(step, folder, seen.keeper_lives and where.phase != "ended", now))
    return tuple(found)


def _ended_steps(end: Optional[End]) -> Dict[str, StepExit]:
    return {one.step: one for one in end.exits} if end is not None else {}


def _step(step: StepSeen, folder: str, kept: bool, now: float) -> StepReport:
    state = "waiting"
    if step.exit is not None:
        state = "ended"
    elif step.start is not None:
        state = "running" if kept or step.main_lives else "lost"
    log = log_files.read_state(folder)
    return StepReport(
        step.step,
        state,
        pid=step.start.pid if step.start is not None and state == "running" else 0,
        age_s=_step_age(step.start, now, state == "running") if step.start is not None else None,
        exit=step.exit,
        log_bytes=log.total if log is not None else 0,
        log_dropped_bytes=log.dropped + log_files.fallen_out(log) if log is not None else 0,
    )


def _step_age(start: StepStart, now: float, is_running: bool) -> float:
    # Whatever the wall clock was set to since it began.
    return overdue.ran_s(start) if is_running and family.on_this_boot(start) else _age(now, start.started_at)


def _lost_detail(home: Home, known: Known, where: Place) -> str:
    """One line of evidence for an end that nobody recorded."""
    seen = known.evidence
    missed = seen.end.next_attempt if seen.end is not None else None
    if seen.end is not None and (where.lost or (missed is not None and missed.not_made == "card")):
        return seen.end.detail
    if where.lost == "record_lost":
        return "its folder %s is gone" % home.job_dir(known.record.job_id)
    if where.lost == "reboot" and known.launch is not None:
        return "the host was restarted since: boot %s then, %s now" % (
            known.launch.boot.boot_id,
            boot_identity().boot_id,
        )
    if where.lost:
        pids = ["%s pid %d" % (step.step, step.start.pid) for step in seen.steps if step.start is not None]
        keeper = "keeper pid %d" % known.launch.pid if known.launch is not None else "its keeper"
        told = "%s is gone and nothing of it lives (%s)" % (keeper, ", ".join(pids))
        late = overdue.words(known.stop)
        return "%s; %s" % (late, told) if late else told
    if where.phase == "never_started" and seen.end is not None and seen.end.detail:
        return seen.end.detail
    if where.phase == "never_started":
        return keeper_words(home.job_dir(known.record.job_id))
    return "; ".join(known.torn)


def _checkpoints(home: Home, record: RunRecord, now: float) -> Optional[Checkpoints]:
    found = outlook.checkpoints(record.checkpoints, now)
    if found is None or not found.newest:
        return found
    newest = hidden_names.shown(home, record.run, record.job_id, os.path.join(record.checkpoints, found.newest))
    return replace(found, newest=newest)


def _progress(home: Home, known: Known) -> Dict[str, str]:
    record, seen = known.record, known.evidence
    patterns: Dict[str, Any] = {}
    try:
        request = read_record(os.path.join(home.job_dir(record.job_id), names.REQUEST), JobRequest)
        patterns = request.progress if request is not None else {}
    except Unreadable:
        # Progress is a courtesy: a broken request hides no status.
        return {}
    return outlook.progress(patterns, home.step_dir(record.job_id, seen.attempt, "command"))


def _facts(home: Home, record: RunRecord) -> Dict[str, Any]:
    facts = _object(os.path.join(home.record_dir(record.run, record.job_id), names.FACTS))
    setup = _object(os.path.join(home.job_dir(record.job_id), names.SETUP_RESULT))
    return dict(facts, setup=setup) if setup else facts


def _object(path: str) -> Dict[str, Any]:
    try:
        data = read_json(path)
    except Unreadable:
        return {}
    return data if isinstance(data, dict) else {}


def _age(now: float, then: float) -> float:
    return max(0.0, now - then)
