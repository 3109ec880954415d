"""Uploads checkpoints while the command that writes them still runs: each that is complete, or the newest now and then.

It runs as `boot.py early JOBDIR` beside the command, with less right to the machine than it. It must not wait for a
target, nor hinder the command: what fails is told and tried again later.
"""

import os
import sys
import time
from typing import List, Mapping, Optional, Set, Tuple

from aicrun.agent import checkpoint_folder, handles, hidden_names, history, hooks, own_outputs, pruning, uploaded, vault
from aicrun.agent.build import SetupFailed
from aicrun.agent.delivery import Delivery, checkpoint_of, moved, sent_of, target_of
from aicrun.agent.home import Home, open_home
from aicrun.agent.on_term import Stopped, end_by_signal, raise_on_term
from aicrun.agent.outputs import Outputs, outputs, printable
from aicrun.agent.records import Unreadable, read_record
from aicrun.agent.redact import Redactor
from aicrun.agent.refused import Refused
from aicrun.agent.targets import CannotUpload
from aicrun.wire import lean, names
from aicrun.wire.jobs import JobRequest, Upload

# Of ten, when the processors are wanted by all: the kernel derives the right to the disk from it as well.
NICE = 10
# How often the folder is looked at, and for how small a part of the time.
LOOK_S = hooks.number("EARLY_LOOK_MS", 5000) / 1000.0
LOOK_MOST_S, LOOK_SHARE = 60.0, 20.0
# A checkpoint that a reader found whole may still get a file.
QUIET_S = hooks.number("EARLY_QUIET_MS", 5000) / 1000.0
# The pauses after tries that failed one after another; the last one stays.
PAUSES_S = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
SCRATCH = "to-upload-early"
# Somebody who only looks holds the lock for a moment; whoever uploads keeps it, and this is started again later.
LOCK_S = 1.0


class Unsendable(CannotUpload):
    """Something of the one checkpoint is not there whole; what is wrong with the target is told otherwise."""


def main(job_folder: str) -> int:
    """Upload what becomes complete until a signal ends it; 1 when the job cannot be read or is uploaded already."""
    raise_on_term()
    try:
        os.nice(NICE)
        home = open_home(os.environ)
        request = read_record(os.path.join(job_folder, names.REQUEST), JobRequest)
        if request is None or request.upload is None:
            _say("this job has no upload")
            return 1
        # So that no upload which a person asks for begins before this one has ended.
        if handles.hold(os.path.join(job_folder, names.UPLOAD_LOCK), LOCK_S) is None:
            _say("another upload of this job has not ended: see who holds %s" % names.UPLOAD_LOCK)
            return 1
        rounds = Rounds(home, request, request.upload)
        while True:
            began = time.monotonic()
            rounds.look()
            took_s = time.monotonic() - began
            time.sleep(max(LOOK_S, min(LOOK_MOST_S, took_s * LOOK_SHARE)))
    except (Refused, Unreadable) as error:
        _say(str(error))
        return 1
    except Stopped:
        end_by_signal()
        return 1


def one(home: Home, request: JobRequest, wanted: Upload, name: str) -> int:
    """Upload the one checkpoint that is told by `name`, for a run that is over: 0 when it is verified."""
    rounds = Rounds(home, request, wanted, is_patient=True)
    try:
        return 0 if rounds.upload_one(name) else 1
    except (CannotUpload, SetupFailed) as error:
        _say("aicrun: upload failed: %s" % error)
    except OSError as error:
        _say("aicrun: upload failed: %s: %s" % (printable(str(error.filename or wanted.destination)), error.strerror))
    return 1


