"""Whether a lock is held: what cannot be looked at is never taken for free."""

from __future__ import annotations

import os
from pathlib import Path

from aicrun.agent import handles


def test_a_lock_is_free_only_where_nobody_holds_it_or_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not handles.is_held(str(path))
    assert not handles.is_held(str(tmp_path / "file" / "lock"))
    handle = handles.hold(str(path), 1.0)
    assert handle is not None
    assert handles.is_held(str(path))
    os.close(handle)
    assert not handles.is_held(str(path))
    assert not handles.is_held(str(path / "below a file"))


def test_one_that_cannot_be_looked_at_may_be_held(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert handles.is_held(str(loop))
    assert handles.is_held(str(tmp_path / ("x" * 300)))
