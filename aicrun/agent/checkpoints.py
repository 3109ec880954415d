"""The answer to `checkpoints`: what a run has saved, with ids, and the room that is left. It changes nothing."""

import hashlib
import os
import time
from typing import Any, Dict, Optional, Tuple

from aicrun.agent import bodies, decide, hidden_names, jobs
from aicrun.agent.checkpoint_folder import Moment, in_folder
from aicrun.agent.home import Home
from aicrun.agent.outputs import printable
from aicrun.wire import checkpoint as wire
from aicrun.wire.codec import replace, to_json

Answer = Tuple[Dict[str, Any], bytes]

LISTED_MOST = 1000


def checkpoints(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{job_id} -> {checkpointed}: those of the job's run, newest first. Raises `Refused` (not_found)."""
    del payload
    job_id = bodies.job_id(body)
    run = decide.run_of(home, job_id)
    report = jobs.one(home, run, job_id)
    folder = report.checkpoints.path if report.checkpoints is not None else ""
    if not folder:
        return {"checkpointed": to_json(wire.Checkpointed(""))}, b""
    # Nobody of the run writes any more once its command has ended.
    is_over = report.ended_age_s is not None or report.phase == "upload"
    upload = report.upload if report.upload is not None and report.upload.verified else None

    def shown(path: str) -> str:
        return printable(hidden_names.shown(home, run, job_id, path))

    found = in_folder(folder, Moment(time.time(), is_over, upload), shown)
    told = [replace(one, id=_id(report.run_id, one.name)) for one in found[:LISTED_MOST]]
    words = wire.Checkpointed(folder, tuple(told), max(0, len(found) - LISTED_MOST), _free_bytes(folder))
    return {"checkpointed": to_json(words)}, b""


def _free_bytes(folder: str) -> Optional[int]:
    try:
        volume = os.statvfs(folder)
    except OSError:
        return None
    return volume.f_bavail * volume.f_frsize


def _id(run_id: str, name: str) -> str:
    return hashlib.sha256(("%s/%s" % (run_id, name)).encode("utf-8", "replace")).hexdigest()[:8]
