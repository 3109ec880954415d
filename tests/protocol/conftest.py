"""The world of the counterexamples, with its stand-ins in place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from protocol.network import stand_ins
from protocol.world import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    two = World(tmp_path, monkeypatch)
    with stand_ins(two, monkeypatch):
        yield two
