"""Removes from the machine checkpoints of a run that are verified uploaded, all but the newest so many. Nothing else.

One goes only while every file of it is, byte for byte, what lies at the target at that moment. The record is first: a
checkpoint that is marked and still there was not removed, one that is marked and gone has its copy. Never removed are
those that a resume would pick, that are the best, the last or the final one by name or by the newest state, that a link
leads to, and that hold links.
"""

import hashlib
import os
import re
import shutil
import stat
import time
from typing import Any, Callable, Dict, List, NamedTuple, Set, Tuple

from aicrun.agent import (
    checkpoint_files,
    checkpoint_folder,
    folder_users,
    hidden_names,
    hooks,
    own_outputs,
    resuming,
    uploaded,
)
from aicrun.agent.delivery import sent_of, target_of
from aicrun.agent.history import note
from aicrun.agent.home import Home, listed
from aicrun.agent.kept import Supervision
from aicrun.agent.outputs import PRUNED, Output, printable
from aicrun.agent.records import Unreadable, read_record
from aicrun.agent.uploaded import SentCheckpoint, Uploaded
from aicrun.wire import checkpoint as wire
from aicrun.wire import lean, names
from aicrun.wire.checkpoint import Resume
from aicrun.wire.jobs import JobRequest, Upload
from aicrun.wire.tools import REMOTE_SCHEMES

_CHUNK = 1024 * 1024
# What a program looks for under its name, however old it is.
_BY_NAME = re.compile(r"(?:^|[-_.])(?:last|latest|best|final)(?:$|[-_.])", re.I)


class Job(NamedTuple):
    """Whose checkpoints are pruned; `where` are the home and the scratch folder of a target, `say` goes to a log."""

    home: Home
    request: JobRequest
    where: Tuple[str, str]
    say: Callable[[str], None]


def kept_most(supervision: Any) -> int:
    """How many stay by the words of a spec that may be changed while it runs; 0: nothing is pruned."""
    checkpoints = supervision.get("checkpoints") if isinstance(supervision, dict) else None
    keep = checkpoints.get("keep") if isinstance(checkpoints, dict) else None
    return int(keep) if isinstance(keep, int) or (isinstance(keep, str) and keep.isdigit()) else 0


def keep_of(home: Home, request: JobRequest) -> int:
    """How many stay as the spec says by now; 0, all of them, where that was changed and cannot be read."""
    try:
        changed = read_record(
            os.path.join(home.record_dir(request.run, request.job_id), names.SUPERVISION), Supervision
        )
    except Unreadable:
        # What was pruned by an older rule does not come back.
        return 0
    return kept_most(changed.supervision) if changed is not None else request.keep


def prune(job: Job, kept: Uploaded, is_over: bool = False) -> Uploaded:
    """Remove what may go by the rule of the request, and tell it; what is verified and marked now.

    `is_over`: nobody of the run writes any more. Raises as a target does, and `OSError`: then nothing is lost.
    """
    request = job.request
    folder = os.path.realpath(request.checkpoints)
    _finish(job, folder, kept)
    keep = keep_of(job.home, request)
    if keep <= 0 or request.upload is None:
        return kept
    rule = own_outputs.rule_of(job.home, request)
    found = list(own_outputs.whole(request.checkpoints, rule, is_over))
    may_go = [seen for seen in found[keep:] if kept.named(os.path.basename(seen.path)) is not None]
    if may_go and _is_shared(job, rule):
        return kept
    stays = _stays(job, folder, found, keep) if may_go else set()
    # The oldest first.
    for name in [os.path.basename(seen.path) for seen in reversed(may_go) if seen.told.name != wire.TOP]:
        record = kept.named(name)
        if record is None or name in stays:
            continue
        why = _why_not(folder, record) or _why_not_there(job, request.upload, record)
        if why:
            job.say("%s stays on this machine: %s" % (printable(name), why))
            continue
        kept = _gone(job, folder, kept, record)
    return kept


