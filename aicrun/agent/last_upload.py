"""The upload as the last step of a job: whether it follows the command, and what came of it. It runs nothing."""

import os
from typing import List, Optional

from aicrun.agent.history import note
from aicrun.agent.records import Unreadable, read_record
from aicrun.agent.wishes import Wishes
from aicrun.wire import names
from aicrun.wire.jobs import StepExit, Upload, UploadResult
from aicrun.wire.upload import is_early


def follows(upload: Optional[Upload], command: StepExit, wishes: Wishes) -> bool:
    """Whether the upload runs after the last command; a stop that ended one of `always` is served by that.

    Where checkpoints are uploaded while the command runs, its failure is no reason to leave the last one out.
    """
    if upload is None or command.step != "command" or command.spawn_error:
        return False
    if upload.when == "always":
        pending = wishes.stop()
        if pending is not None:
            wishes.served(pending)
        return True
    good = command.code == 0 or is_early(upload)
    return good and not command.stop_sent and wishes.stop() is None


def result(record_dir: str) -> Optional[UploadResult]:
    """What the upload step left; None when it left nothing that can be read."""
    try:
        return read_record(os.path.join(record_dir, names.UPLOAD_RESULT), UploadResult)
    except Unreadable:
        return None


def missed(upload: Optional[Upload], exits: List[StepExit]) -> Optional[UploadResult]:
    """What to say of an upload that left no result; None when there was none, or a stop ended it."""
    last = exits[-1] if exits else None
    if last is None or last.step != "upload" or last.stop_sent or upload is None:
        return None
    how = "code %s" % last.code if last.code is not None else "signal %s" % last.signal
    words = last.spawn_error or "it ended with %s and left no result; its log may tell why" % how
    return UploadResult(upload.destination, False, error=words, at=last.ended_at)


def tell(job_dir: str, record_dir: str) -> None:
    """One line in the job's history."""
    found = result(record_dir)
    good = found is not None and found.verified
    note(job_dir, "upload_verified" if good else "upload_failed", detail=found.error if found else "")
