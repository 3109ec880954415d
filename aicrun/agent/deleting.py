"""Removes the checkpoints of a run that has ended, because a person said so. It must not touch what is not the run's.

A folder that is the run's own goes whole. Of one that somebody named, which others may use too, only those checkpoints
go whose files were all written while the run lasted; the rest stays and is told. Nothing is removed through a link.
"""

import os
import shutil
import time
from typing import Any, Dict, List, NamedTuple, Tuple

from aicrun.agent import bodies, checkpoint_folder, decide, folder_users, handles, hooks, jobs
from aicrun.agent.history import note
from aicrun.agent.home import Home, listed
from aicrun.agent.outputs import PRUNED, printable
from aicrun.agent.records import Unreadable, read_record, sync_folder
from aicrun.agent.refused import Refused
from aicrun.wire import checkpoint as wire
from aicrun.wire import names
from aicrun.wire.checkpoint import Removed
from aicrun.wire.codec import to_json
from aicrun.wire.jobs import End, JobReport, RunRecord
from aicrun.wire.status import status_of

Answer = Tuple[Dict[str, Any], bytes]

DELETED = ".aicrun-deleted-"


class _What(NamedTuple):
    """`whole`: the folder itself goes; `removed` is told, `paths` are what is taken away, `old` what a kill left."""

    removed: Removed
    paths: Tuple[str, ...]
    old: Tuple[str, ...]
    whole: bool


