"""The upload step: copy a run's checkpoints to their target, then read the target back and compare everything.

It runs as `boot.py upload JOBDIR`. Only what was read back counts; the checkpoint folder is never changed.
"""

import os
import sys
import time
from typing import Callable, List, Mapping, Optional, Tuple

from aicrun.agent import early_upload, handles, hooks, own_outputs, pruning, uploaded, vault
from aicrun.agent.delivery import Delivery, checkpoint_of, sent_of, target_of, tellable
from aicrun.agent.delivery import manifest_of as manifest_of
from aicrun.agent.delivery import moved as delivery_moved
from aicrun.agent.home import Home, open_home
from aicrun.agent.on_term import Stopped, end_by_signal, raise_on_term
from aicrun.agent.outputs import Outputs, printable
from aicrun.agent.own_outputs import EVERYTHING, Rule, check_any, chosen
from aicrun.agent.records import Unreadable, give_room, keep_room, read_json, read_record, write_record
from aicrun.agent.redact import Redactor
from aicrun.agent.refused import Refused
from aicrun.agent.retarget import retargeted
from aicrun.agent.targets import CannotUpload
from aicrun.wire import lean, names
from aicrun.wire.jobs import JobRequest, Upload, UploadResult

LISTED = 100
RESULT_BYTES = 64 * 1024
# A folder of the job that is there only while a tool sends.
SCRATCH = "to-upload"
# One that is beside a command ends soon after its keeper, and is waited for.
WAITS_S = 60.0


def main(job_folder: str) -> int:
    """Upload the checkpoints of the job whose folder this is: 0 only when everything was verified, else 1."""
    # So that a stop leaves no half-copied file on the target.
    raise_on_term()
    try:
        home = open_home(os.environ)
        request = read_record(os.path.join(job_folder, names.REQUEST), JobRequest)
        request = retargeted(home, request) if request is not None else None
        if request is None or request.upload is None:
            _say("this job has no upload")
            return 1
        only = read_json(os.path.join(job_folder, names.UPLOAD_ONLY))
        if only is not None:
            _wait_for_others(job_folder)
            return early_upload.one(home, request, request.upload, str(only.get("name", "")))
        path = os.path.join(home.record_dir(request.run, request.job_id), names.UPLOAD_RESULT)
        # Now, for a disk that is full by then shall not lose what was uploaded.
        keep_room(path, RESULT_BYTES)
        _wait_for_others(job_folder)
        redactor = Redactor(vault.read(job_folder).values())
        whole = _Whole(
            request,
            request.upload,
            own_outputs.rule_of(home, request),
            lambda kept: uploaded.write(home, request, tellable(kept, redactor)),
        )
        where = (os.environ.get("HOME", "/"), os.path.join(job_folder, SCRATCH))
        result, after = whole.run(*where, uploaded.of_run(home, request))
        give_room(path)
        write_record(path, _hidden(result, redactor))
        _remember(home, request, tellable(after, redactor))
        if result.verified:
            _prune(home, request, where)
    except (Refused, Unreadable) as error:
        _say(str(error))
        return 1
    except OSError as error:
        _say("%s: %s" % (error.filename or "the record", error.strerror))
        return 1
    except Stopped:
        end_by_signal()
        return 1
    return 0 if result.verified else 1


def _wait_for_others(job_folder: str) -> None:
    """From now on no other upload of the job writes to the target; raises `Refused` when one does not end."""
    if handles.hold(os.path.join(job_folder, names.UPLOAD_LOCK), hooks.number("UPLOAD_WAITS_S", int(WAITS_S))) is None:
        raise Refused("busy", "another upload of this job has not ended: see who holds %s" % names.UPLOAD_LOCK)


def _remember(home: Home, request: JobRequest, after: uploaded.Uploaded) -> None:
    if not after.checkpoints and uploaded.read(home, request.run, request.job_id).destination != after.destination:
        # Nothing is verified at this target: what is at the one before is not forgotten for it.
        return
    try:
        uploaded.write(home, request, after)
    except OSError as error:
        # What was verified is told all the same; only what could be pruned is not known.
        _say("%s: %s" % (error.filename or "the record", error.strerror))


def _prune(home: Home, request: JobRequest, where: Tuple[str, str]) -> None:
    """What goes from this machine now that all is verified; whatever is in the way, the upload stays what it is."""
    try:
        pruning.prune(
            pruning.Job(home, request, where, _say), uploaded.read(home, request.run, request.job_id), is_over=True
        )
    except (CannotUpload, OSError) as error:
        _say("not pruned: %s" % error)


