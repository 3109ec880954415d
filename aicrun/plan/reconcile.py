"""What to do about a run that hosts may already know: the table of the design, as a table.

It must not place or word anything: it reads the records of one run and gives the move. Unknown is never success.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from aicrun.plan.changes import changes_of, only_source
from aicrun.plan.draft import digest_of
from aicrun.plan.known import Found, Known
from aicrun.plan.model import FieldChange, MachineView, Options, Wanted
from aicrun.wire.jobs import JobReport
from aicrun.wire.status import UNKNOWN_REASONS, Standing, Status


class Row(enum.Enum):
    """What the newest record of a run says."""

    NONE = "none"
    UNDECIDED = "undecided"
    WAITING = "waiting"
    LIVE = "live"
    STOP_FAILED = "stop failed"
    SUCCEEDED = "succeeded"
    NOT_UPLOADED = "not uploaded"
    ENDED_BADLY = "failed or stopped"
    UNKNOWN = "unknown"
    NEWER = "written by a newer aicrun"


class Column(enum.Enum):
    """How the spec of now differs from the record's, as far as a new start would be needed."""

    SAME = "same digest"
    SOURCE = "only the source differs"
    OTHER = "other digest"


class Move(enum.Enum):
    """What is done about the run."""

    START = "start"
    AWAIT = "await"
    KEEP = "keep"
    KEEP_OR_MOVE = "keep or move"
    REPLACE = "replace"
    UPLOAD = "upload"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Cell:
    """The move of one cell, and what flags turn it into (absent: the flag changes nothing here)."""

    plain: Move
    again: Move | None = None
    replace: Move | None = None
    forget: Move | None = None

    def under(self, options: Options) -> Move:
        """The move under these flags; `--fresh` is an `--again` that starts from nothing."""
        if options.forget and self.forget is not None:
            return self.forget
        if (options.again or options.fresh) and self.again is not None:
            return self.again
        if options.replace and self.replace is not None:
            return self.replace
        return self.plain


_START = Cell(Move.START)
_AWAIT = Cell(Move.AWAIT)
_REFUSE = Cell(Move.REFUSE)
_REFUSE_OR_REPLACE = Cell(Move.REFUSE, replace=Move.REPLACE)
_REFUSE_OR_AGAIN = Cell(Move.REFUSE, again=Move.START)
_KEEP_OR_AGAIN = Cell(Move.KEEP, again=Move.START)
_SAY_SO_FIRST = Cell(Move.REFUSE, again=Move.START, forget=Move.START)

TABLE: dict[Row, tuple[Cell, Cell, Cell]] = {
    # record                same digest              only the source differs  other digest
    Row.NONE: (_START, _START, _START),
    Row.UNDECIDED: (_AWAIT, _AWAIT, _AWAIT),
    Row.WAITING: (Cell(Move.KEEP_OR_MOVE), _REFUSE_OR_REPLACE, _REFUSE_OR_REPLACE),
    Row.LIVE: (Cell(Move.KEEP), _REFUSE_OR_REPLACE, _REFUSE_OR_REPLACE),
    Row.STOP_FAILED: (_REFUSE, _REFUSE, _REFUSE),
    Row.SUCCEEDED: (_KEEP_OR_AGAIN, _KEEP_OR_AGAIN, _START),
    Row.NOT_UPLOADED: (Cell(Move.UPLOAD, again=Move.START), _REFUSE_OR_AGAIN, _REFUSE_OR_AGAIN),
    Row.ENDED_BADLY: (_REFUSE_OR_AGAIN, _START, _START),
    Row.UNKNOWN: (_SAY_SO_FIRST, _SAY_SO_FIRST, _SAY_SO_FIRST),
    Row.NEWER: (_REFUSE, _REFUSE, _REFUSE),
}
_COLUMNS = (Column.SAME, Column.SOURCE, Column.OTHER)

