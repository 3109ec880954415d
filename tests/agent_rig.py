"""A host for tests: the real agent, unpacked as on a host, with a home of its own, spoken to over real pipes.

Everything it starts carries one mark in its environment and is ended by `close`. It must not know how the agent works
inside: it speaks the wire and reads the files whose names are frozen.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support import REPOSITORY, end_processes_with, until

from aicrun.wire import calls, names
from aicrun.wire.codec import from_json, to_json
from aicrun.wire.jobs import Client, JobReport, JobRequest, Limits
from aicrun.wire.status import Standing, status_of


class Refusal(Exception):
    """The agent said no."""

    def __init__(self, refused: dict[str, Any]) -> None:
        super().__init__(f"{refused['token']}: {refused['message']}")
        self.token = refused["token"]
        self.message = refused["message"]
        self.facts = refused["facts"]


class Link:
    """One connection to the agent of a rig."""

    def __init__(self, rig: Rig, env: dict[str, str]) -> None:
        self.marker = secrets.token_hex(16)
        self.process = subprocess.Popen(
            rig.serving(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd="/",
        )
        hello = {"marker": self.marker, "protocol": [1, 1], "digest": ""}
        self.hello = self.call("hello", **hello)[0]

    def call(self, name: str, payload: bytes = b"", **body: Any) -> tuple[dict[str, Any], bytes]:
        """One call; raises `Refusal`."""
        assert self.process.stdin and self.process.stdout
        self.send(name, payload, **body)
        reply, data = calls.read_reply(self.process.stdout, self.marker)
        if "refused" in reply:
            raise Refusal(reply["refused"])
        return reply["answer"], data

    def send(self, name: str, payload: bytes = b"", **body: Any) -> None:
        """Ask, and do not wait for the answer."""
        assert self.process.stdin
        calls.write_request(self.process.stdin, name, body, payload)

    def close(self) -> int:
        """End the input and wait for the agent to leave."""
        assert self.process.stdin and self.process.stdout and self.process.stderr
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.stderr.close()
        return self.process.wait(timeout=30)


class Rig:
    """A host with an agent."""

    def __init__(self, folder: Path, python: str = "") -> None:
        self.python = python or os.environ.get("AICRUN_TEST_PYTHON", sys.executable)
        self.home = folder / "home"
        self.home.mkdir(mode=0o700)
        self.agent = folder / "agent"
        self.mark = f"AICRUN_TEST_MARK={secrets.token_hex(16)}"
        self.env = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "USER": "ana",
            "AICRUN_TEST_MARK": self.mark.partition("=")[2],
            # Nothing is asked of a systemd that this machine may have; `fake_systemd` has one of its own.
            "AICRUN_TEST_SYSTEMD": "0",
        }
        self._link: Link | None = None
        self._unpack()

    def serving(self, env: dict[str, str]) -> list[str]:
        """The words that start the agent; `env` is what it will find in its environment."""
        return [self.python, "-I", "-S", str(self.agent / "boot.py"), "serve"]

    def _unpack(self) -> None:
        package = self.agent / "aicrun"
        for room in ("agent", "wire"):
            shutil.copytree(REPOSITORY / "aicrun" / room, package / room, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(REPOSITORY / "aicrun/__init__.py", package)
        shutil.copy(package / "agent/boot.py", self.agent / "boot.py")
        (self.agent / "test-hooks").touch()

    @contextlib.contextmanager
    def link(self, **env: str) -> Iterator[Link]:
        """A connection, with more variables in the agent's environment."""
        link = Link(self, {**self.env, **env})
        try:
            yield link
        finally:
            link.close()

    def call(self, name: str, payload: bytes = b"", **body: Any) -> dict[str, Any]:
        """One call on the rig's own connection: the answer without its payload."""
        return self._own().call(name, payload, **body)[0]

    def ask(self, name: str, **body: Any) -> tuple[dict[str, Any], bytes]:
        """One call on the rig's own connection: the answer with its payload."""
        return self._own().call(name, **body)

    def _own(self) -> Link:
        if self._link is None:
            self._link = Link(self, self.env)
        return self._link

    @property
    def root(self) -> Path:
        """The state root."""
        state = self.home / ".local/state/aicrun"
        return next(path for path in state.iterdir() if path.is_dir())

    def request(self, run: str, command: str | tuple[str, ...], **fields: Any) -> JobRequest:
        """A request of a run whose text command goes through the shell."""
        given: dict[str, Any] = {
            "job_id": secrets.token_hex(8),
            "run": run,
            "run_id": secrets.token_hex(8),
            "rank": secrets.token_hex(8),
            "digest": "d" * 64,
            "client": Client("ana", "laptop", "0"),
            "execution": {"command": "x"},
            "workspace": str(self.home / "work" / run),
            "command": (command,) if isinstance(command, str) else command,
            "is_argv": not isinstance(command, str),
            "limits": Limits(grace_s=5),
        }
        return JobRequest(**{**given, **fields})

    def start(
        self,
        run: str,
        command: str | tuple[str, ...],
        env: dict[str, str] | None = None,
        secrets: dict[str, Any] | None = None,
        variables: dict[str, str] | None = None,
        **fields: Any,
    ) -> str:
        """Reserve and confirm in one: the job id. `env` goes to the agent's environment, `variables` to the job's."""
        request = self.request(run, command, env=variables or {}, **fields)
        body = {"request": to_json(request), "confirm": True, **({"secrets": secrets} if secrets else {})}
        if env is None:
            answer = self.call("reserve", **body)
        else:
            with self.link(**env) as link:
                answer, _ = link.call("reserve", **body)
        assert answer["answer"] == "ok", answer
        return request.job_id

    def report(self, key: str) -> JobReport:
        """The report of a job."""
        return from_json(JobReport, self.call("job", key=key)["report"])

    def standing(self, key: str) -> Standing:
        """The status of a job with all that belongs to it."""
        return status_of(self.report(key))

    def ended(self, key: str, at_most_s: float = 30) -> JobReport:
        """The report once the job's status is terminal."""

        def report() -> JobReport | None:
            found = self.report(key)
            return found if status_of(found).status.terminal else None

        found: JobReport = until(report, at_most_s, 0.05)
        return found

    def running(self, job_id: str, step: str = "command") -> int:
        """The pid of a step's program once it runs."""
        path = self.step(job_id, step) / names.STEP_START
        start = until(lambda: json.loads(path.read_text()) if path.exists() else None)
        return int(start["pid"])

    def keeper(self, job_id: str) -> int:
        """The pid of a job's keeper."""
        return int(json.loads((self.folder(job_id) / names.LAUNCH).read_text())["pid"])

    def pump(self, job_id: str, but: int) -> int:
        """The pid of the job's pump: the keeper's fork that has a log open, and is not the step's program `but`."""
        return self._child(job_id, b"keeper", but, "/" + names.LOG)

    def sampler(self, job_id: str) -> int:
        """The pid of the process that measures the job's command."""
        return self._child(job_id, b"sampler", 0)

    def _child(self, job_id: str, role: bytes, but: int, opened: str = "") -> int:
        keeper = self.keeper(job_id)

        def found() -> int:
            kin = (pid for pid in children(keeper) if pid != but and role in command_line(pid))
            return next((pid for pid in kin if any(opened in handle for handle in handles(pid))), 0)

        return int(until(found))

    def folder(self, job_id: str) -> Path:
        """The job folder."""
        return self.root / names.JOBS / job_id

    def record(self, run: str, job_id: str) -> Path:
        """The record folder."""
        return self.root / names.RUNS / run / job_id

    def step(self, job_id: str, step: str = "command") -> Path:
        """The folder of a step of the first attempt."""
        return self.folder(job_id) / names.ATTEMPTS / "1" / step

    def log(self, job_id: str, step: str = "command") -> bytes:
        """The whole log of a step, slice by slice."""
        parts, offset = [], 0
        while True:
            answer, data = self._own().call("log", job_id=job_id, step=step, offset=offset)
            parts.append(data)
            offset = answer["next_offset"]
            if answer["eof"]:
                return b"".join(parts)

    def close(self) -> None:
        """End everything that this rig has started."""
        if self._link is not None:
            self._link.close()
            self._link = None
        end_processes_with(self.mark)
        self._remove_groups()

    def groups(self, job_id: str) -> list[Path]:
        """The control groups of a job that are there, wherever it could make some."""
        return [Path(path) for path in glob.glob(f"/sys/fs/cgroup/**/aicrun-{job_id}-*", recursive=True)]

    def _remove_groups(self) -> None:
        """Those of killed keepers: the next sweep of this home would remove them, and there is none."""
        for path in self.home.glob(f".local/state/aicrun/*/{names.JOBS}/*"):
            for group in self.groups(path.name):
                with contextlib.suppress(OSError):
                    (group / "cgroup.kill").write_text("1")
                until(lambda at=group: not (at / "cgroup.procs").read_text())
                group.rmdir()


def children(pid: int) -> list[int]:
    """The living children of a process."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split() if lives(int(word))]


def command_line(pid: int) -> list[bytes]:
    """The words of a process's command line; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def handles(pid: int) -> list[str]:
    """What a process has open; nothing when it is gone."""
    found = []
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(os.readlink(entry))
    return found


def lives(pid: int) -> bool:
    """True for a process that is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def state_of(pid: int) -> str:
    """The kernel's letter for a process, "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