class Rounds:
    """One look after another; what was verified so far is on the disk after each checkpoint.

    Who `is_patient` waits for a target that fails, as the last upload does.
    """

    def __init__(self, home: Home, request: JobRequest, wanted: Upload, is_patient: bool = False) -> None:
        self._home = home
        self._request = request
        self._wanted = wanted
        self._is_patient = is_patient
        self._folder = request.checkpoints
        self._redactor = Redactor(vault.read(home.job_dir(request.job_id)).values())
        self._kept = uploaded.of_run(home, request)
        self._rule = own_outputs.rule_of(home, request)
        self._where = (os.environ.get("HOME", "/"), os.path.join(home.job_dir(request.job_id), SCRATCH))
        self._pruned: Optional[Tuple[uploaded.Uploaded, int]] = None
        self._failed = 0
        # Those that were in their own way last time: while there is one, nothing has recovered.
        self._odd: Set[str] = set()
        self._again_at = 0.0
        # Also for the one that comes after another was killed, or of a further attempt.
        since_s = max(0.0, time.time() - max([one.at for one in self._kept.checkpoints], default=0.0))
        self._due_at = time.monotonic() + max(0.0, wanted.every_s - since_s)
        self._told: List[str] = []

    def look(self) -> None:
        """Upload what is due now; whatever is in the way is told, and tried again when its pause is over."""
        if time.monotonic() < max(self._again_at, self._due_at):
            return None
        failed: Optional[str] = None
        try:
            for seen in self._due():
                began = time.monotonic()
                try:
                    is_sent = self._upload(seen.told.name)
                except Unsendable as error:
                    # The others are none the worse for it.
                    failed = failed or str(error)
                    self._odd.add(seen.told.name)
                    continue
                self._odd.discard(seen.told.name)
                if is_sent:
                    self._due_at = began + self._wanted.every_s
                    self._recovered()
            self._prune()
        except (CannotUpload, SetupFailed) as error:
            return self._trouble(str(error))
        except OSError as error:
            words = printable(str(error.filename or self._wanted.destination)), error.strerror
            return self._trouble("%s: %s" % words)
        if failed:
            return self._trouble(failed)
        self._odd.clear()
        return self._recovered()

    def upload_one(self, name: str) -> bool:
        """Upload the whole checkpoint of that name; False when there is none, or a name in it holds a secret."""
        for seen in own_outputs.whole(self._folder, self._rule):
            told = hidden_names.shown(self._home, self._request.run, self._request.job_id, seen.path)
            if name not in (seen.told.name, printable(told)):
                continue
            if self._is_hidden(seen, own_outputs.of_unit(outputs(self._folder), seen.told.name)):
                break
            if self._kept.named(seen.told.name) is not None:
                # Who asks again doubts it: it counts once it was looked at anew.
                self._keep(self._kept.without(seen.told.name))
            return self._upload(seen.told.name)
        _say("aicrun: upload failed: there is no whole checkpoint %s of this run that can be told" % name)
        return False

    def _due(self) -> List[checkpoint_folder.Seen]:
        """Whole checkpoints that are not verified there as they are now, newest first: all, or the newest one."""
        found: List[checkpoint_folder.Seen] = []
        everything: Optional[Outputs] = None
        for seen in own_outputs.whole(self._folder, self._rule, is_over=False):
            if seen.told.age_s < QUIET_S:
                continue
            everything = everything or outputs(self._folder)
            files = own_outputs.of_unit(everything, seen.told.name)
            before = self._kept.named(seen.told.name)
            if self._is_hidden(seen, files) or not files.files:
                continue
            if before is None or not uploaded.is_as_sent(
                before, {one.path: uploaded.stamp(one) for one in files.files}
            ):
                found.append(seen)
            if self._wanted.every_s:
                break
        return found

    def _is_hidden(self, seen: checkpoint_folder.Seen, files: Outputs) -> bool:
        """Whether a name holds a secret: nothing of it may stand in a record before the run's end."""
        paths = [output.path for output in files.files] + [seen.told.name]
        return any(self._redactor.text(path) != path for path in paths)

    def _upload(self, name: str) -> bool:
        """One checkpoint, to the end: verified there, in the manifest, in the record; False when it is not ready.

        Raises when the target, or a file of it, is in the way.
        """
        request = self._request
        # Looked at anew, for others were uploaded since it was found; its files first, so that none goes unnoticed.
        found = own_outputs.of_unit(outputs(self._folder), name)
        seen = self._still(name)
        if found.missing:
            return self._not_now("%s is not uploaded: %s" % (printable(name), found.missing[0]))
        if seen is None or not found.files or self._is_hidden(seen, found):
            return self._not_now("%s was changed or removed before it was uploaded" % printable(name))
        changed = self._changed(found)
        if changed:
            # First here, then there: what is about to be written over is verified no more.
            self._keep(self._kept.without(name))
        there = sent_of(tuple(self._kept.by_path().values()))
        delivery = Delivery(
            target_of(self._wanted, request.job_id, *self._where, is_early=not self._is_patient), request, there
        )
        hooks.reached("early.begin")
        missing = delivery.bring(found, changed, lambda stamps: self._moved(name, found, stamps))
        hooks.reached("early.sent")
        if self._is_patient and not missing:
            # Who asked wants to know; beside a command that is too much to read each time.
            delivery.look_again()
            self._keep_what_is_there(delivery)
        missing = missing or delivery.seal()
        if missing and self._is_other(seen):
            return self._not_now("%s was changed or removed while it was uploaded" % printable(name))
        if missing:
            raise Unsendable(missing[0])
        hooks.reached("early.sealed")
        self._keep(self._kept.adding(checkpoint_of(seen, found.files, delivery.as_sent(), time.time())))
        hooks.reached("early.kept")
        words = (printable(name), len(found.files), sum(one.size for one in delivery.sent))
        _say("uploaded and verified: %s, %d files, %d bytes" % words)
        self._note("checkpoint_uploaded", hidden_names.shown(self._home, request.run, request.job_id, seen.path))
        return True

    def _keep_what_is_there(self, delivery: Delivery) -> None:
        there = {one.path for one in delivery.verified()}
        kept = tuple(one for one in self._kept.checkpoints if all(file.path in there for file in one.files))
        if kept != self._kept.checkpoints:
            self._keep(self._kept.keeping(kept))
        for line in delivery.gone:
            _say("not at the target any more: %s" % line)

    def _still(self, name: str) -> Optional[checkpoint_folder.Seen]:
        """The checkpoint of that name as it is now; None when it is gone, not whole any more, or just written to."""
        for seen in own_outputs.whole(self._folder, self._rule, is_over=self._is_patient):
            if seen.told.name == name:
                return seen if self._is_patient or seen.told.age_s >= QUIET_S else None
        return None

    def _prune(self) -> None:
        """What may go from this machine, after each upload, and once at the beginning for what a kill left."""
        now = (self._kept, pruning.keep_of(self._home, self._request))
        if self._pruned == now:
            return
        job = pruning.Job(self._home, self._request, self._where, self._tell_once)
        self._kept = pruning.prune(job, self._kept)
        self._pruned = (self._kept, now[1])

    def _changed(self, found: Outputs) -> Tuple[str, ...]:
        """The verified files that the upload of `found` writes over with others."""
        known = self._kept.by_path()
        return tuple(
            one.path
            for one in found.files
            if one.path in known and uploaded.stamp(one) != (known[one.path].size, known[one.path].mtime_ns)
        )

    def _moved(self, name: str, then: Outputs, stamps: Mapping[str, uploaded.Stamp]) -> List[str]:
        return moved(own_outputs.of_unit(outputs(self._folder), name), then, stamps)

    def _is_other(self, seen: checkpoint_folder.Seen) -> bool:
        """Whether the checkpoint is not what it was: then the target is not to blame."""
        try:
            now = checkpoint_folder.one(seen.path, checkpoint_folder.Moment(time.time()))
        except OSError:
            return True
        return (now.told.bytes, now.told.files) != (
            seen.told.bytes,
            seen.told.files,
        ) or now.told.age_s < seen.told.age_s

    def _recovered(self) -> None:
        if self._odd:
            return
        if self._failed:
            self._note("uploads_recovered", "")
        self._failed, self._again_at = 0, 0.0
        if self._kept.trouble:
            self._keep(lean.replace(self._kept, trouble="", trouble_since=0.0, again_at=0.0))

    def _trouble(self, words: str) -> None:
        """Tell it, once for each series, and let it pass for a while."""
        pause_s = PAUSES_S[min(self._failed, len(PAUSES_S) - 1)]
        pause_s = hooks.number("FETCH_PAUSE_MS", int(pause_s * 1000)) / 1000.0
        since = self._kept.trouble_since if self._kept.trouble else time.time()
        told = self._redactor.text(words)
        _say("not uploaded: %s; trying again in %d s" % (words, pause_s))
        if not self._failed:
            self._note("uploads_failing", told)
        self._failed += 1
        self._again_at = time.monotonic() + pause_s
        try:
            self._keep(
                lean.replace(self._kept, trouble=told[:500], trouble_since=since, again_at=time.time() + pause_s)
            )
        except OSError:
            # A full disk: the words are lost, what was verified stands as it was.
            pass

    def _keep(self, kept: uploaded.Uploaded) -> None:
        uploaded.write(self._home, self._request, kept)
        self._kept = kept

    def _note(self, event: str, detail: str) -> None:
        history.note(self._home.job_dir(self._request.job_id), event, detail=detail)

    def _not_now(self, words: str) -> bool:
        self._tell_once(words)
        return False

    def _tell_once(self, words: str) -> None:
        if words not in self._told:
            self._told.append(words)
            _say(words)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
