"""From evidence to where a job stands: one pure, total function. It must not read anything.

Evidence is what files say, whether the keeper's lock is held, and whether recorded processes live. A lock that is
free was probed before the files were read, so what is absent then will stay absent.
"""

from typing import Optional, Tuple

from aicrun.wire import lean
from aicrun.wire.jobs import End, StepExit, StepStart


@lean.dataclass(frozen=True)
class StepSeen:
    """A step of the newest attempt as its folder shows it; `main_lives`: its recorded process lives, by identity."""

    step: str
    start: Optional[StepStart] = None
    exit: Optional[StepExit] = None
    main_lives: bool = False


@lean.dataclass(frozen=True)
class Evidence:
    """All that decides; `decision` is `go`, `no` or empty; `steps` in the order of their run, absent ones left out.

    `tree_lives`: some process of the job lives though its keeper does not. `same_boot`: this is the boot that the
    job was started on (True when nothing was recorded). `role` is the newest keeper's (`keeper`, `again`).
    `in_line`: its cards are not its yet, or not free yet. `attempt` is the newest that has a step on record, `first`
    the job's first. `due`: another attempt after it was announced, and none of its steps is on record.
    """

    decision: str = ""
    reason: str = ""
    left: bool = False
    end: Optional[End] = None
    has_folder: bool = True
    keeper_lives: bool = False
    role: str = "keeper"
    same_boot: bool = True
    steps: Tuple[StepSeen, ...] = ()
    attempt: int = 1
    tree_lives: bool = False
    left_reason: str = ""
    in_line: bool = False
    first: int = 1
    due: bool = False


@lean.dataclass(frozen=True)
class Place:
    """Where the job stands: `decision` and `phase` as in `JobReport`, `lost` empty or why nobody knows the end."""

    decision: str
    phase: str
    reason: str = ""
    supervised: bool = False
    lost: str = ""


def place(seen: Evidence) -> Place:
    """Where a job with this evidence stands; every evidence has exactly one place."""
    if seen.decision == "no":
        return Place("no", "never_started", seen.reason)
    if seen.left:
        return Place("no", "never_started", seen.left_reason or "left the line")
    if seen.end is not None:
        return _ended(seen, seen.end)
    if seen.decision != "go":
        return Place("undecided", "reserved", supervised=seen.keeper_lives)
    if seen.keeper_lives and not seen.has_folder:
        return Place("go", "command", supervised=True)
    if seen.keeper_lives:
        return Place("go", "waiting" if _waits(seen) else _phase(seen.steps), supervised=True)
    if seen.tree_lives:
        # Without its folder nothing tells which step it is: whatever lives of it may be the command.
        return Place("go", _phase(seen.steps) if seen.has_folder else "command")
    if not seen.has_folder:
        return Place("go", "ended", lost="record_lost")
    return _abandoned(seen)


def _ended(seen: Evidence, end: End) -> Place:
    if seen.role == "again" and (seen.keeper_lives or seen.tree_lives):
        return Place("go", "upload", supervised=seen.keeper_lives)
    if end.lost == "never_started":
        return Place("go", "never_started", end.reason)
    return Place("go", "ended", lost=end.lost)


def _abandoned(seen: Evidence) -> Place:
    """`go`, no end, the keeper gone and nothing alive: what was durable by then decides."""
    command = _step(seen.steps, "command")
    if command is not None and command.exit is not None:
        return Place("go", "ended")
    for before in (_step(seen.steps, "setup"), _step(seen.steps, "preflight")):
        if before is not None and before.exit is not None and _is_final(before.exit):
            return Place("go", "ended")
    # Its command surely never ran: the gate opens only after the start record is durable.
    if command is None and seen.attempt == seen.first:
        return Place("go", "never_started")
    return Place("go", "ended", lost="supervisor_lost" if seen.same_boot else "reboot")


def _waits(seen: Evidence) -> bool:
    return seen.due or (seen.in_line and _phase(seen.steps) == "between" and bool(seen.steps))


def _is_final(end: StepExit) -> bool:
    return end.code != 0 or end.stop_sent


def _phase(steps: Tuple[StepSeen, ...]) -> str:
    if not steps:
        return "between"
    last = steps[-1]
    if last.step in ("setup", "preflight") and last.exit is not None and not _is_final(last.exit):
        return "between"
    return last.step


def _step(steps: Tuple[StepSeen, ...], name: str) -> Optional[StepSeen]:
    return next((step for step in steps if step.step == name), None)
