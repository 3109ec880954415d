"""Folders that several agents make at the same moment, the first time that a home is used."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from aicrun.agent.records import make_private

MAKERS = 8


def test_whoever_makes_the_same_folders_at_once_finds_them_made(tmp_path: Path) -> None:
    with ThreadPoolExecutor(MAKERS) as makers:
        for number in range(100):
            path = str(tmp_path / str(number) / "state" / "aicrun" / "jobs")
            ready = Barrier(MAKERS)

            def make(_: int, path: str = path, ready: Barrier = ready) -> None:
                ready.wait()
                make_private(path)

            list(makers.map(make, range(MAKERS)))
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
