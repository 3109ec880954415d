"""Gathers all that is known of one job: the record, its files, the lock probe, the processes. It never writes.

Order matters: the keeper's lock is probed first. Found free, nobody writes the job's files any more; found held,
whatever they say next is at most newer.
"""

import os
import time
from typing import List, Optional, Tuple, Type, TypeVar

from aicrun.agent import decide, family
from aicrun.agent.handles import keeper_lives
from aicrun.agent.home import Home
from aicrun.agent.kept import Launch, Mark, Pause, Retarget, Stuck, Supervision
from aicrun.agent.process import boot_identity, start_ticks
from aicrun.agent.records import NewerRecord, Unreadable, read_record
from aicrun.agent.state import Evidence, StepSeen
from aicrun.wire import lean, names
from aicrun.wire.jobs import (
    STEPS,
    Decision,
    End,
    JobRequest,
    Limits,
    NextAttempt,
    RunRecord,
    StepExit,
    StepStart,
    StopIntent,
    UploadResult,
)
from aicrun.wire.seen import InLine

T = TypeVar("T")


@lean.dataclass(frozen=True)
class Known:
    """One job as its files tell it, and the evidence that decides where it stands."""

    record: RunRecord
    evidence: Evidence
    decision: Optional[Decision]
    launch: Optional[Launch]
    stop: Optional[StopIntent]
    supervision: Optional[Supervision]
    upload: Optional[UploadResult]
    upload_exit: Optional[StepExit]
    leftover_pids: Tuple[int, ...]
    forgotten: bool
    torn: Tuple[str, ...]
    line: Optional[InLine] = None
    card_allocated: bool = False
    pause: Optional[Pause] = None
    retarget: Optional[Retarget] = None
    # Its limits were changed, and nobody can read how.
    limits_hidden: bool = False


def gather(home: Home, run: str, job_id: str) -> Known:
    """All about one job; raises `Unreadable` (`NewerRecord`) when record or decision cannot be read.

    Any other file that is torn counts as absent and is named in `torn`.
    """
    job_dir, record_dir = home.job_dir(job_id), home.record_dir(run, job_id)
    lives = keeper_lives(job_dir) or _keeps_elsewhere(job_dir, record_dir)
    record = read_record(os.path.join(record_dir, names.RECORD), RunRecord)
    if record is None:
        raise Unreadable(os.path.join(record_dir, names.RECORD), "it is missing")
    decision = decide.standing(home, run, job_id) or Decision("")
    reader = _Reader()
    launch = reader.read(os.path.join(job_dir, names.LAUNCH), Launch)
    mark = reader.read(os.path.join(record_dir, names.LEFT), Decision) or Decision("")
    line = reader.read(os.path.join(job_dir, names.LINE), InLine)
    pause = reader.read(os.path.join(job_dir, names.RETRY), Pause)
    seen = _of_steps(reader, job_dir, lives, launch, record.first_attempt)
    evidence = lean.replace(
        seen,
        decision=decision.decision,
        reason=decision.reason,
        left=mark.decision == "no",
        left_reason=mark.reason,
        in_line=line is not None and (not line.granted or bool(line.why)),
        due=pause is not None and pause.attempt > seen.attempt,
    )
    evidence = _with_end(evidence, job_id, reader.read(os.path.join(record_dir, names.END), End))
    return Known(
        record=record,
        evidence=evidence,
        decision=decision if decision.decision else None,
        launch=launch,
        stop=_either(reader, names.STOP, StopIntent, job_dir, record_dir),
        supervision=reader.read(os.path.join(record_dir, names.SUPERVISION), Supervision),
        upload=reader.read(os.path.join(record_dir, names.UPLOAD_RESULT), UploadResult),
        upload_exit=reader.read(os.path.join(record_dir, names.UPLOAD_EXIT), StepExit),
        leftover_pids=_leftovers(_either(reader, names.STUCK, Stuck, job_dir, record_dir)),
        forgotten=reader.read(os.path.join(record_dir, names.FORGOTTEN), Mark) is not None,
        torn=tuple(reader.torn),
        line=line,
        card_allocated=bool(record.cards) and mark.decision == "go",
        pause=pause,
        retarget=reader.read(os.path.join(record_dir, names.UPLOAD_TO), Retarget),
        limits_hidden=os.path.join(record_dir, names.SUPERVISION) in reader.torn_paths,
    )


def next_attempt(known: Known) -> Optional[NextAttempt]:
    """The attempt that is due, with what is left of its pause; without a keeper nobody makes it, and why is told."""
    seen, pause = known.evidence, known.pause
    if seen.end is not None:
        return seen.end.next_attempt
    if pause is None or not seen.due:
        return None
    due = NextAttempt(pause.attempt, pause.most, pause.cause)
    if not seen.keeper_lives:
        lost = "supervisor_lost" if seen.same_boot else "reboot"
        return lean.replace(due, not_made="stopped" if known.stop is not None else lost)
    left_s = pause.began_s + pause.pause_s - time.clock_gettime(time.CLOCK_BOOTTIME)
    return lean.replace(due, in_s=max(0.0, round(left_s, 1)))


