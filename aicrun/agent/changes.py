"""What a person may do to a job that exists: change its supervision, upload again, delete, forget.

Nothing here touches a workspace or a checkpoint; only what our own folders hold is ever removed.
"""

import os
import shutil
import time
from typing import Any, Dict, Optional, Tuple

from aicrun.agent import bodies, decide, folder_users, handles, jobs, keepers, launch, left_groups, retarget, vault
from aicrun.agent.history import note
from aicrun.agent.home import Home
from aicrun.agent.kept import Mark, Supervision
from aicrun.agent.records import Unreadable, place_once, read_record, sync_folder, write_record
from aicrun.agent.refused import Refused
from aicrun.agent.report import broken
from aicrun.wire import names
from aicrun.wire.codec import WireError, from_json
from aicrun.wire.jobs import SCHEMA, JobReport, Limits, Retry, Upload
from aicrun.wire.status import Status, status_of

Answer = Tuple[Dict[str, Any], bytes]

KEEPER_LEAVES_S = 15.0


def supervise(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{job_id, supervision, limits, retry, by} -> {report}: changed in place, read by a live keeper at once.

    Without `retry` (an older client) the rule stays as it is.
    """
    job_id, by = bodies.job_id(body), bodies.by(body)
    run = decide.run_of(home, job_id)
    supervision = body.get("supervision")
    if not isinstance(supervision, dict):
        raise Refused("invalid_request", "supervision: an object is expected", {"field": "supervision"})
    field = "limits"
    try:
        limits = from_json(Limits, body.get("limits") or {}, field)
        field = "retry"
        retry = from_json(Retry, body["retry"], field) if "retry" in body else None
    except WireError as error:
        raise Refused("invalid_request", str(error), {"field": field}) from error
    path = os.path.join(home.record_dir(run, job_id), names.SUPERVISION)
    with home.host_lock():
        before = read_record(path, Supervision) if retry is None else None
        retry = before.retry if before is not None else retry
        write_record(path, Supervision(supervision, limits, by, time.time(), retry=retry))
    note(home.job_dir(job_id), "changed", by=by, detail=", ".join(sorted(supervision)))
    launch.poke(home.job_dir(job_id))
    return jobs.told(jobs.one(home, run, job_id))


def upload(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{job_id, by, secrets, checkpoint, upload} -> {report}: upload an ended job's checkpoints again, or one of them.

    It returns when its keeper runs.

    `upload` is another target than that of the spec, from now on.
    What is verified already is looked at anew, for somebody may have removed it since. Raises `Refused`: not_finished
    (of it, or of another job that writes there), nothing_to_upload (no target, another one than that where all is
    verified, or its private files were swept).
    """
    job_id, by, secrets = bodies.job_id(body), bodies.by(body), vault.taken(body)
    goal = retarget.asked(body)
    run = decide.run_of(home, job_id)
    job_dir, only = home.job_dir(job_id), bodies.text(body, "checkpoint", "")
    _await_keeper(home, run, job_id)
    with home.host_lock():
        report = jobs.seen(home, run, job_id)
        if report.phase == "upload" and os.path.exists(os.path.join(home.record_dir(run, job_id), names.END)):
            # It is being uploaded again already: same wish, same answer.
            _check_same(report, goal)
            return jobs.told(report)
        _check_upload(report, os.path.exists(os.path.join(job_dir, names.REQUEST)), goal is not None)
        # What another job writes there is half written at any moment.
        folder_users.check_free(home, report)
        _check_keeper(home, job_id)
        _remove(os.path.join(job_dir, names.UPLOAD_ONLY))
        if only:
            write_record(os.path.join(job_dir, names.UPLOAD_ONLY), {"schema": SCHEMA, "name": only})
        if goal is not None:
            retarget.write(home, report, goal, by)
        # The stop that ended the first try is kept in the job's end; it must not stop this one.
        _remove(os.path.join(job_dir, names.STOP))
        _remove(os.path.join(job_dir, names.KEEPER_ERR))
        vault.put(job_dir, secrets)
        note(job_dir, "upload_asked", by=by)
        keepers.start("again", job_dir, 0)
    return jobs.told(jobs.one(home, run, job_id))


def delete(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{job_id, by} -> {report}: remove records and logs of a terminal job; the report is its last.

    Raises `Refused` (not_finished) for a job that is not over, or whose processes live.
    """
    job_id = bodies.job_id(body)
    run = decide.run_of(home, job_id)
    _await_keeper(home, run, job_id)
    with home.host_lock():
        report = _settled(home, run, job_id)
        _check_over(report)
        _check_keeper(home, job_id)
        left_groups.remove(home.job_dir(job_id))
        _discard(home.job_dir(job_id), home.trash())
        _discard(home.record_dir(run, job_id), home.record_trash())
        _discard_empty(home.run_dir(run))
    return jobs.told(report)


def forget(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{job_id, by} -> {report}: a person says that an `unknown` job does not count any more; write-once.

    Raises `Refused` (not_finished) for a job whose status is not `unknown`.
    """
    job_id, by = bodies.job_id(body), bodies.by(body)
    run = decide.run_of(home, job_id)
    report = jobs.one(home, run, job_id)
    if status_of(report).status is not Status.UNKNOWN:
        word = status_of(report).status.value
        message = "job %s is %s: only an unknown one can be forgotten" % (job_id, word)
        raise Refused("not_finished", message, {"job": job_id, "status": word})
    place_once(os.path.join(home.record_dir(run, job_id), names.FORGOTTEN), Mark(by, time.time()))
    return jobs.told(jobs.one(home, run, job_id))


def _settled(home: Home, run: str, job_id: str) -> JobReport:
    try:
        decide.settle(home, run, job_id)
        return jobs.seen(home, run, job_id)
    except Unreadable as error:
        return broken(run, job_id, error)


def _check_over(report: JobReport) -> None:
    standing = status_of(report)
    if not standing.status.terminal:
        message = "job %s is %s; stop it first" % (report.job_id, standing.status.value)
        raise Refused("not_finished", message, {"job": report.job_id, "status": standing.status.value})


def _check_same(report: JobReport, goal: Optional[Upload]) -> None:
    now = report.upload_request
    if goal is not None and now is not None and now.destination != goal.destination:
        told = "its upload to %s goes on" % now.destination
        raise Refused("not_finished", told, {"job": report.job_id, "status": status_of(report).status.value})


def _check_upload(report: JobReport, has_files: bool, has_goal: bool) -> None:
    facts = {"job": report.job_id, "run": report.run}
    if report.upload_request is None and not has_goal:
        raise Refused("nothing_to_upload", "job %s has no upload target" % report.job_id, facts)
    if report.upload is not None and report.upload.verified and has_goal:
        told = "its checkpoints are uploaded and verified already: %s" % report.upload.destination
        raise Refused("nothing_to_upload", told, facts)
    if report.phase == "never_started" or report.decision == "no":
        raise Refused("nothing_to_upload", "job %s never started" % report.job_id, facts)
    _check_over(report)
    if not has_files:
        raise Refused("nothing_to_upload", "the private files of job %s were swept" % report.job_id, facts)


def _await_keeper(home: Home, run: str, job_id: str) -> None:
    """A keeper whose job has ended may still write its notes, under the host lock: let it go before that is taken."""
    deadline = time.monotonic() + KEEPER_LEAVES_S
    while jobs.one(home, run, job_id).phase == "ended" and handles.keeper_lives(home.job_dir(job_id)):
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)


def _check_keeper(home: Home, job_id: str) -> None:
    """Two never keep one job."""
    if handles.keeper_lives(home.job_dir(job_id)):
        raise Refused("not_finished", "the keeper of job %s still works" % job_id, {"job": job_id})


def _discard(folder: str, trash: str) -> None:
    """Move one of our folders to the trash and remove it there: gone at once, also when a removal is cut short."""
    target = os.path.join(trash, "%s-%s" % (os.path.basename(folder), os.urandom(6).hex()))
    try:
        os.rename(folder, target)
    except FileNotFoundError:
        return
    sync_folder(os.path.dirname(folder))
    shutil.rmtree(target, ignore_errors=True)


def _discard_empty(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        # Other jobs of the run are in it.
        return


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
