"""Uploads the checkpoints of an ended job again; the training is not repeated."""

from __future__ import annotations

from aicrun.lifecycle.events import Tell
from aicrun.lifecycle.find import Found
from aicrun.lifecycle.follow import Watch, until_ended
from aicrun.lifecycle.session import Session
from aicrun.plan.draft import upload_to
from aicrun.plan.secret_sources import secret_sources
from aicrun.spec.model import UploadSpec


def upload(session: Session, found: Found, tell: Tell, checkpoint: str = "", goal: UploadSpec | None = None) -> Found:
    """The job after its upload ended; whether it was verified stands in `report.upload`.

    With the name of a `checkpoint` just that one is uploaded; whether it was is told by the list of checkpoints. `goal`
    is another target than that of its spec, which is the job's from now on.

    Raises `HostRefused` (`not_finished`, `nothing_to_upload`) when there is nothing that may be uploaded, `UsageError`
    when a secret's value is missing.
    """
    report = found.report
    sources = secret_sources(report.execution, report.supervision)
    # The machine let go of the values when the job ended; the upload sees no other step's.
    needed = tuple(one for one in sources if one.step in ("", "upload"))
    secrets = session.secrets.given(report.run, needed)
    wanted = upload_to(goal, {"run.id": report.run_id, "run.name": report.run}, "") if goal is not None else None
    report = session.backend(found.machine).upload(report.job_id, session.by, secrets, checkpoint, wanted)
    return found.as_it_is(until_ended(Watch(session, found.machine, report.run, tell, 60.0), report))