def upload(
    request: JobRequest, wanted: Upload, home_folder: str, scratch: str, rule: Rule = EVERYTHING
) -> UploadResult:
    """Do the whole upload and tell it on stdout; never raises for what a disk, a target or a file can do.

    `scratch` is a folder that does not exist, for what a tool needs meanwhile. `rule` leaves out what is not the run's.
    """
    return _Whole(request, wanted, rule, lambda _: None).run(
        home_folder, scratch, uploaded.Uploaded(wanted.destination)
    )[0]


class _Whole:
    """The upload of everything that is the run's own and whole; `keep` makes durable what is verified there."""

    def __init__(
        self, request: JobRequest, wanted: Upload, rule: Rule, keep: Callable[[uploaded.Uploaded], None]
    ) -> None:
        self._request = request
        self._wanted = wanted
        self._rule = rule
        self._keep = keep
        self._found = Outputs((), (), ())

    def run(self, home_folder: str, scratch: str, before: uploaded.Uploaded) -> Tuple[UploadResult, uploaded.Uploaded]:
        """(what came of it, what is verified there now), where `before` was verified there by then."""
        wanted, request, error = self._wanted, self._request, ""
        missing: List[str] = []
        delivery: Optional[Delivery] = None
        try:
            self._found = found = chosen(request.checkpoints, self._rule)
            missing = list(found.missing)
            there = sent_of(tuple(before.by_path().values()))
            if not there:
                check_any(request.checkpoints, found)
            delivery = Delivery(target_of(wanted, request.job_id, home_folder, scratch), request, there)
            changed = self._changed(before)
            if changed:
                # First here, then there: what is about to be written over is verified no more.
                before = before.but(changed)
                self._keep(before)
            missing += delivery.bring(found, changed, self._moved)
            if not missing:
                delivery.look_again()
                missing += delivery.seal()
            if missing:
                error = "%d of %d files are not there whole" % (len(missing), len(found.files) + len(found.missing))
        except CannotUpload as why:
            error = str(why)
            missing += why.missing
        except OSError as why:
            error = "%s: %s" % (printable(str(why.filename or wanted.destination)), why.strerror)
        sent = delivery.verified() if delivery is not None and not error else tuple(delivery.sent) if delivery else ()
        skipped = self._found.skipped + (delivery.gone if delivery is not None else ())
        result = UploadResult(
            destination=wanted.destination,
            verified=not error,
            files=len(sent),
            bytes=sum(item.size for item in sent),
            missing=tuple(missing[:LISTED]),
            skipped=skipped[:LISTED],
            error=error,
            at=time.time(),
            manifest=delivery.manifest if delivery is not None and not error else "",
        )
        _tell(result, len(missing))
        return result, self._after(before, delivery) if result.verified and delivery is not None else before

    def _changed(self, before: uploaded.Uploaded) -> Tuple[str, ...]:
        """The files that are verified there and are others on this host by now."""
        known = before.by_path()
        now = {output.path: uploaded.stamp(output) for output in self._found.files if output.path in known}
        return tuple(path for path, found in now.items() if found != (known[path].size, known[path].mtime_ns))

    def _moved(self, stamps: Mapping[str, uploaded.Stamp]) -> List[str]:
        return delivery_moved(chosen(self._request.checkpoints, self._rule), self._found, stamps)

    def _after(self, before: uploaded.Uploaded, delivery: Delivery) -> uploaded.Uploaded:
        """What is verified there, checkpoint by checkpoint, with those of before that are not on this host any more."""
        there, sent = {one.path for one in delivery.verified()}, delivery.as_sent()
        kept = tuple(one for one in before.checkpoints if all(file.path in there for file in one.files))
        after = lean.replace(before.keeping(kept), trouble="", trouble_since=0.0, again_at=0.0)
        for seen in own_outputs.whole(self._request.checkpoints, self._rule):
            files = own_outputs.of_unit(self._found, seen.told.name).files
            # It may be gone since, or be one that came since.
            if not files or not all(one.path in sent for one in files):
                continue
            after = after.adding(checkpoint_of(seen, files, sent, time.time()))
        return after


def _hidden(result: UploadResult, redactor: Redactor) -> UploadResult:
    """The result as it may be kept: a tool's complaint or a file's name may hold a secret."""
    missing, skipped = (tuple(redactor.text(line) for line in lines) for lines in (result.missing, result.skipped))
    return lean.replace(result, missing=missing, skipped=skipped, error=redactor.text(result.error))


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
