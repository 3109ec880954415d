"""Ranges of versions, models that match loosely, and placeholders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicrun.plan.fit import model_matches
from aicrun.plan.nearest import index_ranges
from aicrun.plan.placeholders import escaped, fill, finish, names_in
from aicrun.plan.versions import admits, parse, within
from aicrun.spec.model import Bounds


@pytest.mark.parametrize(
    ("wanted", "version", "holds"),
    [
        ("", "3.8.0", True),
        (">=3.10", "3.10.0", True),
        (">=3.10", "3.9.18", False),
        (">=3.10,<3.13", "3.12.4", True),
        (">=3.10,<3.13", "3.13.0", False),
        ("<3.12", "3.12.0", False),
        ("<=3.11", "3.11.9", True),
        (">3.11", "3.11.9", False),
        (">3.11", "3.12.0", True),
        ("3.11", "3.11.7", True),
        ("3.11", "3.12.1", False),
        ("3", "3.9.1", True),
        ("==3.11.*", "3.11.7", True),
        ("==3.11.7", "3.11.7", True),
        ("==3.11.7", "3.11.8", False),
        ("!=3.11.*", "3.11.7", False),
        ("~=3.10", "3.13.0", True),
        ("~=3.10", "4.0.0", False),
        ("~=3.10.2", "3.10.9", True),
        ("~=3.10.2", "3.11.0", False),
        ("3.10..3.12", "3.12.4", True),
        ("3.10..3.12", "3.13.0", False),
        ("3.10..", "3.14.0", True),
        ("garbage", "3.11.0", False),
    ],
)
def test_a_python_range(wanted: str, version: str, holds: bool) -> None:
    assert admits(wanted, version) is holds


def test_a_driver_range_compares_numbers_not_text() -> None:
    assert within(parse("570.86.15"), Bounds((550,), None))
    assert not within(parse("9.1"), Bounds((10,), None))
    assert within(parse("12.4"), Bounds(None, (12,)))
    assert parse("unknown") == ()


@pytest.mark.parametrize(
    ("wanted", "model", "holds"),
    [
        ("RTX 3090", "NVIDIA GeForce RTX 3090", True),
        ("rtx3090", "NVIDIA GeForce RTX 3090", True),
        ("RTX 3090", "NVIDIA GeForce RTX 3090 Ti", False),
        ("RTX 3090 Ti", "NVIDIA GeForce RTX 3090 Ti", True),
        ("A6000", "NVIDIA RTX A6000", True),
        ("RTX A6000", "NVIDIA RTX 6000 Ada Generation", False),
        ("RTX 6000 Ada", "NVIDIA RTX 6000 Ada Generation", True),
        ("A100", "NVIDIA A100-SXM4-80GB", True),
        ("A10", "NVIDIA A100-SXM4-80GB", False),
        ("A10", "NVIDIA A10G", False),
        ("L40", "NVIDIA L40S", False),
        ("H100", "NVIDIA H100 NVL", True),
        ("V100", "Tesla V100-SXM2-16GB", True),
        ("RTX 4090", "NVIDIA GeForce RTX 4090 Laptop GPU", False),
    ],
)
def test_models_match_loosely(wanted: str, model: str, holds: bool) -> None:
    assert model_matches(wanted, model) is holds


def test_indices_of_neighbours_fold() -> None:
    assert index_ranges([3, 0, 1, 2, 6]) == "0-3,6"
    assert index_ranges([4]) == "4"


def test_placeholders_are_filled_and_what_is_not_ours_stays() -> None:
    text = "${machine.data}/x $HOME ${HOME} ${A:-b} $${run.name} ${run.id} ${run.name}"
    filled = fill(text, {"machine.data": "/data", "run.name": "digits"})
    assert filled == "/data/x $HOME ${HOME} ${A:-b} $${run.name} ${run.id} digits"
    assert finish(filled, {"run.id": "ab"}) == "/data/x $HOME ${HOME} ${A:-b} ${run.name} ab digits"
    assert names_in(text) == {"machine.data", "run.id", "run.name"}


@given(st.text(alphabet="${}ab.run id", max_size=40))
def test_what_was_escaped_comes_out_as_it_went_in(text: str) -> None:
    assert finish(escaped(text), {"run.id": "x", "a.b": "y"}) == text
