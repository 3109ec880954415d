"""Where a job stands, for every combination of evidence: laws that hold for all of them, and a row for each case."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from aicrun.agent.state import Evidence, Place, StepSeen, place
from aicrun.wire.jobs import STEPS, Client, End, JobReport, StepExit, StepReport, StepStart
from aicrun.wire.status import TERMINAL, Status, status_of

START = StepStart("command", 1, 10, 20, 10, "boot", "ns", 1, 0.0)


def ran(step: str, **exit_fields: object) -> StepSeen:
    return StepSeen(step, replace(START, step=step), StepExit(step, 1, 1.0, 2.0, **exit_fields))  # type: ignore[arg-type]


def runs(step: str) -> StepSeen:
    return StepSeen(step, replace(START, step=step), None, True)


SETUP_OK = ran("setup", code=0)
STEPS_SEEN = (
    (),
    (runs("setup"),),
    (SETUP_OK,),
    (ran("setup", code=1),),
    (ran("setup", signal=15, stop_sent=True),),
    (ran("setup", spawn_error="no such file"),),
    (SETUP_OK, runs("command")),
    (SETUP_OK, ran("command", code=0)),
    (SETUP_OK, ran("command", code=3)),
    (SETUP_OK, ran("command", signal=9)),
    (SETUP_OK, ran("command", code=0), runs("upload")),
    (SETUP_OK, ran("command", code=0), ran("upload", code=0)),
)
ENDS = (None, End(1, 5.0), End(1, 5.0, lost="reboot"), End(1, 5.0, lost="never_started"))
PHASES = {"reserved", "waiting", "between", "ended", "never_started", *STEPS}


def all_evidence() -> Iterator[Evidence]:
    flags = (False, True)
    grid = itertools.product(
        ("", "go", "no"), flags, ENDS, flags, flags, ("keeper", "again"), flags, STEPS_SEEN, flags, (1, 2), flags
    )
    for decision, left, end, folder, keeper, role, boot, steps, tree, attempt, due in grid:
        yield Evidence(decision, "why", left, end, folder, keeper, role, boot, steps, attempt, tree, due=due)


def report(seen: Evidence, where: Place) -> JobReport:
    steps = tuple(StepReport(step.step, exit=step.exit) for step in seen.steps)
    return JobReport(
        "0" * 16, "r-1", "1" * 16, "d", Client("", "", ""), 1.0, where.decision, where.phase,
        supervised=where.supervised, steps=steps, lost=where.lost, decision_reason=where.reason,
    )  # fmt: skip


def test_every_evidence_has_one_lawful_place() -> None:
    count = 0
    for seen in all_evidence():
        where, count = place(seen), count + 1
        assert where.decision in ("undecided", "go", "no")
        assert where.phase in PHASES
        if seen.decision == "no" or seen.left:
            assert (where.decision, where.phase) == ("no", "never_started")
        if where.lost:
            assert (where.decision, where.phase) == ("go", "ended"), seen
            assert where.lost in ("reboot", "supervisor_lost", "record_lost")
        if where.supervised:
            assert seen.keeper_lives
            assert where.phase not in ("ended", "never_started")
        if where.phase == "reserved":
            assert seen.decision == ""
        if where.phase == "waiting":
            assert seen.keeper_lives
            assert seen.due
    assert count == 3 * 2 * 4 * 2 * 2 * 2 * 2 * 12 * 2 * 2 * 2


def test_nothing_unknown_is_ever_called_a_success_or_a_failure() -> None:
    for seen in all_evidence():
        standing = status_of(report(seen, place(seen)))
        command = next((step.exit for step in seen.steps if step.step == "command"), None)
        if standing.status is Status.SUCCEEDED:
            assert command is not None
            assert command.code == 0
        if standing.status is Status.FAILED:
            assert any(step.exit is not None and step.exit.code != 0 for step in seen.steps)
        if standing.code is not None:
            assert any(step.exit is not None and step.exit.code == standing.code for step in seen.steps)


def test_while_a_keeper_lives_and_no_end_stands_the_job_is_not_over() -> None:
    for seen in all_evidence():
        if seen.decision == "go" and not seen.left and seen.end is None and seen.keeper_lives:
            assert status_of(report(seen, place(seen))).status not in TERMINAL


GO = Evidence("go")
TABLE = [
    ("reserved, its keeper waits", Evidence(keeper_lives=True), Place("undecided", "reserved", supervised=True)),
    ("reserved, its keeper is gone", Evidence(), Place("undecided", "reserved")),
    ("withdrawn", Evidence("no", "by client"), Place("no", "never_started", "by client")),
    ("left the line", replace(GO, left=True), Place("no", "never_started", "left the line")),
    ("go, no step yet", replace(GO, keeper_lives=True), Place("go", "between", supervised=True)),
    ("go, the keeper died before any step", GO, Place("go", "never_started")),
    ("setup runs", replace(GO, keeper_lives=True, steps=(runs("setup"),)), Place("go", "setup", supervised=True)),
    ("setup runs on without its keeper", replace(GO, tree_lives=True, steps=(runs("setup"),)), Place("go", "setup")),
    ("setup ended well, the keeper died", replace(GO, steps=(SETUP_OK,)), Place("go", "never_started")),
    ("setup failed, the keeper died", replace(GO, steps=(ran("setup", code=1),)), Place("go", "ended")),
    (
        "between setup and command",
        replace(GO, keeper_lives=True, steps=(SETUP_OK,)),
        Place("go", "between", supervised=True),
    ),
    (
        "the command runs",
        replace(GO, keeper_lives=True, steps=(SETUP_OK, runs("command"))),
        Place("go", "command", supervised=True),
    ),
    (
        "the command runs without its keeper",
        replace(GO, tree_lives=True, steps=(SETUP_OK, runs("command"))),
        Place("go", "command"),
    ),
    (
        "command and keeper gone",
        replace(GO, steps=(SETUP_OK, runs("command"))),
        Place("go", "ended", lost="supervisor_lost"),
    ),
    (
        "the host was restarted",
        replace(GO, same_boot=False, steps=(SETUP_OK, runs("command"))),
        Place("go", "ended", lost="reboot"),
    ),
    ("restarted before the command", replace(GO, same_boot=False, steps=(SETUP_OK,)), Place("go", "never_started")),
    (
        "it pauses before the second attempt",
        replace(GO, keeper_lives=True, steps=(SETUP_OK, ran("command", code=3)), due=True),
        Place("go", "waiting", supervised=True),
    ),
    (
        "the pause is over, the cards are another's",
        replace(GO, keeper_lives=True, steps=(SETUP_OK, ran("command", code=3)), due=True, in_line=True),
        Place("go", "waiting", supervised=True),
    ),
    (
        "the keeper died in the pause",
        replace(GO, steps=(SETUP_OK, ran("command", code=3)), due=True),
        Place("go", "ended"),
    ),
    (
        "restarted in the pause",
        replace(GO, same_boot=False, steps=(SETUP_OK, ran("command", code=3)), due=True),
        Place("go", "ended"),
    ),
    (
        "ended in the pause",
        replace(GO, end=ENDS[1], keeper_lives=True, steps=(SETUP_OK, ran("command", code=3)), due=True),
        Place("go", "ended"),
    ),
    (
        "the keeper died while something of the first attempt lives",
        replace(GO, tree_lives=True, steps=(SETUP_OK, ran("command", code=3)), due=True),
        Place("go", "command"),
    ),
    (
        "the second attempt runs",
        replace(GO, keeper_lives=True, attempt=2, steps=(SETUP_OK, runs("command"))),
        Place("go", "command", supervised=True),
    ),
    (
        "command and keeper of the second attempt gone",
        replace(GO, attempt=2, steps=(SETUP_OK, runs("command"))),
        Place("go", "ended", lost="supervisor_lost"),
    ),
    (
        "the job's first attempt is the third of its run, and never began",
        replace(GO, attempt=3, first=3, steps=(SETUP_OK,)),
        Place("go", "never_started"),
    ),
    ("second attempt had not begun", replace(GO, attempt=2), Place("go", "ended", lost="supervisor_lost")),
    ("its folder is gone", replace(GO, has_folder=False), Place("go", "ended", lost="record_lost")),
    ("the exit is known, the end is not", replace(GO, steps=(SETUP_OK, ran("command", code=3))), Place("go", "ended")),
    (
        "the exit is known, the keeper tidies up",
        replace(GO, keeper_lives=True, steps=(SETUP_OK, ran("command", code=3))),
        Place("go", "command", supervised=True),
    ),
    ("it uploads", replace(GO, keeper_lives=True, steps=STEPS_SEEN[10]), Place("go", "upload", supervised=True)),
    ("the upload's keeper died", replace(GO, steps=STEPS_SEEN[10]), Place("go", "ended")),
    ("ended", replace(GO, end=ENDS[1], keeper_lives=True), Place("go", "ended")),
    ("ended unknown", replace(GO, end=ENDS[2]), Place("go", "ended", lost="reboot")),
    ("ended before it started", replace(GO, end=ENDS[3]), Place("go", "never_started")),
    ("ended, swept", replace(GO, end=ENDS[1], has_folder=False), Place("go", "ended")),
    (
        "ended, uploads again",
        replace(GO, end=ENDS[1], role="again", keeper_lives=True),
        Place("go", "upload", supervised=True),
    ),
    (
        "ended, the second upload lost its keeper",
        replace(GO, end=ENDS[1], role="again", tree_lives=True),
        Place("go", "upload"),
    ),
    ("ended, the second upload is over", replace(GO, end=ENDS[1], role="again"), Place("go", "ended")),
]


@pytest.mark.parametrize(("seen", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_row(seen: Evidence, expected: Place) -> None:
    assert place(seen) == expected
