"""The plans that the README shows: real specs of this repository, planned for a fixed machine, as users see them.

`tests/house/test_docs.py` holds the README to the golden files that this writes with AICRUN_FREEZE=1.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from frozen import GOLDEN
from support import REPOSITORY
from unit.plan.worlds import answered, card, fleet, machine, stranger

from aicrun.cli.views.plan_human import plan_screen
from aicrun.plan.decide import plan
from aicrun.plan.model import Fleet, Options, Wanted
from aicrun.spec.load import load_run
from aicrun.wire.jobs import Source


def _digits() -> tuple[Wanted, Fleet]:
    (spec,) = load_run("specs/digits/run.yaml").specs
    files = {"requirements.txt": Path("specs/digits/requirements.txt").read_text("utf-8")}
    source = Source(tree="0" * 64, files=2, bytes=6144, commit="9f2c1ab" + "0" * 33, branch="main")
    return Wanted(spec, source, files), fleet(answered("here", entry=machine("here", data="")), file="")


def _cards() -> tuple[Wanted, Fleet]:
    """One machine with three unlike cards: one kept by its owner, one used by somebody, one that fits."""
    (spec,) = load_run("specs/sft-lora/run.yaml").specs
    used = card(1, "RTX 3090", 24, 2.1, processes=(stranger(8121, "python", "bo", 20),))
    cards = (card(0, "RTX 5080", 16), used, card(2, "RTX A6000", 48))
    return Wanted(spec), fleet(answered("here", cards, machine("here", data="/data", keep_free=(0,))))


@pytest.mark.parametrize(("name", "world"), (("plan_digits", _digits), ("plan_cards", _cards)))
def test_the_screen_is_the_one_that_the_readme_quotes(
    name: str, world: Callable[[], tuple[Wanted, Fleet]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)
    wanted, seen = world()
    text = plan_screen(plan((wanted,), seen, Options()), width=80, verbose=False, ascii=False).plain
    path = GOLDEN / f"screens/{name}.txt"
    if os.environ.get("AICRUN_FREEZE") == "1":
        path.write_text(text.rstrip("\n") + "\n", "utf-8")
    assert path.read_text("utf-8") == text.rstrip("\n") + "\n"