def _is_shared(job: Job, rule: own_outputs.Rule) -> bool:
    """Whether another run wrote in the folder since this one began: whose a checkpoint is cannot be told then."""
    if not rule.began:
        return False
    whose = (job.request.run_id, job.request.job_id)
    lives = folder_users.lives(job.home, whose, job.request.checkpoints)
    run = next((life.run for life in lives if life.ended > rule.began), "")
    if run:
        job.say("nothing is removed from this machine: another run, %s, has used the checkpoint folder meanwhile" % run)
    return bool(run)


def _gone(job: Job, folder: str, kept: Uploaded, record: SentCheckpoint) -> Uploaded:
    """Remove one that may go; what is verified and marked then. Raises `OSError` where that cannot be kept."""
    request, name = job.request, record.name
    marked = kept.adding(lean.replace(record, pruned_at=time.time()))
    uploaded.write(job.home, request, marked)
    hooks.reached("prune.marked")
    told = hidden_names.shown(job.home, request.run, request.job_id, os.path.join(folder, name))
    try:
        is_gone = _removed(folder, name, record, request.run_id)
    except OSError as error:
        # The next look tries it again; uploads go on.
        job.say("%s could not be removed whole: %s" % (printable(name), _words(error)))
        _put_back(folder, name, record, request.run_id)
        is_gone = False
    if is_gone:
        job.say("pruned %s: its verified copy is at the target" % printable(name))
        note(job.home.job_dir(request.job_id), "pruned", detail=told)
    if is_gone or not os.path.lexists(os.path.join(folder, name)):
        return marked
    uploaded.write(job.home, request, kept)
    return kept


def _words(error: OSError) -> str:
    return "%s: %s" % (printable(str(error.filename or "it")), error.strerror)


def _put_back(folder: str, name: str, record: SentCheckpoint, run_id: str) -> None:
    """What was taken out of sight and has lost nothing comes back; a part of it stays out of sight, to be removed."""
    aside = "%s%s-%s" % (PRUNED, run_id, name)
    try:
        if _is_still(folder, aside, record) and not os.path.lexists(os.path.join(folder, name)):
            os.rename(os.path.join(folder, aside), os.path.join(folder, name))
    except OSError:
        # It is not there, or cannot be moved back either: then the next look settles it.
        pass


def _why_not_there(job: Job, wanted: Upload, record: SentCheckpoint) -> str:
    """Why it is not at the target as it was verified; empty when it is."""
    target = target_of(wanted, job.request.job_id, *job.where, is_early=True)
    if wanted.scheme in REMOTE_SCHEMES:
        for file in record.files:
            # A tool's target takes a file by reading it, and knows it by its hashes then.
            try:
                target.send(Output(file.path, os.path.join(os.path.realpath(job.request.checkpoints), file.path)))
            except OSError as error:
                return _words(error)
    faults = target.faults(sent_of(record.files))
    if faults:
        return "at the target, %s" % faults[0]
    for file in record.files:
        told = target.told(file.path)
        # Another run may have written over it with as many bytes.
        if not told.is_proven and (not file.mark or told.mark != file.mark):
            return "nothing at the target proves that %s is still what was uploaded" % printable(file.path)
    return ""


def _stays(job: Job, folder: str, found: List[checkpoint_folder.Seen], keep: int) -> Set[str]:
    """Names in the folder that must stay whatever is uploaded."""
    request = job.request
    stays = {name for name in map(_entry_of(folder), _links(folder)) if name}
    stays |= {name for name in map(os.path.basename, (seen.path for seen in found)) if _BY_NAME.search(name)}
    run = (request.run, request.run_id)
    picked = resuming.start(job.home, run, request.checkpoints, request.resume or Resume(), os.path.basename)
    stays.add(_entry_of(folder)(os.path.realpath(picked.path)) if picked.path else "")
    for seen in found[:keep]:
        best = checkpoint_files.best_of(seen.path)
        stays.add(os.path.basename(best.rstrip("/")))
    return stays


