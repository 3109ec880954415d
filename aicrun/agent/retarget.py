"""Where an ended job's checkpoints go instead, since somebody said so: kept beside its record, which stays as it is."""

import os
import time
from typing import Any, Dict, Optional

from aicrun.agent import uploaded
from aicrun.agent.home import Home
from aicrun.agent.kept import Retarget
from aicrun.agent.records import Unreadable, read_record, write_record
from aicrun.agent.refused import Refused
from aicrun.wire import lean, names
from aicrun.wire.codec import WireError, from_json
from aicrun.wire.jobs import JobReport, JobRequest, Upload


def path_of(home: Home, run: str, job_id: str) -> str:
    """The file that tells it."""
    return os.path.join(home.record_dir(run, job_id), names.UPLOAD_TO)


def retargeted(home: Home, request: JobRequest) -> JobRequest:
    """The request with the target that counts now."""
    try:
        found = read_record(path_of(home, request.run, request.job_id), Retarget)
    except Unreadable:
        return request
    return lean.replace(request, upload=found.upload) if found is not None else request


def asked(body: Dict[str, Any]) -> Optional[Upload]:
    """The target that a call names; None when it names none. Raises `Refused` (invalid_request)."""
    if not body.get("upload"):
        return None
    try:
        return from_json(Upload, body["upload"], "upload")
    except WireError as error:
        raise Refused("invalid_request", str(error), {"field": "upload"}) from error


def write(home: Home, report: JobReport, goal: Upload, by: str) -> None:
    """Keep the new target; raises `Refused` where the old one holds what is on this machine no more."""
    lost = [one.name for one in uploaded.read(home, report.run, report.job_id).checkpoints if one.pruned_at]
    if lost:
        told = "%s lies at its first target alone, and another one would never have it" % lost[0]
        raise Refused("nothing_to_upload", told, {"job": report.job_id, "run": report.run})
    before = report.upload_request
    # Whether the run has succeeded does not come to hang on a target that its spec never had.
    goal = lean.replace(goal, when="success", required=before is not None and before.required)
    write_record(path_of(home, report.run, report.job_id), Retarget(goal, by, time.time()))
