"""Makes a job, at most once: by its id (same id, same answer) and by its run's name (start-protocol, section 2).

All of it happens under the host lock: another record of the run is settled before ours exists, and ours exists only
together with a living keeper behind a closed gate. Nothing of the job runs before a durable `go`.
"""

import os
import shutil
import time
from typing import Any, Dict, List, Optional, Tuple

from aicrun.agent import (
    brought,
    decide,
    disk_room,
    drain_marks,
    drains,
    handles,
    hooks,
    jobs,
    keepers,
    launch,
    source_diff,
    store,
    vault,
)
from aicrun.agent.history import note
from aicrun.agent.home import Home, listed
from aicrun.agent.process import boot_identity
from aicrun.agent.records import (
    NewerRecord,
    Unreadable,
    keep_room,
    make_private,
    read_json,
    read_record,
    sync_folder,
    write_record,
)
from aicrun.agent.refused import Refused
from aicrun.wire import names
from aicrun.wire.codec import WireError, from_json, to_json
from aicrun.wire.jobs import SCHEMA, Decision, JobReport, JobRequest, RunRecord
from aicrun.wire.seen import InLine

Answer = Tuple[Dict[str, Any], bytes]

_NEW = ".new-"


def reserve(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{request, confirm, secrets} -> {answer, report, reason}: `ok`, `busy` (with the record in the way) or `no`.

    With `confirm` the decision `go` is written in the same step; `secrets` are as `vault.taken` says. The payload is
    what the source differs in from its commit. Raises `Refused`:
    invalid_request, secret_refused, newer_record, state_unusable, store_incomplete, too_many_jobs, drained,
    disk_full, start_failed.
    """
    request = _request(body)
    secrets, diff = vault.taken(body), source_diff.taken(payload)
    confirm = body.get("confirm") is True
    _check_store(home, request)
    with home.host_lock():
        known = _known(home, request, confirm)
        if known is not None:
            return known
        in_the_way = _in_the_way(home, request)
        if in_the_way is not None:
            return _told("busy", in_the_way, in_the_way.decision)
        _check_drain(request)
        _check_room(home, request)
        disk_room.check(request, home.host_id)
        try:
            _make(home, request, secrets, diff)
        except OSError:
            # A full disk: nothing half made may stay, and the caller is told what the system said.
            _clear_half_made(home, request.job_id)
            raise
        decision = _launch(home, request, confirm)
    if decision is not None:
        launch.poke(home.job_dir(request.job_id))
    return _told("ok", jobs.one(home, request.run, request.job_id), "")


def _request(body: Dict[str, Any]) -> JobRequest:
    raw = body.get("request")
    if isinstance(raw, dict) and isinstance(raw.get("schema"), int) and raw["schema"] > SCHEMA:
        raise Refused("newer_record", "the request was written by a newer aicrun (schema %d)" % raw["schema"])
    try:
        request = from_json(JobRequest, raw, "request")
    except WireError as error:
        raise Refused("invalid_request", str(error)) from error
    faults = _faults(request)
    if faults:
        raise Refused("invalid_request", "the request has faults: %s" % "; ".join(faults), {"job": request.job_id[:16]})
    return request


def _faults(request: JobRequest) -> List[str]:
    faults = []
    if not names.HEX16.match(request.job_id):
        faults.append("job_id is not 16 hex digits")
    if not names.HEX16.match(request.run_id):
        faults.append("run_id is not 16 hex digits")
    if not names.RUN_NAME.match(request.run):
        faults.append("run is no run name")
    if not os.path.isabs(request.workspace):
        faults.append("workspace is not absolute")
    if request.checkpoints and not os.path.isabs(request.checkpoints):
        faults.append("checkpoints is not absolute")
    if not request.command or not request.command[0]:
        faults.append("command is empty")
    if not request.is_argv and len(request.command) != 1:
        faults.append("command as text is one item")
    if sum(len(part.encode("utf-8", "surrogatepass")) for part in request.command) > names.COMMAND_CAP_BYTES:
        faults.append("command is over %d bytes" % names.COMMAND_CAP_BYTES)
    if any("\0" in part for part in request.command + tuple(request.env.values()) + tuple(request.env)):
        faults.append("command or env holds a NUL character")
    if any(not name or "=" in name for name in request.env):
        faults.append("env has a name that is empty or holds =")
    if request.queue_wait_s < 0:
        faults.append("queue_wait_s is below zero")
    if request.limits.grace_s < 0 or request.max_jobs < 1:
        faults.append("limits are below zero")
    faults += brought.faults(request)
    if min(request.retry.most, request.retry.backoff_s, request.retry.backoff_most_s) < 0 or request.first_attempt < 1:
        faults.append("retry is below zero")
    return faults


def _check_store(home: Home, request: JobRequest) -> None:
    trees = [(one.tree, "input %s" % one.input) for one in request.fetches if one.tree and not brought.is_ready(one)]
    if request.source is not None and not request.source.git:
        trees.insert(0, (request.source.tree, "the source"))
    for tree, what in trees:
        missing = store.complete(home, tree)
        if missing:
            facts = {"tree": tree, "missing": str(len(missing)), "first": missing[0]}
            message = "%s is not complete here: %d contents are missing" % (what, len(missing))
            raise Refused("store_incomplete", message, facts)


def _known(home: Home, request: JobRequest, confirm: bool) -> Optional[Answer]:
    """The answer for an id that was heard of before, None for a new one; a repeated `confirm` decides now."""
    buried = decide.tombstone(home, request.job_id)
    if buried is not None:
        return _told("no", None, buried.reason)
    run = _run_of(home, request)
    if run is None:
        return None
    if run != request.run:
        raise Refused("invalid_request", "job %s belongs to the run %s" % (request.job_id, run), {"run": run})
    decision = decide.settle(home, run, request.job_id)
    if decision is None and confirm:
        decision = decide.begin(home, run, request.job_id, _by(request))
        launch.poke(home.job_dir(request.job_id))
    report = jobs.seen(home, run, request.job_id)
    if decision is not None and decision.decision == "no":
        return _told("no", report, decision.reason)
    return _told("ok", report, "")


def _run_of(home: Home, request: JobRequest) -> Optional[str]:
    try:
        return home.run_of(request.job_id)
    except Refused:
        # Some run's folder cannot be read. The id was minted for this run: only its own folder must be sure.
        listed(home.run_dir(request.run))
        return None


def _in_the_way(home: Home, request: JobRequest) -> Optional[JobReport]:
    """Another record of this run that counts as started or as being started; raises `Refused` for an unreadable one."""
    for job_id in home.job_ids(request.run):
        try:
            decide.settle(home, request.run, job_id)
            report = jobs.seen(home, request.run, job_id)
        except Unreadable as error:
            token = "newer_record" if isinstance(error, NewerRecord) else "state_unusable"
            raise Refused(token, "a record of the run %s may be this run: %s" % (request.run, error)) from error
        ignored = report.decision == "no" or report.phase == "never_started" or report.forgotten
        if not ignored and job_id not in request.named:
            return report
    return None


def _check_drain(request: JobRequest) -> None:
    """A run without a card has no line to stand in: on a drained machine it is refused."""
    mark = None if request.cards else drains.now()
    if mark is not None:
        raise drain_marks.refusal(mark, "no new run starts here")


def _check_room(home: Home, request: JobRequest) -> None:
    kept = [job_id for job_id in os.listdir(home.jobs()) if handles.keeper_lives(home.job_dir(job_id))]
    # Those that wait in line are counted by their tickets, with a limit of their own.
    active = sum(1 for job_id in kept if not _waits(home, job_id))
    if active >= request.max_jobs:
        facts = {"active": str(active), "most": str(request.max_jobs)}
        raise Refused("too_many_jobs", "%d jobs are active here, %d are allowed" % (active, request.max_jobs), facts)


def _waits(home: Home, job_id: str) -> bool:
    try:
        said = read_record(os.path.join(home.job_dir(job_id), names.LINE), InLine)
    except Unreadable:
        return False
    return said is not None and not said.granted


def _make(home: Home, request: JobRequest, secrets: vault.Secrets, diff: bytes) -> None:
    """Job folder first, record second: a job exists when its record does, and then it has its folder."""
    hooks.reached("reserve.begin")
    _clear_half_made(home, request.job_id)
    folder = os.path.join(home.jobs(), _NEW + request.job_id)
    os.mkdir(folder, 0o700)
    write_record(os.path.join(folder, names.REQUEST), request)
    # A run that fills the disk must still be stopped.
    keep_room(os.path.join(folder, names.STOP))
    vault.put(folder, secrets)
    os.rename(folder, home.job_dir(request.job_id))
    sync_folder(home.jobs())
    decide.touched(home, request.job_id)
    hooks.reached("reserve.folder")
    run_dir = home.run_dir(request.run)
    make_private(run_dir)
    record_dir = os.path.join(run_dir, _NEW + request.job_id)
    os.mkdir(record_dir, 0o700)
    write_record(os.path.join(record_dir, names.RECORD), _record(home, request))
    source_diff.put(record_dir, diff, secrets.values())
    keep_room(os.path.join(record_dir, names.DECISION))
    os.rename(record_dir, home.record_dir(request.run, request.job_id))
    sync_folder(run_dir)
    sync_folder(home.runs())
    unasked = "not asked whether they hold a copy: %s" % ", ".join(request.left_out) if request.left_out else ""
    note(home.job_dir(request.job_id), "reserved", by=_by(request), detail=unasked)
    hooks.reached("reserve.record")


def _clear_half_made(home: Home, job_id: str) -> None:
    """What a killed reserve left: names that only this lock's holder uses, and a folder without a record."""
    for folder in (home.jobs(), *(home.run_dir(run) for run in home.run_names())):
        for name in _names_in(folder):
            if name.startswith(_NEW):
                shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    if os.path.isdir(home.job_dir(job_id)) and not handles.keeper_lives(home.job_dir(job_id)):
        shutil.rmtree(home.job_dir(job_id))


def _names_in(folder: str) -> List[str]:
    try:
        return listed(folder)
    except Refused:
        # Another run's, which is not the one that is made here.
        return []


def _record(home: Home, request: JobRequest) -> RunRecord:
    return RunRecord(
        job_id=request.job_id,
        run=request.run,
        run_id=request.run_id,
        rank=request.rank,
        digest=request.digest,
        client=request.client,
        created_at=time.time(),
        named=request.named,
        execution=request.execution,
        supervision=request.supervision,
        machine=request.machine,
        spec_file=request.spec_file,
        workspace=request.workspace,
        checkpoints=request.checkpoints,
        upload=request.upload,
        source=request.source,
        cards=request.cards,
        card_indexes=request.card_indexes,
        boot_id=boot_identity().boot_id,
        host_id=home.host_id,
        retry=request.retry,
        first_attempt=request.first_attempt,
        spec_folder=request.spec_folder,
        asked=request.asked,
    )


def _launch(home: Home, request: JobRequest, confirm: bool) -> Optional[Decision]:
    job_dir = home.job_dir(request.job_id)
    try:
        keepers.start("keeper", job_dir, request.limits.grace_s)
        hooks.reached("reserve.ready")
    except (Refused, OSError) as error:
        vault.remove(job_dir)
        # A keeper that comes up after all finds this and leaves.
        told = _keeper_refused(job_dir)
        decide.decide(home, request.run, request.job_id, decide.no(told.token if told else "keeper lost", "host"))
        if told is not None:
            raise told from error
        if isinstance(error, OSError):
            raise Refused("start_failed", "no process could be started: %s" % error.strerror) from error
        raise
    return decide.begin(home, request.run, request.job_id, _by(request)) if confirm else None


def _keeper_refused(job_dir: str) -> Optional[Refused]:
    """What the keeper refused before it announced itself: the cards are busy, or cannot be locked."""
    try:
        told = read_json(os.path.join(job_dir, names.REFUSED))
        return Refused(str(told["token"]), str(told["message"]), dict(told["facts"])) if told else None
    except (Unreadable, KeyError, TypeError, ValueError):
        return None


def _by(request: JobRequest) -> str:
    return "%s@%s" % (request.client.user, request.client.host)


def _told(answer: str, report: Optional[JobReport], reason: str) -> Answer:
    told: Dict[str, Any] = {"answer": answer, "reason": reason}
    if report is not None:
        told["report"] = to_json(report)
    return told, b""
