"""Planning touches nothing but its arguments, and its cost grows with machines, not with machines times runs."""

from __future__ import annotations

import ast
import builtins
import os
import random
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support import REPOSITORY
from unit.plan.worlds import answered, card, fleet, gpu_spec, held, wish

from aicrun.plan.decide import plan
from aicrun.plan.model import Fleet, Options

PLAN = REPOSITORY / "aicrun/plan"
IMPURE = {"os", "time", "random", "socket", "subprocess", "datetime", "logging", "secrets", "uuid", "pathlib", "sys"}


def test_the_room_imports_neither_clock_nor_disk_nor_chance() -> None:
    for path in sorted(PLAN.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in modules} & IMPURE, path.name


@pytest.fixture
def _nothing_to_touch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("a plan touched the world")

    with monkeypatch.context() as patch:
        for module, name in (
            (time, "time"),
            (time, "monotonic"),
            (random, "random"),
            (os, "urandom"),
            (os, "getenv"),
            (os, "stat"),
            (socket, "socket"),
            (subprocess, "Popen"),
            (builtins, "open"),
            (builtins, "print"),
        ):
            patch.setattr(module, name, forbidden)
        yield


@pytest.mark.usefixtures("_nothing_to_touch")
def test_a_plan_touches_nothing() -> None:
    made = plan((wish(gpu_spec(20)),), fleet(answered("lab", (card(0, "RTX A6000", 48),))), Options())
    assert made.runs[0].sign.value == "+"


def _large(machines: int) -> Fleet:
    kinds = (("RTX A6000", 48.0), ("RTX 3090", 24.0), ("RTX 2080 Ti", 11.0))
    views = []
    for number in range(machines):
        model, total = kinds[number % 3]
        cards = tuple(card(index, model, total, uuid=f"GPU-{number}-{index}") for index in range(8))
        views.append(answered(f"m{number}", cards))
    return fleet(*views)


def _seconds(machines: int, runs: int) -> float:
    view = _large(machines)
    wanted = tuple(wish(gpu_spec(20, f"run-{number}")) for number in range(runs))
    began = time.process_time()
    made = plan(wanted, view, Options())
    took = time.process_time() - began
    assert len({one for item in made.runs for one in item.chosen}) == min(runs, machines * 8)
    return took


def test_a_sweep_over_many_machines_is_planned_quickly() -> None:
    assert _seconds(400, 400) < 8


def test_runs_that_ask_alike_share_their_verdicts() -> None:
    view = _large(20)
    made = plan(tuple(wish(gpu_spec(20, f"run-{number}")) for number in range(10)), view, Options())
    assert len({id(item.verdicts) for item in made.runs}) == 1


def test_a_sweep_that_waits_is_planned_quickly() -> None:
    cards = tuple(
        card(index, "RTX A6000", 48, 2, uuid=f"GPU-{index}", holder=held("x", "bo", 5.0)) for index in range(8)
    )
    view = fleet(*(answered(f"m{number}", cards) for number in range(200)))
    began = time.process_time()
    made = plan(tuple(wish(gpu_spec(20, f"run-{number}")) for number in range(400)), view, Options())
    assert time.process_time() - began < 8
    # As long as there is an empty line, nobody stands behind somebody of this plan.
    assert len({item.chosen for item in made.runs}) == 400
