"""The answer to `checkpoints`: what a run has saved, with ids, and the room that is left. It changes nothing."""

import hashlib
import os
import time
from typing import Any, Dict, Optional, Set, Tuple

from aicrun.agent import bodies, decide, hidden_names, jobs, own_outputs, pruning, resuming, uploaded
from aicrun.agent.checkpoint_folder import Moment, Seen, each
from aicrun.agent.home import Home
from aicrun.agent.outputs import Outputs, outputs, printable
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

    now, target = time.time(), report.upload_request.destination if report.upload_request is not None else ""
    kept = uploaded.of_jobs(home, (run, report.run_id, job_id), target) if target else uploaded.Uploaded()
    seen = list(each(folder, Moment(now, is_over, upload), shown))
    files = _files(folder) if kept.checkpoints else None
    lasts_s = own_outputs.lasts_s(own_outputs.Rule(resuming.began_at(home, (run, report.run_id), folder)), now)
    told = [_as_own(one, _as_uploaded(one, kept, files, now), lasts_s) for one in seen[:LISTED_MOST]]
    words = wire.Checkpointed(
        folder,
        tuple(replace(one, id=_id(report.run_id, one.name)) for one in told),
        max(0, len(seen) - LISTED_MOST),
        _free_bytes(folder),
        _elsewhere(kept, {os.path.basename(one.path) for one in seen}, report.run_id, now),
        target,
        pruning.kept_most(report.supervision),
    )
    return {"checkpointed": to_json(words)}, b""


def _files(folder: str) -> Optional[Outputs]:
    try:
        return outputs(folder)
    except OSError:
        return None


def _as_own(seen: Seen, told: wire.Checkpoint, lasts_s: float) -> wire.Checkpoint:
    """The checkpoint as it was told, or as none of the run's: it, or a part of it, was there before the run began."""
    why = own_outputs.not_own(seen, lasts_s)
    return replace(told, complete=wire.OTHER, why=why, inference_ready=False, uploaded_age_s=None) if why else told


def _as_uploaded(seen: Seen, kept: uploaded.Uploaded, files: Optional[Outputs], now: float) -> wire.Checkpoint:
    """The checkpoint with the age of its upload, where just these files were verified."""
    name = wire.TOP if seen.told.name == wire.TOP else os.path.basename(seen.path)
    record = kept.named(name)
    if record is None or files is None:
        return seen.told
    found = own_outputs.of_unit(files, name).files
    same = uploaded.is_as_sent(record, {one.path: uploaded.stamp(one) for one in found})
    return replace(seen.told, uploaded_age_s=round(max(0.0, now - record.at), 1) if same else None)


def _elsewhere(kept: uploaded.Uploaded, here: Set[str], run_id: str, now: float) -> Tuple[wire.Checkpoint, ...]:
    """Those that are verified at the target and lie on this host no more, newest first."""
    gone = [one for one in kept.checkpoints if one.name not in here and one.name != wire.TOP]
    gone.sort(key=lambda one: -one.modified)
    return tuple(
        wire.Checkpoint(
            _id(run_id, printable(one.name)),
            printable(one.name),
            one.size,
            len(one.files),
            round(max(0.0, now - one.modified), 1),
            wire.YES,
            step=one.step,
            uploaded_age_s=round(max(0.0, now - one.at), 1),
            on_host=wire.PRUNED if one.pruned_at else wire.GONE,
        )
        for one in gone[:LISTED_MOST]
    )


def _free_bytes(folder: str) -> Optional[int]:
    try:
        volume = os.statvfs(folder)
    except OSError:
        return None
    return volume.f_bavail * volume.f_frsize


def _id(run_id: str, name: str) -> str:
    return hashlib.sha256(("%s/%s" % (run_id, name)).encode("utf-8", "replace")).hexdigest()[:8]
