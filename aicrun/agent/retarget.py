"""Where an ended job's checkpoints go instead, since somebody said so: kept beside its record, which stays as it is."""

import os
import time
from typing import Any, Dict, Optional, Tuple

from aicrun.agent import uploaded
from aicrun.agent.home import Home
from aicrun.agent.kept import Retarget
from aicrun.agent.outputs import printable
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
    before = report.upload_request
    name, where = _there_alone(home, report)
    if name:
        told = "%s lies at its first target, %s, alone, and another one would never have it" % (printable(name), where)
        raise Refused("nothing_to_upload", told, {"job": report.job_id, "run": report.run})
    # Whether the run has succeeded does not come to hang on a target that its spec never had.
    goal = lean.replace(goal, when="success", required=before is not None and before.required)
    write_record(path_of(home, report.run, report.job_id), Retarget(goal, by, time.time()))


def _there_alone(home: Home, report: JobReport) -> Tuple[str, str]:
    """A checkpoint that is verified at an older target and not here whole, with that target; ("", "") for none."""
    folder = report.checkpoints.path if report.checkpoints is not None else ""
    own = uploaded.read(home, report.run, report.job_id).destination
    asked = report.upload_request.destination if report.upload_request is not None else ""
    for where in filter(None, dict.fromkeys((own, asked))):
        for one in uploaded.of_jobs(home, (report.run, report.run_id, report.job_id), where).checkpoints:
            # Whoever removed it: the run, `keep`, or a person.
            if not all(os.path.exists(os.path.join(folder, file.path)) for file in one.files):
                return one.name, where
    return "", ""
