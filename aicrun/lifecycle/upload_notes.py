"""What this client remembers of verified uploads, for the day on which their host is gone.

The ledger is a cache: a look at a run, or a list of runs, writes it anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from aicrun.lifecycle.ledger import Uploaded
from aicrun.lifecycle.session import Session
from aicrun.wire.checkpoint import Checkpointed
from aicrun.wire.jobs import JobReport


def note(session: Session, seen: Iterable[tuple[str, JobReport]], saved: Checkpointed | None = None) -> None:
    """Remember the uploads of the reports that (machine, report) hold; `saved` are the checkpoints of all of them."""
    found = [of_report(machine, report, saved) for machine, report in seen]
    session.ledger.note_uploads(one for one in found if one is not None)


def of_report(machine: str, report: JobReport, saved: Checkpointed | None = None) -> Uploaded | None:
    """The verified upload that a report tells; None without one."""
    done, asked = report.upload, report.upload_request
    is_whole = done is not None and done.verified
    # While the command runs its checkpoints are verified one by one; the manifest names no others.
    if asked is None or not (is_whole or (report.early is not None and report.early.verified)):
        return None
    manifest = done.manifest if done is not None and is_whole else ""
    at = time.time() - report.age_s
    return Uploaded(report.run, report.run_id, report.job_id, machine, asked, manifest, saved, at)
