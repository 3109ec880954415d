"""A host that builds environments for tests: jobs of every form of `setup` that want one environment.

It must not know how the agent works inside; what a form needs is made here, what comes of it is asked of the agent.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from typing import Any

import packages
from agent_rig import Rig, state_of
from support import until

from aicrun.wire.hashes import tree_hash
from aicrun.wire.jobs import JobReport, Setup, Source
from aicrun.wire.status import Status, status_of

SYSTEM = shutil.which("python3", path="/usr/bin") or sys.executable
TRY = "python -c 'import tiny; print(tiny.WORD)'"
# A test does not wait for uv to try again.
AT_ONCE = {"UV_HTTP_RETRIES": "0"}
BUILT_S = 120
FORMS = ("requirements", "lock", "project")


class Site:
    """Starts jobs that all want one environment, `k1`, on a host that has uv and a folder of wheels."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.path = rig.home / ".local/share/aicrun/envs/k1"
        self.wheels = rig.home / "wheels"
        self.started = 0
        tools = rig.home / ".local/bin"
        tools.mkdir(parents=True)
        (tools / "uv").symlink_to(packages.pinned_uv())
        self.wheel = packages.wheel(self.wheels)

    def start(self, hook: str = "", **fields: Any) -> str:
        """A job whose environment holds `tiny`, from the folder of wheels unless `fields` of its setup say else.

        `patience_s` is how long uv waits for an index; `source` is the job's.
        """
        given: dict[str, Any] = {"packages": ("tiny",), "wheels": str(self.wheels), **fields}
        source, patience_s = given.pop("source", None), given.pop("patience_s", 60)
        python = given.pop("python_path", SYSTEM)
        setup = Setup(key="k1", path=str(self.path), python=python, python_version="3", **given)
        hooks = {"AICRUN_TEST_HOOK": hook} if hook else {}
        self.started += 1
        variables = {**AT_ONCE, "UV_HTTP_TIMEOUT": str(patience_s), **hooks}
        return self.rig.start(f"built-{self.started}", TRY, variables=variables, setup=setup, source=source)

    def form(self, name: str, address: str) -> dict[str, Any]:
        """The fields of a setup of that form, whose packages come from the index at `address`."""
        if name == "requirements":
            text = {"requirements": "tiny\n", "requirements_name": "requirements.txt"}
            return {"wheels": "", "index": (address,), "packages": (), **text}
        lock = packages.lock(self.wheel, address)
        given = {"wheels": "", "packages": (), "requirements_name": "uv.lock"}
        if name == "lock":
            return {**given, "lock": lock, "pyproject": packages.PYPROJECT}
        files = {"pyproject.toml": packages.PYPROJECT, "backend.py": packages.BACKEND, "demo.py": "", "uv.lock": lock}
        return {**given, "project": True, "source": self.pushed(files)}

    def pushed(self, files: dict[str, str]) -> Source:
        """A source that lies in the host's store."""
        contents = {name: text.encode() for name, text in sorted(files.items())}
        rows = [[name, "f", hashlib.sha256(raw).hexdigest(), len(raw)] for name, raw in contents.items()]
        tree = tree_hash((name, kind, digest) for name, kind, digest, _ in rows)
        self.rig.call("store_missing", json.dumps(rows).encode(), tree=tree, hashes=[])
        for raw in contents.values():
            self.rig.call("store_put", raw, hash=hashlib.sha256(raw).hexdigest())
        return Source(tree, len(rows), sum(map(len, contents.values())))

    def ended(self, job: str) -> JobReport:
        return self.rig.ended(job, BUILT_S)

    def said(self, job: str) -> str:
        return self.rig.log(job, "setup").decode()

    def succeeds(self, **fields: Any) -> str:
        """What the setup of a next job says, which ends well."""
        job = self.start(**fields)
        report = self.ended(job)
        assert status_of(report).status is Status.SUCCEEDED, self.said(job)
        assert self.rig.log(job).decode() == "here\n"
        return self.said(job)

    def fails(self, reason: str = "setup_failed", **fields: Any) -> str:
        """The last line of a setup that fails, as the status says too."""
        job = self.start(**fields)
        standing = status_of(self.ended(job))
        assert (standing.status, standing.reason, standing.step) == (Status.FAILED, reason, "setup"), self.said(job)
        assert not (self.path / "complete").exists()
        return self.said(job).splitlines()[-1]

    def paused(self, place: str, **fields: Any) -> tuple[str, int]:
        """A job whose setup stands still at `place`, and the pid of that setup."""
        job = self.start(f"{place}:pause", **fields)
        pid = self.rig.running(job, "setup")
        until(lambda: state_of(pid) == "T", BUILT_S)
        return job, pid
