"""Removes what an ended run left on its machine: its records, and its checkpoints where a person says so."""

from __future__ import annotations

from dataclasses import dataclass, replace

from aicrun.lifecycle.checkpoints import checkpoints
from aicrun.lifecycle.find import Found
from aicrun.lifecycle.session import Session
from aicrun.wire.checkpoint import Checkpointed, Removed


@dataclass(frozen=True, slots=True)
class Doomed:
    """The checkpoints of a run that a person may remove: what would go, and what is known of each."""

    removed: Removed
    seen: Checkpointed

    @property
    def unverified(self) -> tuple[str, ...]:
        """Names of checkpoints that would go and of which no verified copy is known."""
        rows = {one.name: one for one in self.seen.checkpoints}
        named = (name for name in self.removed.names if name in rows or not self.removed.own)
        # At the top lie files of one checkpoint.
        top = ["."] if self.removed.own and "." in rows else []
        return tuple(name for name in (*named, *top) if name not in rows or rows[name].uploaded_age_s is None)

    @property
    def verified(self) -> tuple[str, ...]:
        """Names of checkpoints that would go and that are verified at the target as they are."""
        going = set(self.removed.names) | ({"."} if self.removed.own else set())
        return tuple(one.name for one in self.seen.checkpoints if one.name in going and one.uploaded_age_s is not None)


def delete(session: Session, found: Found) -> Found:
    """Remove the records and logs of an ended job; never its checkpoints or its workspace."""
    gone = session.backend(found.machine).delete(found.report.job_id, session.by)
    session.ledger.drop(found.report.job_id)
    # The history went with the records: what was read of it before is the last that anybody has.
    return found.as_it_is(gone if gone.events else replace(gone, events=found.report.events))


def doomed(session: Session, found: Found) -> Doomed:
    """What `delete_checkpoints` would remove now. Raises `HostRefused` (`not_finished`) for a run that is not over."""
    removed = session.backend(found.machine).delete_checkpoints(found.report.job_id, session.by)
    return Doomed(removed, checkpoints(session, found))


def delete_checkpoints(session: Session, found: Found, shown: Doomed) -> Removed:
    """Remove exactly what was shown. Raises `HostRefused` when something else lies there by now."""
    return session.backend(found.machine).delete_checkpoints(found.report.job_id, session.by, shown.removed.names)
