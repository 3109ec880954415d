"""Where else a run's checkpoint lies once its host cannot give it: the verified upload, and why it is taken instead.

It asks no machine: what the ledger remembers must do.
"""

from __future__ import annotations

from dataclasses import dataclass

from aicrun.errors import AicrunError, HostUnreachable, Way
from aicrun.lifecycle.find import Found
from aicrun.lifecycle.ledger import Uploaded
from aicrun.lifecycle.session import Session
from aicrun.lifecycle.upload_notes import of_report

_NO_RUN, _NO_CHECKPOINT = "AIC-E003", "AIC-E024"


@dataclass(frozen=True, slots=True)
class Instead:
    """An upload, and why it is read rather than the host: `lab does not answer`; `error` is what happened there."""

    uploaded: Uploaded
    why: str
    error: AicrunError

    def failed(self, other: AicrunError) -> AicrunError:
        """What is told when the upload is of no use either: of a host that answers, what it said counts."""
        if self.error.code == _NO_CHECKPOINT:
            self.error.facts = (*self.error.facts, ("uploaded", other.message))
            return self.error
        other.facts = (*other.facts, (self.uploaded.machine, self.error.message))
        return other


def instead(session: Session, key: str, error: AicrunError, found: Found | None = None) -> Instead:
    """The upload that stands in for a host which ended in `error`, when `key` was looked for; `found` if it was found.

    Raises `error` itself, with the way to name a target, when no upload is known.
    """
    name, _, machine = key.partition("@")
    known = session.ledger.uploads(name)
    if found is not None:
        # The ledger may have been lost, the report is here.
        told = of_report(found.machine, found.report)
        same = tuple(one for one in known if one.job_id == found.report.job_id)
        known = () if told is None else same or (told,)
    known = tuple(one for one in known if not machine or one.machine == machine)
    if error.code not in (_NO_RUN, _NO_CHECKPOINT) and not isinstance(error, HostUnreachable):
        raise error
    if not known:
        if found is None:
            way = Way("if you know where it was uploaded", f"aicrun fetch {name} --from s3://bucket/runs/")
            error.ways = (*error.ways, way)
        raise error
    one = known[0]
    _check_newest(session, name, one, error)
    return Instead(one, _why(session, one, error), error)


def _check_newest(session: Session, name: str, one: Uploaded, error: AicrunError) -> None:
    """Raise `error` when this client started another job of the run later: an older upload is not what is meant."""
    last = next((start for start in session.ledger.starts(name) if start.step != "withdrawn"), None)
    if last is not None and last.job_id != one.job_id:
        way = Way("an earlier job's upload", f"aicrun fetch {one.job_id}")
        error.facts = (*error.facts, ("last start", f"on {last.machine}; no upload of it is known here"))
        error.ways = (*error.ways, way)
        raise error


def _why(session: Session, one: Uploaded, error: AicrunError) -> str:
    entry = next((item for item in session.inventory.machines if item.name == one.machine), None)
    if error.code == _NO_CHECKPOINT:
        return f"it is not on {one.machine} any more"
    if entry is None:
        return f"{one.machine} is not in machines.yaml any more"
    if entry.down:
        return f"{one.machine} is marked as down"
    if isinstance(error, HostUnreachable):
        return f"{one.machine} does not answer"
    return f"{one.machine} has no record of it any more"
