"""The end of a run with its evidence: what is shown when there is nothing more to wait for. It decides no status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aicrun.errors import AicrunError, Exit
from aicrun.lifecycle.checkpoints import checkpoints
from aicrun.lifecycle.find import Found
from aicrun.lifecycle.session import Session
from aicrun.lifecycle.upload_notes import note
from aicrun.wire.checkpoint import Checkpointed
from aicrun.wire.codec import to_json
from aicrun.wire.status import Standing, Status

_EVIDENCE_LINES = 8
_EVIDENCE_BYTES = 16 * 1024

_EXITS = {
    Status.SUCCEEDED: Exit.DONE,
    Status.FAILED: Exit.RUN_FAILED,
    Status.STOPPED: Exit.RUN_STOPPED,
    # A stop that did not end the tree leaves nobody who knows how it will end.
    Status.STOP_FAILED: Exit.OUTCOME_UNKNOWN,
    Status.UNKNOWN: Exit.OUTCOME_UNKNOWN,
    Status.REJECTED: Exit.HOST_REFUSED,
}


@dataclass(frozen=True, slots=True)
class Ending:
    """A job that ended: the step whose log is the evidence, and its last lines (text of the host, may be empty).

    `saved` are the checkpoints of its run, None where it wrote none or nobody could look.
    """

    found: Found
    step: str = ""
    evidence: tuple[str, ...] = ()
    saved: Checkpointed | None = None


def exit_of(standing: Standing) -> Exit:
    """The exit code of `wait` and `apply --follow`; a run that has not ended is `DONE` (it was not waited for)."""
    return _EXITS.get(standing.status, Exit.DONE)


def ending(session: Session, found: Found) -> Ending:
    """The ending of a job, with the last lines of the log that tells most; no evidence when the log cannot be read."""
    found = _with_history(session, found)
    standing, saved = found.standing, _saved(session, found)
    step = standing.step or next((item.step for item in reversed(found.report.steps) if item.log_bytes), "")
    if standing.status is Status.SUCCEEDED or not step:
        return Ending(found, step, saved=saved)
    try:
        tail = session.backend(found.machine).log(found.report.job_id, step, None, _EVIDENCE_BYTES, _EVIDENCE_LINES)
    except AicrunError:
        # The evidence is a courtesy: the ending itself stands in the report.
        return Ending(found, step, saved=saved)
    lines = tail.data.decode("utf-8", "replace").splitlines()
    return Ending(found, step, tuple(lines[-_EVIDENCE_LINES:]), saved)


def _saved(session: Session, found: Found) -> Checkpointed | None:
    kept = found.report.checkpoints
    if kept is None or not kept.newest:
        return None
    try:
        saved = checkpoints(session, found)
    except AicrunError:
        # Which of them is whole is a courtesy too: the report tells the newest.
        return None
    note(session, [(found.machine, found.report)], saved)
    return saved


def _with_history(session: Session, found: Found) -> Found:
    """The same job with its events, which say what happened on its cards; without them when nobody answers now."""
    if found.report.events or not found.report.cards:
        return found
    try:
        return found.as_it_is(session.backend(found.machine).job(found.report.job_id))
    except AicrunError:
        return found


def document_of(found: Found) -> dict[str, Any]:
    """One job as every `--json` document shows it: its standing first, the host's report behind it."""
    standing = found.standing
    return {
        "run": found.report.run,
        "run_id": found.report.run_id,
        "job_id": found.report.job_id,
        "machine": found.machine,
        "status": standing.status.value,
        "terminal": standing.status.terminal,
        "reason": standing.reason,
        "phase": standing.phase,
        "step": standing.step,
        "code": standing.code,
        "signal": standing.signal,
        "why": standing.why,
        "exit": int(exit_of(standing)),
        "logs_go_in_s": found.logs_go_in_s,
        "job": to_json(found.report),
    }
