"""The list of faults is whole: every row is proved by tests that exist, or says why it cannot be."""

from __future__ import annotations

import ast
from functools import lru_cache

import pytest
from faults.matrix import DETACHING, FIELD, LOGS, MATRIX, REGRESSIONS, Row
from faults.matrix_cards import CARDS
from faults.matrix_checkpoints import CHECKPOINTS
from faults.matrix_hosts import HOSTS
from faults.matrix_plans import PLANS
from faults.matrix_secrets import SECRETS
from support import REPOSITORY

LISTS: dict[str, dict[str, Row]] = {
    "matrix": MATRIX,
    "regressions": {str(number): row for number, row in REGRESSIONS.items()},
    "field": FIELD,
    "detaching": DETACHING,
    "cards": CARDS,
    "checkpoints": CHECKPOINTS,
    "hosts": HOSTS,
    "logs": LOGS,
    "plans": PLANS,
    "secrets": SECRETS,
}
ROWS = [(f"{name} {key}", row) for name, rows in LISTS.items() for key, row in rows.items()]


@lru_cache
def names_in(path: str) -> frozenset[str]:
    tree = ast.parse((REPOSITORY / "tests" / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def is_there(path: str, name: str) -> bool:
    """A test of a file, or a case file by itself."""
    return name in names_in(path) if name else (REPOSITORY / "tests" / path).is_file()


def test_no_row_is_missing() -> None:
    assert list(MATRIX) == [f"F{number:02}" for number in range(1, 49)]
    assert list(REGRESSIONS) == list(range(1, 57))
    assert list(FIELD) == ["F01", "F03", "F05", "F06", "F07", "F10", "F11", "F12", "F13"]
    assert list(DETACHING) == ["C01", "C03", "C05", "C06", "C07", "C08", "C09"]
    numbers = (1, 2, 4, 5, 6, 7, 8, 10, 12, 13, 15, 17, 18, 19, 22, 23, 25, 27, 28, 30, 32, 34, 35, 36, 38)
    assert list(CARDS) == [f"B{number:02}" for number in numbers]
    numbers = (10, 12, 14, 16, 17, 18, 20, 21, 22, 24, 26, 27, 29, 31, 33, 34, 35, 36, 37, 39, 41, 42, 44, 46)
    assert list(HOSTS) == [f"C{number}" for number in numbers]
    assert list(PLANS) == ["A09", "E05", "E08", "E16", "N01", "N02"]
    numbers = (1, 2, 5, 7, 8, 9, 11, 13, 15, 16, 18, 19, 20, 21, 22)
    assert list(CHECKPOINTS) == [f"E{number:02}" for number in numbers]
    assert list(SECRETS) == ["G01", "G02", "G04", "G06"]
    assert list(LOGS) == ["D01", "D03", "D04", "D06", "D07", "D08", "D10", "D11", "D12"]


def test_every_row_has_a_proof_a_reason_or_a_gap() -> None:
    assert [key for key, row in ROWS if not (row.tests or row.gap or row.not_here)] == []


def test_every_named_test_exists() -> None:
    named = [(key, *test.partition("::")[::2]) for key, row in ROWS for test in row.tests]
    assert [f"{key}: {path}::{name}" for key, path, name in named if not is_there(path, name)] == []


@pytest.mark.parametrize(("key", "row"), [(key, row) for key, row in ROWS if row.gap or row.not_here])
def test_what_is_not_proved_is_shown(key: str, row: Row) -> None:
    pytest.skip(f"{key} ({row.what}): {row.not_here or 'not proved yet: ' + row.gap}")
