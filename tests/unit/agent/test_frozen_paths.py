"""Where everything lies on a host is frozen: agents of other versions look for it there."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from frozen import frozen

from aicrun.agent import store
from aicrun.agent.home import Home, open_home


def test_paths_below_the_state_folder() -> None:
    home = Home("STATE", "JOBS", "HOST")
    job = "0123456789abcdef"
    frozen(
        "paths",
        {
            "run records": home.run_dir("a-run"),
            "run record": home.record_dir("a-run", job),
            "job folder": home.job_dir(job),
            "step folder": home.step_dir(job, 2, "command"),
            "store": home.store(),
            "object": home.object_path("ab" * 32),
            "tree": store.manifest_path(home, "cd" * 32),
            "trash": home.trash(),
            "trash of records": home.record_trash(),
            "tombstone": home.tombstone(job),
            "notes": home.notes_path(),
        },
    )


def test_the_state_folder_is_named_by_the_host(tmp_path: Path) -> None:
    home = open_home({"HOME": str(tmp_path)})
    assert home.root == str(tmp_path / ".local/state/aicrun" / home.host_id)
    moved = open_home({"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "x")})
    assert dataclasses.replace(moved, root="", jobs_root="") == Home("", "", home.host_id)
    assert moved.root == str(tmp_path / "x/aicrun" / home.host_id)
