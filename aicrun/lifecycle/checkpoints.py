"""The checkpoints of a run, as its machine sees them. It must not change one."""

from __future__ import annotations

from aicrun.lifecycle.find import Found
from aicrun.lifecycle.session import Session
from aicrun.wire.checkpoint import Checkpointed


def checkpoints(session: Session, found: Found) -> Checkpointed:
    """The checkpoints in the folder of a job's run, newest first; empty for a run that has no such folder."""
    return session.backend(found.machine).checkpoints(found.report.job_id)
