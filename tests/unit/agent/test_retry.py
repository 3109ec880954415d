"""Whether an attempt is followed by another: every ending against every cause, the count, and the pause."""

from __future__ import annotations

from typing import Any

import pytest

from aicrun.agent.retry import Again, again, cause_of, pause_s
from aicrun.wire.jobs import Retry, StepExit

SETUP = StepExit("setup", 1, 1.0, 0.0, code=0)
EVERYTHING = ("exit", "signal", "oom_kill", "timeout", "reboot", "unknown")


def ended(**how: Any) -> tuple[StepExit, ...]:
    return SETUP, StepExit("command", 1, 1.0, 0.0, **how)


ENDINGS = [
    ("success", ended(code=0), ""),
    ("a code", ended(code=75), "exit:75"),
    ("a shell that tells a signal", ended(code=137), "exit:137"),
    ("a signal", ended(signal=9), "signal:KILL"),
    ("a signal without a name", ended(signal=40), "signal:40"),
    ("out of memory", ended(signal=9, oom_kill=True), "oom_kill"),
    ("a worker out of memory, the parent says 1", ended(code=1, oom_kill=True), "exit:1"),
    ("the deadline, by signal", ended(signal=15, timed_out=True), "timeout"),
    ("the deadline, by code", ended(code=3, timed_out=True), "timeout"),
    ("the deadline, and it left in peace", ended(code=0, timed_out=True), "timeout"),
    ("stopped", ended(signal=15, stop_sent=True), ""),
    ("stopped, with a code", ended(code=75, stop_sent=True), ""),
    ("no such program", ended(spawn_error="no such file"), ""),
    ("nothing was recorded", ended(), ""),
    ("the setup failed", (StepExit("setup", 1, 1.0, 0.0, code=75),), ""),
    ("the setup was killed", (StepExit("setup", 1, 1.0, 0.0, signal=9),), ""),
    ("the upload failed", (*ended(code=0), StepExit("upload", 1, 1.0, 0.0, code=75)), ""),
    ("nothing ran", (), ""),
]


@pytest.mark.parametrize(("exits", "cause"), [row[1:] for row in ENDINGS], ids=[row[0] for row in ENDINGS])
def test_an_ending_has_one_cause_or_is_never_tried_again(exits: tuple[StepExit, ...], cause: str) -> None:
    assert cause_of(exits) == cause
    found = again(Retry(3, EVERYTHING, 10, 40), exits, 1)
    kind = cause.partition(":")[0]
    assert found == (Again(cause, 10.0) if cause else None)
    # Named exactly, by its kind alone, and not at all.
    for when, expected in (((cause,), bool(cause)), ((kind,), bool(cause)), (("reboot", "unknown", "exit:9"), False)):
        assert (again(Retry(3, when), exits, 1) is not None) is expected


@pytest.mark.parametrize(
    ("when", "how", "follows"),
    [
        (("exit:75",), {"code": 75}, True),
        (("exit:75",), {"code": 7}, False),
        (("exit:7",), {"code": 75}, False),
        (("signal:SEGV",), {"signal": 11}, True),
        (("signal:SEGV",), {"signal": 9}, False),
        (("signal",), {"signal": 9, "oom_kill": True}, False),
        (("signal:KILL",), {"signal": 9, "oom_kill": True}, False),
        (("signal",), {"signal": 15, "timed_out": True}, False),
        (("exit",), {"code": 3, "timed_out": True}, False),
        (("timeout",), {"signal": 15, "timed_out": True}, True),
        ((), {"code": 75}, False),
    ],
)
def test_a_cause_matches_its_name_and_its_kind_alone(when: tuple[str, ...], how: dict[str, Any], follows: bool) -> None:
    assert (again(Retry(1, when), ended(**how), 1) is not None) is follows


def test_it_ends_after_as_many_further_attempts_as_the_rule_allows() -> None:
    rule, made = Retry(3, ("exit",)), 1
    while again(rule, ended(code=1), made) is not None:
        made += 1
    assert made == 4
    assert again(Retry(), ended(code=1), 1) is None
    assert again(Retry(0, ("exit",)), ended(code=1), 1) is None


@pytest.mark.parametrize(
    ("rule", "pauses"),
    [
        (Retry(9, ("exit",), 60, 900), [60, 120, 240, 480, 900, 900]),
        (Retry(9, ("exit",), 5, 5), [5, 5, 5]),
        (Retry(9, ("exit",), 30, 10), [30, 30]),
        (Retry(9, ("exit",)), [60, 120, 240, 480, 900]),
    ],
)
def test_the_pause_doubles_up_to_its_bound(rule: Retry, pauses: list[int]) -> None:
    assert [pause_s(rule, number + 1) for number in range(len(pauses))] == pauses
    assert pause_s(rule, 1000) == max(rule.backoff_s, rule.backoff_most_s)