def delete_checkpoints(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{job_id, by, dry, names} -> {removed}: remove those that a person was shown; `dry` only tells what would go.

    Raises `Refused`: not_finished (the run, or another that uses the folder, is not over), invalid_request (they are
    not those of `names` any more), unwritable.
    """
    del payload
    job_id, by = bodies.job_id(body), bodies.by(body)
    is_dry = body.get("dry") is not False
    run = decide.run_of(home, job_id)
    with home.host_lock():
        report = jobs.seen(home, run, job_id)
        _check_over(home, report)
        what = _what(home, report)
        if is_dry:
            return {"removed": to_json(what.removed)}, b""
        if sorted(bodies.texts(body, "names")) != sorted(what.removed.names):
            told = "the checkpoints of %s are not those any more that were shown" % run
            raise Refused("invalid_request", told, {"field": "names"})
        note(home.job_dir(job_id), "checkpoints_deleted", by=by, detail="%d" % len(what.removed.names))
        try:
            gone = _aside(report.run_id, what)
        except OSError as error:
            raise _stuck(error) from error
    hooks.reached("delete.aside")
    # Out of sight by now; nobody waits for the lock while the disk works.
    faults = [fault for path in (*what.old, *gone) for fault in _remove(path)]
    if faults:
        raise _stuck(faults[0]) from faults[0]
    return {"removed": to_json(what.removed)}, b""


def _stuck(error: OSError) -> Refused:
    path = printable(str(error.filename or ""))
    return Refused("unwritable", "%s cannot be removed: %s" % (path, error.strerror), {"path": path})


def _check_over(home: Home, report: JobReport) -> None:
    standing = status_of(report)
    if not standing.status.terminal or handles.keeper_lives(home.job_dir(report.job_id)):
        message = "job %s is %s; stop it first" % (report.job_id, standing.status.value)
        raise Refused("not_finished", message, {"job": report.job_id, "status": standing.status.value})
    folder_users.check_free(home, report)


def _what(home: Home, report: JobReport) -> _What:
    folder = folder_users.folder_of(report)
    if not folder:
        return _What(Removed(""), (), (), False)
    if os.path.basename(folder) == report.run_id:
        return _own(folder, report)
    begins = "%s%s-" % (PRUNED, report.run_id)
    old = tuple(os.path.join(folder, name) for name in listed(folder) if name.startswith(begins))
    began, ended = _span(home, report)
    lives = folder_users.lives(home, (report.run_id, report.job_id), folder)
    # One that came after the other is judged by the times alone.
    rivals = tuple(life for life in lives if life.began < ended and life.ended > began)
    gone, left, total = [], [], 0
    for seen in checkpoint_folder.each(folder, checkpoint_folder.Moment(time.time(), is_over=True)):
        name = os.path.basename(seen.path)
        why = _why_not(seen, began, ended) or _whose_else(seen.path, rivals)
        if why:
            left.append("%s: %s" % ("the top" if seen.told.name == wire.TOP else printable(name), why))
        else:
            gone.append(seen.path)
            total += seen.told.bytes
    removed = Removed(folder, tuple(printable(os.path.basename(path)) for path in gone), total, tuple(left))
    return _What(removed, tuple(gone), old, False)


def _own(folder: str, report: JobReport) -> _What:
    """All of the run's own folder; what is no checkpoint is counted with the bytes."""
    aside = os.path.join(os.path.dirname(folder), DELETED + report.run_id)
    old = (aside,) if os.path.lexists(aside) else ()
    if not os.path.isdir(folder):
        return _What(Removed(folder, own=True), (), old, True)
    entries = sorted(listed(folder))
    total = sum(_bytes(os.path.join(folder, name)) for name in entries)
    return _What(Removed(folder, tuple(map(printable, entries)), total, own=True), (folder,), old, True)


def _why_not(seen: checkpoint_folder.Seen, began: float, ended: float) -> str:
    if seen.told.name == wire.TOP:
        return "its files lie beside those of others"
    times = [state.st_mtime for state in _states(seen.path)]
    if not ended:
        return "when the run ended is not known"
    if not times or min(times) < began - folder_users.SLACK_S:
        return "it holds files from before the run began"
    if max(times) > ended + folder_users.SLACK_S:
        return "it was written to after the run ended"
    return ""


def _whose_else(path: str, rivals: Tuple[folder_users.Life, ...]) -> str:
    times = [state.st_mtime for state in _states(path)]
    run = next((life.run for life in rivals if any(map(life.holds, times))), "")
    return "another run, %s, used the folder then" % run if run else ""


def _span(home: Home, report: JobReport) -> Tuple[float, float]:
    """When the first job of the run id was made, and when its last one ended, 0 where nobody saw that."""
    began: List[float] = []
    ended: List[float] = []
    for job_id in home.job_ids(report.run):
        record = _record(home, report.run, job_id)
        if record is None or record.run_id != report.run_id:
            continue
        began.append(record.created_at)
        try:
            end = read_record(os.path.join(home.record_dir(report.run, job_id), names.END), End)
        except Unreadable:
            end = None
        ended.append(end.at if end is not None else 0.0)
    return min(began, default=0.0), max(ended) if ended and all(ended) else 0.0


def _record(home: Home, run: str, job_id: str) -> Any:
    try:
        return read_record(os.path.join(home.record_dir(run, job_id), names.RECORD), RunRecord)
    except Unreadable:
        return None


def _aside(run_id: str, what: _What) -> List[str]:
    """Take everything out of sight, so that nobody finds a half one; where it lies now."""
    # First what one before left: it would stand where the same names go now.
    for path in what.old:
        _remove(path)
    gone = []
    for path in what.paths:
        above, name = os.path.split(path)
        aside = os.path.join(above, DELETED + run_id if what.whole else "%s%s-%s" % (PRUNED, run_id, name))
        os.rename(path, aside)
        gone.append(aside)
        sync_folder(above)
    return gone


def _states(path: str) -> List[os.stat_result]:
    """Of everything at or below `path` that is no folder; links are looked at, not followed."""
    if os.path.islink(path) or not os.path.isdir(path):
        return [os.lstat(path)]
    found = []
    for above, folders, files in os.walk(path):
        links = [name for name in folders if os.path.islink(os.path.join(above, name))]
        found += [os.lstat(os.path.join(above, name)) for name in files + links]
    return found


def _bytes(path: str) -> int:
    return sum(state.st_size for state in _states(path))


def _remove(path: str) -> List[OSError]:
    """Remove all of it that can be; what hindered the rest, which the next call finds as it lies."""
    faults: List[OSError] = []

    def failed(_: Any, where: str, why: Any) -> None:
        if not isinstance(why[1], FileNotFoundError):
            faults.append(OSError(why[1].errno, why[1].strerror, where))

    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, onerror=failed)
    elif os.path.lexists(path):
        try:
            os.unlink(path)
        except OSError as error:
            faults.append(error)
    return faults