def _links(folder: str) -> List[str]:
    """Where the links at the top lead."""
    paths = (os.path.join(folder, name) for name in listed(folder))
    return [os.path.realpath(path) for path in paths if os.path.islink(path)]


def _entry_of(folder: str) -> Callable[[str], str]:
    """The entry at the top of `folder` that a real path lies in; empty for none."""
    return lambda path: path[len(folder) + 1 :].partition("/")[0] if path.startswith(folder + "/") else ""


def _why_not(folder: str, record: SentCheckpoint) -> str:
    """Why what lies there under the record's name is not exactly what was verified; empty when it is."""
    try:
        return _other(folder, record)
    except OSError as error:
        return _words(error)


def _other(folder: str, record: SentCheckpoint) -> str:
    """The same; raises `OSError` when it cannot be read."""
    wanted = {file.path: file for file in record.files}
    found: Dict[str, os.stat_result] = {}
    for path in _below(folder, record.name):
        state = os.lstat(os.path.join(folder, path))
        if not stat.S_ISREG(state.st_mode):
            return "%s is a link or no file" % printable(path)
        found[path] = state
    if set(found) != set(wanted):
        return "it holds other files than were uploaded"
    for path, state in found.items():
        one = wanted[path]
        if (state.st_size, state.st_mtime_ns) != (one.size, one.mtime_ns) or _sha256(folder, path) != one.sha256:
            return "%s is not what was uploaded" % printable(path)
    return ""


def _below(folder: str, name: str) -> List[str]:
    """The paths, from `folder` on, of everything that is no folder in the entry `name`."""
    top = os.path.join(folder, name)
    if os.path.islink(top) or not os.path.isdir(top):
        return [name]
    found = []
    for above, folders, files in os.walk(top):
        # A link to a folder is listed among the folders.
        links = [one for one in folders if os.path.islink(os.path.join(above, one))]
        found += [os.path.relpath(os.path.join(above, one), folder) for one in files + links]
    return found


def _sha256(folder: str, path: str) -> str:
    seen = hashlib.sha256()
    handle = os.open(os.path.join(folder, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(handle, "rb") as stream:
        for chunk in iter(lambda: stream.read(_CHUNK), b""):
            seen.update(chunk)
    return seen.hexdigest()


def _removed(folder: str, name: str, record: SentCheckpoint, run_id: str) -> bool:
    """Take it out of sight at once, look once more that nobody wrote in it, then remove it; False when somebody did."""
    aside = os.path.join(folder, "%s%s-%s" % (PRUNED, run_id, name))
    os.rename(os.path.join(folder, name), aside)
    hooks.reached("prune.aside")
    if not _is_still(folder, os.path.basename(aside), record):
        os.rename(aside, os.path.join(folder, name))
        return False
    _remove(aside)
    hooks.reached("prune.removed")
    return True


def _is_still(folder: str, aside: str, record: SentCheckpoint, is_part: bool = False) -> bool:
    """Whether what was taken out of sight is what was verified, or with `is_part` what is left of that."""
    wanted = {aside + file.path[len(record.name) :]: (file.size, file.mtime_ns) for file in record.files}
    found = {}
    for path in _below(folder, aside):
        state = os.lstat(os.path.join(folder, path))
        found[path] = (state.st_size, state.st_mtime_ns)
    return found.items() <= wanted.items() if is_part else found == wanted


def _finish(job: Job, folder: str, kept: Uploaded) -> None:
    """Remove what was taken out of sight by one of this run that was killed then; what was written to comes back."""
    begins = "%s%s-" % (PRUNED, job.request.run_id)
    for aside in listed(folder):
        name = aside[len(begins) :]
        record = kept.named(name) if aside.startswith(begins) else None
        if record is None:
            continue
        try:
            if _is_still(folder, aside, record, is_part=True):
                _remove(os.path.join(folder, aside))
            elif not os.path.lexists(os.path.join(folder, name)):
                os.rename(os.path.join(folder, aside), os.path.join(folder, name))
        except OSError as error:
            job.say("%s could not be removed whole: %s" % (printable(name), _words(error)))


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
