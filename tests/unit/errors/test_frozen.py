"""Exit codes and `AIC-E` numbers are a promise to scripts: never renumbered, never used for something else."""

from __future__ import annotations

import inspect
import re

import pytest
from frozen import frozen

from aicrun import codes, errors
from aicrun.errors import PRECEDENCE, AicrunError, Exit, worst


def test_exit_codes() -> None:
    frozen(
        "exit_codes", {"codes": {one.name: one.value for one in Exit}, "precedence": [int(one) for one in PRECEDENCE]}
    )


def test_numbers_of_messages() -> None:
    frozen("codes", {number: code.title for number, code in sorted(codes.CODES.items())})


def test_a_number_is_a_letter_and_three_digits_and_says_what_it_means() -> None:
    for number, code in codes.CODES.items():
        assert re.fullmatch(r"AIC-[EW][0-9]{3}", number), number
        assert code.number == number
        assert code.title, number
        assert code.explanation, number


@pytest.mark.parametrize(
    ("ended", "whole"),
    (
        ([], Exit.DONE),
        ([Exit.DONE, Exit.DONE], Exit.DONE),
        ([Exit.DONE, Exit.RUN_FAILED], Exit.RUN_FAILED),
        ([Exit.RUN_FAILED, Exit.OUTCOME_UNKNOWN], Exit.OUTCOME_UNKNOWN),
        ([Exit.NOTHING_FITS, Exit.UNREACHABLE], Exit.UNREACHABLE),
        ([Exit.WAIT_PASSED, Exit.RUN_STOPPED], Exit.RUN_STOPPED),
        ([Exit.OUTCOME_UNKNOWN, Exit.OURS], Exit.OURS),
        ([Exit.CHANGES_PENDING, Exit.DONE], Exit.CHANGES_PENDING),
    ),
)
def test_several_runs_end_as_the_first_of_the_order(ended: list[Exit], whole: Exit) -> None:
    assert worst(ended) is whole
    assert worst(list(reversed(ended))) is whole


def test_no_ending_of_several_runs_is_ever_hidden_by_done() -> None:
    # An interrupt ends the whole call by itself; every other code can be one of several.
    alone = {Exit.INTERRUPTED, Exit.TERMINATED}
    for code in set(Exit) - alone - {Exit.DONE}:
        assert worst([Exit.DONE, code]) is code


def test_every_error_has_its_exit_code_in_the_tree_that_opens_the_file() -> None:
    drawn = dict(re.findall(r"(\w+) +(\d+)   ", errors.__doc__ or ""))
    for name, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, AicrunError) and kind is not AicrunError:
            assert drawn.get(name) == str(int(kind.exit)), name
