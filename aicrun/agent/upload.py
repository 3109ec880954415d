"""The upload step: copy a run's checkpoints to their target, then read the target back and compare everything.

It runs as `boot.py upload JOBDIR`. Only what was read back counts; the checkpoint folder is never changed.
"""

import json
import os
import signal
import sys
import time
from typing import Any, Dict, List, Tuple

from aicrun.agent import resuming, vault
from aicrun.agent.home import Home, open_home
from aicrun.agent.outputs import Output, Outputs, printable
from aicrun.agent.own_outputs import EVERYTHING, Rule, check_any, chosen
from aicrun.agent.records import Unreadable, give_room, keep_room, read_record, write_record
from aicrun.agent.redact import Redactor
from aicrun.agent.refused import Refused
from aicrun.agent.targets import CannotUpload, Sent, Target, target
from aicrun.wire import lean, names
from aicrun.wire.jobs import JobRequest, Upload, UploadResult
from aicrun.wire.tools import REMOTE_SCHEMES

MANIFEST_SCHEMA = 1
LISTED = 100
RESULT_BYTES = 64 * 1024
# A folder of the job that is there only while a tool sends.
SCRATCH = "to-upload"


def main(job_folder: str) -> int:
    """Upload the checkpoints of the job whose folder this is: 0 only when everything was verified, else 1."""
    # So that a stop leaves no half-copied file on the target.
    signal.signal(signal.SIGTERM, _stop)
    try:
        home = open_home(os.environ)
        request = read_record(os.path.join(job_folder, names.REQUEST), JobRequest)
        if request is None or request.upload is None:
            _say("this job has no upload")
            return 1
        path = os.path.join(home.record_dir(request.run, request.job_id), names.UPLOAD_RESULT)
        # Now, for a disk that is full by then shall not lose what was uploaded.
        keep_room(path, RESULT_BYTES)
        places = (os.environ.get("HOME", "/"), os.path.join(job_folder, SCRATCH))
        result = upload(request, request.upload, *places, rule=_rule(home, request))
        give_room(path)
        write_record(path, _hidden(result, Redactor(vault.read(job_folder).values())))
    except (Refused, Unreadable) as error:
        _say(str(error))
        return 1
    except OSError as error:
        _say("%s: %s" % (error.filename or "the record", error.strerror))
        return 1
    except _Stopped:
        # Ended by the signal itself, as the exit record shall say.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        return 1
    return 0 if result.verified else 1


class _Stopped(BaseException):
    """A stop's signal arrived."""


def _stop(_number: int, _frame: Any) -> None:
    raise _Stopped


def upload(
    request: JobRequest, wanted: Upload, home_folder: str, scratch: str, rule: Rule = EVERYTHING
) -> UploadResult:
    """Do the whole upload and tell it on stdout; never raises for what a disk, a target or a file can do.

    `scratch` is a folder that does not exist, for what a tool needs meanwhile. `rule` leaves out what is not the run's.
    """
    found = Outputs((), (), ())
    sent: List[Sent] = []
    missing: List[str] = []
    error = ""
    try:
        found = chosen(request.checkpoints, rule)
        missing = list(found.missing)
        check_any(request.checkpoints, found)
        stamps = {output.path: _stamp(output) for output in found.files}
        goal = _target(wanted, request.job_id, home_folder, scratch)
        goal.begin(request.checkpoints)
        missing += _send_all(goal, found, sent)
        missing += goal.deliver()
        if not missing:
            missing += _moved(chosen(request.checkpoints, rule), found, stamps)
        if not missing:
            manifest = manifest_of(request, tuple(sent))
            goal.finish(manifest)
            missing += goal.faults(tuple(sent), manifest)
        if missing:
            error = "%d of %d files are not there whole" % (len(missing), len(found.files) + len(found.missing))
    except CannotUpload as why:
        error = str(why)
    except OSError as why:
        error = "%s: %s" % (printable(str(why.filename or wanted.destination)), why.strerror)
    result = UploadResult(
        destination=wanted.destination,
        verified=not error,
        files=len(sent),
        bytes=sum(item.size for item in sent),
        missing=tuple(missing[:LISTED]),
        skipped=found.skipped[:LISTED],
        error=error,
        at=time.time(),
    )
    _tell(result, len(missing))
    return result


def manifest_of(request: JobRequest, sent: Tuple[Sent, ...]) -> bytes:
    """The bytes of `aicrun-manifest.json`: a frozen format, files sorted by path."""
    files: List[Dict[str, Any]] = [
        {"path": item.path, "bytes": item.size, "sha256": item.sha256} for item in sorted(sent)
    ]
    document = {
        "schema": MANIFEST_SCHEMA,
        "run": request.run,
        "run_id": request.run_id,
        "job_id": request.job_id,
        "files": files,
    }
    # ASCII, so that a file name which is no UTF-8 survives as an escape.
    return (json.dumps(document, indent=1) + "\n").encode("ascii")


def _rule(home: Home, request: JobRequest) -> Rule:
    began = resuming.began_at(home, (request.run, request.run_id), request.checkpoints)
    return Rule(began, request.resume.complete_when if request.resume is not None else "")


def _hidden(result: UploadResult, redactor: Redactor) -> UploadResult:
    """The result as it may be kept: a tool's complaint or a file's name may hold a secret."""
    missing, skipped = (tuple(redactor.text(line) for line in lines) for lines in (result.missing, result.skipped))
    return lean.replace(result, missing=missing, skipped=skipped, error=redactor.text(result.error))


def _target(wanted: Upload, job_id: str, home_folder: str, scratch: str) -> Target:
    if wanted.scheme not in REMOTE_SCHEMES:
        return target(wanted, job_id, home_folder)
    # Imported here: a copy to a folder needs none of it.
    from aicrun.agent.remote_targets import RemoteTarget

    return RemoteTarget(wanted, scratch, os.environ)


def _send_all(goal: Target, found: Outputs, sent: List[Sent]) -> List[str]:
    lost = []
    for output in found.files:
        try:
            sent.append(goal.send(output))
        except (CannotUpload, PermissionError, FileNotFoundError) as why:
            words = why.strerror if isinstance(why, OSError) else str(why)
            lost.append("%s: %s" % (printable(output.path), words))
    return lost


def _stamp(output: Output) -> Tuple[int, int]:
    try:
        state = os.stat(output.source)
    except OSError:
        return (-1, -1)
    return (state.st_size, state.st_mtime_ns)


def _moved(now: Outputs, then: Outputs, stamps: Dict[str, Tuple[int, int]]) -> List[str]:
    """What somebody wrote in the checkpoint folder meanwhile: what arrived would be of several moments."""
    moved = []
    for output in now.files:
        if output.path not in stamps:
            moved.append("%s: it was written while the checkpoints were uploaded" % printable(output.path))
        elif _stamp(output) != stamps[output.path]:
            moved.append("%s: it changed while the checkpoints were uploaded" % printable(output.path))
    gone = set(stamps) - {output.path for output in now.files}
    moved += ["%s: it went away while the checkpoints were uploaded" % printable(path) for path in sorted(gone)]
    return moved + [line for line in now.missing if line not in then.missing]


def _tell(result: UploadResult, lost: int) -> None:
    for line in result.skipped:
        _say("skipped %s" % line)
    for line in result.missing:
        _say("missing %s" % line)
    if lost > len(result.missing):
        _say("and %d more are missing" % (lost - len(result.missing)))
    if result.verified:
        words = (result.files, result.bytes, printable(result.destination))
        _say("uploaded and verified: %d files, %d bytes, %s" % words)
    else:
        _say("aicrun: upload failed: %s" % result.error)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
