"""A host's state folder and a job on it, as the agent would have them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aicrun.agent import store
from aicrun.agent.home import Home, open_home
from aicrun.wire.hashes import tree_hash
from aicrun.wire.jobs import Client, JobRequest, Source

JOB_ID = "00000000000000aa"
RUN_ID = "00000000000000bb"


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of the account that this process is, for the length of a test."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / ".local/state"))
    return folder


@pytest.fixture
def home(account: Path) -> Home:
    """The state folder of that account."""
    return open_home({"HOME": str(account), "XDG_STATE_HOME": str(account / ".local/state")})


@pytest.fixture
def job(account: Path) -> Callable[..., JobRequest]:
    """Makes the request of one job below the account's home; keywords replace its fields."""

    def made(**changes: Any) -> JobRequest:
        workspace = account / "aic-jobs/sft-run"
        fields: dict[str, Any] = {
            "job_id": JOB_ID,
            "run": "sft-run",
            "run_id": RUN_ID,
            "rank": "",
            "digest": "d" * 64,
            "client": Client("ana", "laptop", "0.1.0"),
            "execution": {},
            "workspace": str(workspace),
            "command": ("true",),
            "checkpoints": str(workspace / "checkpoints" / RUN_ID),
            "machine": "here",
        }
        return JobRequest(**(fields | changes))

    return made


@pytest.fixture
def push(home: Home) -> Callable[..., Source]:
    """Pushes a source tree into the store: files by path, executables in `run`, links by target; returns its source."""

    def pushed(files: dict[str, bytes], run: tuple[str, ...] = (), links: dict[str, str] | None = None) -> Source:
        rows: list[tuple[str, str, str, int]] = []
        for path, content in files.items():
            digest = hashlib.sha256(content).hexdigest()
            rows.append((path, "x" if path in run else "f", digest, len(content)))
            store.put(home, {"hash": digest}, content)
        rows += [(path, "l", target, 0) for path, target in (links or {}).items()]
        tree = tree_hash((path, kind, content) for path, kind, content, _ in rows)
        answer, _ = store.missing(home, {"tree": tree, "hashes": []}, json.dumps(rows).encode())
        assert answer == {"missing": []}
        return Source(tree, len(rows), sum(row[3] for row in rows))

    return pushed