def _keeps_elsewhere(job_dir: str, record_dir: str) -> bool:
    """True when the job's folder was taken away while its keeper lives; looked for only where no end stands."""
    kept = os.path.join(job_dir, names.KEEPER_LOCK), os.path.join(record_dir, names.END)
    return not any(os.path.lexists(path) for path in kept) and family.keeper_of(job_dir) is not None


def _of_steps(reader: "_Reader", job_dir: str, lives: bool, launch: Optional[Launch], first: int) -> Evidence:
    attempt, steps = _steps(reader, job_dir, first)
    return Evidence(
        has_folder=os.path.isdir(job_dir),
        keeper_lives=lives,
        role=launch.role if launch is not None else "keeper",
        same_boot=launch is None or launch.boot == boot_identity(),
        steps=steps,
        attempt=attempt,
        first=first,
    )


def _with_end(seen: Evidence, job_id: str, end: Optional[End]) -> Evidence:
    """The end, and whether anything still lives: looked for only where no keeper would know it."""
    may_have_begun = bool(seen.steps) or not seen.has_folder
    may_live = not seen.keeper_lives and (end is None or seen.role == "again") and may_have_begun
    lives = may_live and tree_lives(job_id, seen.steps)
    return lean.replace(seen, end=end, tree_lives=lives, steps=_with_exits(seen, end))


def _with_exits(seen: Evidence, end: Optional[End]) -> Tuple[StepSeen, ...]:
    """The steps, with what the job's end knows of an exit that could not be written into its own folder."""
    told = {(one.step, one.attempt): one for one in end.exits} if end is not None else {}
    found = []
    for step in seen.steps:
        kept = told.get((step.step, step.start.attempt)) if step.exit is None and step.start is not None else None
        # An upload that is tried again has an exit in the end as well: that of the first try.
        if kept is not None and not (step.step == "upload" and seen.role == "again"):
            step = lean.replace(step, exit=kept, main_lives=False)
        found.append(step)
    return tuple(found)


def limits_of(known: Known, job_dir: str) -> Limits:
    """The limits of now: as they were changed last, else as the request says, else the standard ones.

    None of them is kept where they were changed and nobody can read how: nothing ends on a guess.
    """
    if known.supervision is not None:
        return known.supervision.limits
    if known.limits_hidden:
        return Limits()
    try:
        request = read_record(os.path.join(job_dir, names.REQUEST), JobRequest)
    except Unreadable:
        request = None
    return request.limits if request is not None else Limits()


def starts_of(steps: Tuple[StepSeen, ...]) -> Tuple[StepStart, ...]:
    """The start records among the steps."""
    return tuple(step.start for step in steps if step.start is not None)


def tree_lives(job_id: str, steps: Tuple[StepSeen, ...]) -> bool:
    """True when some process of the job lives, as far as that can be told without its keeper."""
    return any(step.main_lives for step in steps) or bool(family.Orphans(job_id, starts_of(steps)).members())


class _Reader:
    def __init__(self) -> None:
        self.torn: List[str] = []
        self.torn_paths: List[str] = []

    def read(self, path: str, kind: Type[T]) -> Optional[T]:
        try:
            return read_record(path, kind)
        except NewerRecord:
            raise
        except Unreadable as error:
            self.torn.append(str(error))
            self.torn_paths.append(path)
            return None


def _either(reader: _Reader, name: str, kind: Type[T], job_dir: str, record_dir: str) -> Optional[T]:
    """What stands beside the record, where a stop is written when the job's folder was taken away, else in it."""
    return reader.read(os.path.join(record_dir, name), kind) or reader.read(os.path.join(job_dir, name), kind)


def _steps(reader: _Reader, job_dir: str, first: int) -> Tuple[int, Tuple[StepSeen, ...]]:
    """(the newest attempt with a step on record, its steps); the first attempt's setup serves all of them."""
    attempts = os.path.join(job_dir, names.ATTEMPTS)
    try:
        numbers = [int(name) for name in os.listdir(attempts) if name.isdigit()]
    except (FileNotFoundError, NotADirectoryError):
        numbers = []
    except OSError as error:
        # What cannot be read is not absent: whoever took it for that would start a run twice.
        raise Unreadable(attempts, error.strerror or "error") from error
    for attempt in sorted(numbers, reverse=True):
        found = _of_attempt(reader, os.path.join(attempts, str(attempt)), STEPS)
        if found and attempt > first:
            return attempt, _of_attempt(reader, os.path.join(attempts, str(first)), STEPS[:1]) + found
        if found:
            return attempt, found
    return first, ()


def _of_attempt(reader: _Reader, folder: str, steps: Tuple[str, ...]) -> Tuple[StepSeen, ...]:
    found = []
    for step in steps:
        start = reader.read(os.path.join(folder, step, names.STEP_START), StepStart)
        end = reader.read(os.path.join(folder, step, names.STEP_EXIT), StepExit)
        if start is not None or end is not None:
            main_lives = start is not None and end is None and family.main_lives(start)
            found.append(StepSeen(step, start, end, main_lives))
    return tuple(found)


def _leftovers(stuck: Optional[Stuck]) -> Tuple[int, ...]:
    if stuck is None or stuck.boot != boot_identity():
        return ()
    return tuple(one.pid for one in stuck.processes if start_ticks(one.pid) == one.ticks)