_ROWS = {
    Status.REJECTED: Row.NONE,
    Status.PENDING: Row.UNDECIDED,
    Status.SCHEDULING: Row.UNDECIDED,
    Status.ENQUEUED: Row.WAITING,
    Status.BUILDING: Row.LIVE,
    Status.IN_PROGRESS: Row.LIVE,
    Status.STOP_IN_PROGRESS: Row.LIVE,
    Status.STOP_FAILED: Row.STOP_FAILED,
    Status.SUCCEEDED: Row.SUCCEEDED,
    Status.FAILED: Row.ENDED_BADLY,
    Status.STOPPED: Row.ENDED_BADLY,
    Status.UNKNOWN: Row.UNKNOWN,
}
# The record that counts when several machines hold one: what may still run or start comes before what ended.
_WEIGHT = (Row.NEWER, Row.STOP_FAILED, Row.LIVE, Row.WAITING, Row.UNDECIDED)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The move for one run and what led to it.

    `named` are the ended job ids that a new start may follow, with the job a `replace` or a move gives up. `blocked`
    are silent machines that may hold the run, `unreadable` (machine, record) pairs; either refuses a start.
    `first_attempt` is above 1 when the start is an attempt of the retry rule, which the lost job could not make.
    """

    row: Row
    column: Column
    move: Move
    found: Found | None = None
    changes: tuple[FieldChange, ...] = ()
    named: tuple[str, ...] = ()
    blocked: tuple[MachineView, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()
    first_attempt: int = 1

    @property
    def starts(self) -> bool:
        """True when a new job is made."""
        return self.move in (Move.START, Move.REPLACE, Move.KEEP_OR_MOVE)


def reconcile(wanted: Wanted, known: Known, options: Options) -> Outcome:
    """The move for one run, from the records of all machines that answered."""
    records = records_of(known, wanted.spec.name)
    best = records[0] if records else None
    row = row_of(best) if best is not None else Row.NONE
    if best is None or row is Row.NONE:
        column, changes = Column.OTHER, tuple[FieldChange, ...]()
    else:
        column, changes = column_of(wanted, best.job)
    move = TABLE[row][_COLUMNS.index(column)].under(options)
    first_attempt = 1
    if best is not None and not _is_said(options) and is_due(wanted, best):
        move, first_attempt = Move.START, best.job.attempt + 1
    return Outcome(
        row,
        column,
        move,
        best if row is not Row.NONE else None,
        changes,
        _named(records, best, move),
        may_hold(wanted, known, options),
        known.unreadable_of(wanted.spec.name),
        first_attempt,
    )


def row_of(found: Found) -> Row:
    """The row of the table that a record stands in; a job that pauses before an attempt is no less alive for it."""
    if found.job.newer_schema:
        return Row.NEWER
    if found.standing.status is Status.ENQUEUED and found.job.next_attempt is not None:
        return Row.LIVE
    return Row.NOT_UPLOADED if not_uploaded(found.standing) else _ROWS[found.standing.status]


def records_of(known: Known, run: str) -> tuple[Found, ...]:
    """All records of the run, the one that counts first: living before ended, then the newest."""
    return tuple(sorted(known.records.get(run, ()), key=_weight))


def column_of(wanted: Wanted, job: JobReport) -> tuple[Column, tuple[FieldChange, ...]]:
    """The column of the table for a record, and every field that differs from it."""
    changes = changes_of(wanted, job)
    if digest_of(wanted) == job.digest:
        return Column.SAME, tuple(item for item in changes if item.kind != "execution")
    return (Column.SOURCE if only_source(changes) else Column.OTHER), changes


def not_uploaded(standing: Standing) -> bool:
    """Whether the training ended well and only its upload is missing."""
    upload_failed = standing.status is Status.FAILED and standing.reason == "upload_failed"
    return upload_failed or (standing.status is Status.STOPPED and standing.step == "upload")


def admitted(wanted: Wanted, view: MachineView) -> bool:
    """Whether the spec's selector admits this machine by name and labels."""
    selector, machine = wanted.spec.machine, view.machine
    by_name = not selector.names or machine.name in selector.names
    return by_name and all(machine.labels.get(key) == value for key, value in selector.labels.items())


def may_hold(wanted: Wanted, known: Known, options: Options) -> tuple[MachineView, ...]:
    """Machines that gave no answer and may hold the run, unless a person ruled them out.

    A machine that sleeps counts only when the spec, the ledger or a record names it. `--forget` takes back what the
    ledger and the records say, never what the selector admits.
    """
    recorded = (found.job.machine for found in known.records.get(wanted.spec.name, ()))
    told = set() if options.forget else {*wanted.known_on, *recorded}
    blocked = []
    for view in known.mute:
        named = view.machine.name in told or view.machine.name in wanted.spec.machine.names
        if named or (admitted(wanted, view) and not view.machine.sleeps):
            blocked.append(view)
    return tuple(blocked)


def _named(records: tuple[Found, ...], best: Found | None, move: Move) -> tuple[str, ...]:
    """Ids that a start follows: all that ended, and the job that it gives up."""
    given_up = best.job.job_id if best is not None and move in (Move.REPLACE, Move.KEEP_OR_MOVE) else ""
    ended = (item.job.job_id for item in records if item.standing.status.terminal and item.job.decision == "go")
    return tuple(dict.fromkeys((*ended, *((given_up,) if given_up else ()))))


def _weight(found: Found) -> tuple[int, float]:
    row = row_of(found)
    age = found.job.age_s
    if row in _WEIGHT:
        return _WEIGHT.index(row), age
    return len(_WEIGHT) + (row is Row.NONE), age


def is_due(wanted: Wanted, found: Found) -> bool:
    """Whether the spec's retry rule asks for another attempt of a job that nobody keeps any more, and has one left."""
    rule, job = wanted.spec.retry, found.job
    if rule is None or job.newer_schema or job.attempt > rule.most:
        return False
    return lost_cause(job, found.standing) in rule.when


def lost_cause(job: JobReport, standing: Standing) -> str:
    """`reboot` or `unknown` for a job that was lost, as `retry.when` names it; empty for one that ended by itself.

    Nobody saw the attempt end, or it ended and the next one, which was due, was not made.
    """
    if standing.status is Status.UNKNOWN:
        lost = standing.reason
    elif standing.status is Status.FAILED and job.next_attempt is not None:
        lost = job.next_attempt.not_made
    else:
        return ""
    return "reboot" if lost == "reboot" else "unknown" if lost in UNKNOWN_REASONS else ""


def _is_said(options: Options) -> bool:
    """A person decides: what they start counts from its first attempt."""
    return options.again or options.fresh or options.forget or options.replace
