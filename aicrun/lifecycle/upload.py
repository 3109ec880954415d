"""Uploads the checkpoints of an ended job again; the training is not repeated."""

from __future__ import annotations

from aicrun.lifecycle.events import Tell
from aicrun.lifecycle.find import Found
from aicrun.lifecycle.follow import Watch, until_ended
from aicrun.lifecycle.session import Session


def upload(session: Session, found: Found, tell: Tell) -> Found:
    """The job after its upload ended; whether it was verified stands in `report.upload`.

    Raises `HostRefused` (`not_finished`, `nothing_to_upload`) when there is nothing that may be uploaded.
    """
    report = session.backend(found.machine).upload(found.report.job_id, session.by)
    return Found(found.machine, until_ended(Watch(session, found.machine, report.run, tell, 60.0), report))
