"""Gathers all that is known of one job: the record, its files, the lock probe, the processes. It never writes.

Order matters: the keeper's lock is probed first. Found free, nobody writes the job's files any more; found held,
whatever they say next is at most newer.
"""

import dataclasses
import os
from typing import List, Optional, Tuple, Type, TypeVar

from aicrun.agent import decide, family
from aicrun.agent.home import Home
from aicrun.agent.launch import keeper_lives
from aicrun.agent.process import boot_identity, start_ticks
from aicrun.agent.records import Launch, Mark, NewerRecord, Stuck, Supervision, Unreadable, read_record
from aicrun.agent.state import Evidence, StepSeen
from aicrun.wire import names
from aicrun.wire.jobs import (
    STEPS,
    Decision,
    End,
    InLine,
    RunRecord,
    StepExit,
    StepStart,
    StopIntent,
    UploadResult,
)

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
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


def gather(home: Home, run: str, job_id: str) -> Known:
    """All about one job; raises `Unreadable` (`NewerRecord`) when record or decision cannot be read.

    Any other file that is torn counts as absent and is named in `torn`.
    """
    job_dir, record_dir = home.job_dir(job_id), home.record_dir(run, job_id)
    lives = keeper_lives(job_dir)
    record = read_record(os.path.join(record_dir, names.RECORD), RunRecord)
    if record is None:
        raise Unreadable(os.path.join(record_dir, names.RECORD), "it is missing")
    decision = decide.standing(home, run, job_id) or Decision("")
    reader = _Reader()
    launch = reader.read(os.path.join(job_dir, names.LAUNCH), Launch)
    mark = reader.read(os.path.join(record_dir, names.LEFT), Decision) or Decision("")
    line = reader.read(os.path.join(job_dir, names.LINE), InLine)
    evidence = dataclasses.replace(
        _of_steps(reader, job_dir, lives, launch),
        decision=decision.decision,
        reason=decision.reason,
        left=mark.decision == "no",
        left_reason=mark.reason,
        in_line=line is not None and (not line.granted or bool(line.why)),
    )
    end = reader.read(os.path.join(record_dir, names.END), End)
    evidence = _with_end(evidence, job_id, end)
    return Known(
        record=record,
        evidence=evidence,
        decision=decision if decision.decision else None,
        launch=launch,
        stop=reader.read(os.path.join(job_dir, names.STOP), StopIntent),
        supervision=reader.read(os.path.join(record_dir, names.SUPERVISION), Supervision),
        upload=reader.read(os.path.join(record_dir, names.UPLOAD_RESULT), UploadResult),
        upload_exit=reader.read(os.path.join(record_dir, names.UPLOAD_EXIT), StepExit),
        leftover_pids=_leftovers(reader.read(os.path.join(job_dir, names.STUCK), Stuck)),
        forgotten=reader.read(os.path.join(record_dir, names.FORGOTTEN), Mark) is not None,
        torn=tuple(reader.torn),
        line=line,
        card_allocated=bool(record.cards) and mark.decision == "go",
    )


def _of_steps(reader: "_Reader", job_dir: str, lives: bool, launch: Optional[Launch]) -> Evidence:
    attempt, steps = _steps(reader, job_dir)
    return Evidence(
        has_folder=os.path.isdir(job_dir),
        keeper_lives=lives,
        role=launch.role if launch is not None else "keeper",
        same_boot=launch is None or launch.boot == boot_identity(),
        steps=steps,
        attempt=attempt,
    )


def _with_end(seen: Evidence, job_id: str, end: Optional[End]) -> Evidence:
    """The end, and whether anything still lives: looked for only where no keeper would know it."""
    may_have_begun = bool(seen.steps) or not seen.has_folder
    may_live = not seen.keeper_lives and (end is None or seen.role == "again") and may_have_begun
    return dataclasses.replace(seen, end=end, tree_lives=may_live and tree_lives(job_id, seen.steps))


def starts_of(steps: Tuple[StepSeen, ...]) -> Tuple[StepStart, ...]:
    """The start records among the steps."""
    return tuple(step.start for step in steps if step.start is not None)


def tree_lives(job_id: str, steps: Tuple[StepSeen, ...]) -> bool:
    """True when some process of the job lives, as far as that can be told without its keeper."""
    return any(step.main_lives for step in steps) or bool(family.Orphans(job_id, starts_of(steps)).members())


class _Reader:
    def __init__(self) -> None:
        self.torn: List[str] = []

    def read(self, path: str, kind: Type[T]) -> Optional[T]:
        try:
            return read_record(path, kind)
        except NewerRecord:
            raise
        except Unreadable as error:
            self.torn.append(str(error))
            return None


def _steps(reader: _Reader, job_dir: str) -> Tuple[int, Tuple[StepSeen, ...]]:
    attempts = os.path.join(job_dir, names.ATTEMPTS)
    try:
        numbers = [int(name) for name in os.listdir(attempts) if name.isdigit()]
    except OSError:
        numbers = []
    attempt = max(numbers, default=1)
    found = []
    for step in STEPS:
        folder = os.path.join(attempts, str(attempt), step)
        start = reader.read(os.path.join(folder, names.STEP_START), StepStart)
        end = reader.read(os.path.join(folder, names.STEP_EXIT), StepExit)
        if start is not None or end is not None:
            main_lives = start is not None and end is None and family.main_lives(start)
            found.append(StepSeen(step, start, end, main_lives))
    return attempt, tuple(found)


def _leftovers(stuck: Optional[Stuck]) -> Tuple[int, ...]:
    if stuck is None or stuck.boot != boot_identity():
        return ()
    return tuple(one.pid for one in stuck.processes if start_ticks(one.pid) == one.ticks)
