"""The agent as a backend: every question of `backend.py` as one call on an `AgentLink`.

It must not decide anything and never repeats a call. Following a log has a connection of its own, so that it holds
nobody up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from typing import IO, Any, TypeVar

from aicrun.errors import AgentBroken
from aicrun.hosts import agent_logs
from aicrun.hosts.agent_files import AgentFiles
from aicrun.hosts.agent_link import DEADLINE_S, AgentLink
from aicrun.hosts.agent_store import lacking, send
from aicrun.hosts.backend import (
    Content,
    Drained,
    GitQuestion,
    LogSlice,
    Question,
    RemoteFiles,
    Reserved,
    Said,
    Sending,
    ShortCommand,
    SmallFile,
)
from aicrun.hosts.bundle import Bundle, build
from aicrun.hosts.transport import Transport
from aicrun.spec.model import Reached
from aicrun.wire.checkpoint import Checkpointed, Removed
from aicrun.wire.codec import WireError, from_json, to_json
from aicrun.wire.facts import Drain, GitSource, HostReading
from aicrun.wire.jobs import JobReport, JobRequest, Upload

T = TypeVar("T")

# A driver that hangs is asked three times over: by the login, by a run's launcher, by a bare environment.
DOCTOR_DEADLINE_S = 120.0
# A clock that differs by more is a note.
SKEW_S = 60.0


class AgentBackend:
    """The agent of one machine, reached by `transport`; connects at the first call."""

    def __init__(self, transport: Transport, bundle: Bundle | None = None) -> None:
        self.machine = transport.name
        self._transport = transport
        self._bundle = bundle or build()
        self._link = AgentLink(transport, self._bundle)

    def reached(self) -> Reached | None:
        """Where the way to it led."""
        return self._transport.reached()

    def survey(self, question: Question) -> HostReading:
        """Everything about the host that the question asks."""
        return self._record(HostReading, self._call("survey", question=to_json(question)).get("reading"))

    def git_source(self, asked: GitQuestion) -> GitSource:
        """What the host finds a revision of a repository to be."""
        answer, _ = self._link.call("git_source", to_json(asked), deadline_s=asked.timeout_s + DEADLINE_S)
        return self._record(GitSource, answer.get("source"))

    def missing(self, tree: str, manifest: bytes, hashes: tuple[str, ...]) -> tuple[str, ...]:
        """Which of `hashes` the host's store lacks; keeps `manifest` as the tree's listing."""
        return self._texts(lacking(self._link, tree, manifest, hashes))

    def put(self, contents: Sequence[Content]) -> None:
        """Send files to the store, several ahead of their answers; many bytes on a connection of their own."""
        send(self._link, lambda: AgentLink(self._transport.bulk(), self._bundle), contents)

    def reserve(
        self, request: JobRequest, confirm: bool, secrets: Mapping[str, Any] | None = None, diff: bytes = b""
    ) -> Reserved:
        """Make the job's record and its keeper; never sent twice by itself."""
        more = {"secrets": dict(secrets)} if secrets else {}
        answer = self._call("reserve", diff, request=to_json(request), confirm=confirm, **more)
        report = answer.get("report")
        found = None if report is None else self._record(JobReport, report)
        return Reserved(str(answer.get("answer")), found, str(answer.get("reason") or ""))

    def look(self, run: str) -> tuple[tuple[JobReport, ...], tuple[str, ...]]:
        """All records of the run that are not `no`, and the names of records that cannot be read."""
        answer = self._call("look", run=run)
        return self._reports(answer), self._texts(answer.get("unreadable"))

    def confirm(self, job_id: str) -> tuple[str, str]:
        """(decision that stands, its reason)."""
        return self._decision(self._call("confirm", job_id=job_id, by="client"))

    def withdraw(self, job_id: str, reason: str) -> tuple[str, str]:
        """(decision that stands, its reason); an unknown id leaves a tombstone."""
        return self._decision(self._call("withdraw", job_id=job_id, reason=reason, by="client"))

    def unqueue(self, job_id: str, by: str) -> tuple[str, str]:
        """(`no` when the job waits no more and will never start, `go` when it has started; the reason)."""
        return self._decision(self._call("unqueue", job_id=job_id, by=by))

    def touch(self, job_id: str) -> None:
        """Restart the gate timer of a reservation."""
        self._call("touch", job_id=job_id)

    def jobs(
        self, ids: tuple[str, ...] = (), *, statuses: tuple[str, ...] = (), limit: int = 20
    ) -> tuple[tuple[JobReport, ...], int]:
        """Reports newest first and how many more there are."""
        answer = self._call("jobs", ids=list(ids), statuses=list(statuses), limit=limit)
        return self._reports(answer), int(answer.get("omitted") or 0)

    def job(self, key: str) -> JobReport:
        """The newest job that `key` names."""
        return self._report(self._call("job", key=key))

    def environment(self, job_id: str) -> dict[str, str]:
        """What the job's command found in its environment; empty when it never started."""
        return {str(name): str(value) for name, value in self._call("environment", job_id=job_id)["env"].items()}

    def listed(self, tree: str) -> bytes | None:
        """The listing of a tree in the store; None where it is there no more."""
        answer, listing = self._link.call("store_tree", {"tree": tree})
        return listing if answer.get("known") else None

    def source_diff(self, job_id: str) -> bytes | None:
        """What the source differs in from its commit; None where nothing was kept."""
        answer, text = self._link.call("source_diff", {"job_id": job_id})
        return text if answer.get("kept") else None

    def wait(self, job_id: str, known: str, timeout_s: float) -> JobReport:
        """The report when its status differs from `known`, or after `timeout_s`."""
        body = {"job_id": job_id, "known": known, "timeout_s": timeout_s}
        answer, _ = self._link.call("wait", body, deadline_s=timeout_s + DEADLINE_S)
        return self._report(answer)

    def log(
        self, job_id: str, step: str, offset: int | None, limit: int, tail_lines: int, attempt: int = 0
    ) -> LogSlice:
        """A slice of a step's log."""
        return agent_logs.one(self._link, agent_logs.asked(job_id, step, offset, limit, tail_lines, attempt))

    def follow(self, job_id: str, step: str, offset: int, attempt: int = 0) -> Iterator[LogSlice]:
        """Slices as they grow, on a connection of its own, until the step has ended and all was read."""
        with closing(AgentLink(self._transport, self._bundle)) as link:
            yield from agent_logs.followed(link, job_id, step, offset, attempt)

    def checkpoints(self, job_id: str) -> Checkpointed:
        """The checkpoints of a job's run."""
        return self._record(Checkpointed, self._call("checkpoints", job_id=job_id).get("checkpointed"))

    def stop(self, job_id: str, by: str, grace_s: int | None) -> JobReport:
        """Ask a job to end; the intent is recorded when this returns."""
        return self._report(self._call("stop", job_id=job_id, by=by, grace_s=grace_s))

    def supervise(
        self,
        job_id: str,
        supervision: dict[str, Any],
        limits: dict[str, Any],
        by: str,
        retry: dict[str, Any] | None = None,
    ) -> JobReport:
        """Change supervision fields in place; without `retry` that rule stays."""
        rule = {} if retry is None else {"retry": retry}
        answer = self._call("supervise", job_id=job_id, supervision=supervision, limits=limits, by=by, **rule)
        return self._report(answer)

    def upload(
        self,
        job_id: str,
        by: str,
        secrets: Mapping[str, Any] | None = None,
        checkpoint: str = "",
        goal: Upload | None = None,
    ) -> JobReport:
        """Upload the checkpoints of an ended job again, or just one of them; to `goal` where there is one."""
        more: dict[str, Any] = {"secrets": dict(secrets)} if secrets else {}
        more.update({"checkpoint": checkpoint} if checkpoint else {})
        more.update({"upload": to_json(goal)} if goal is not None else {})
        return self._report(self._call("upload", job_id=job_id, by=by, **more))

    def delete(self, job_id: str, by: str) -> JobReport:
        """Remove the records and logs of a terminal job."""
        return self._report(self._call("delete", job_id=job_id, by=by))

    def delete_checkpoints(self, job_id: str, by: str, names: tuple[str, ...] | None = None) -> Removed:
        """Remove the checkpoints of a terminal job, or tell what would go."""
        wanted = {"dry": names is None, "names": list(names or ())}
        return self._record(Removed, self._call("delete_checkpoints", job_id=job_id, by=by, **wanted).get("removed"))

    def forget(self, job_id: str, by: str) -> JobReport:
        """Make an `unknown` job not count any more."""
        return self._report(self._call("forget", job_id=job_id, by=by))

    def notes(self) -> str:
        """The host's notes as text, untrusted."""
        return self._link.call("notes", {})[1].decode("utf-8", "replace")

    def add_note(self, text: str, by: str) -> None:
        """Append one line by a person."""
        self._call("note", text=text, by=by)

    def doctor(self, data: str, keep: tuple[str, ...] = ()) -> tuple[dict[str, str], ...]:
        """Findings about the way to the host, where it is a way, and about the host."""
        asked_at = time.time()
        answer, _ = self._link.call("doctor", {"data": data, "keep": list(keep)}, deadline_s=DOCTOR_DEADLINE_S)
        found = tuple(
            {str(key): str(value) for key, value in row.items()} for row in self._rows(answer.get("findings"))
        )
        carrier = self._transport.carrier
        if not carrier:
            return found
        found = (*_clock(answer.get("at"), asked_at, time.time()), *found)
        began = time.monotonic()
        self.missing("", b"", ())
        text = f"{carrier}, {(time.monotonic() - began) * 1000:.0f} ms warm"
        reached = self._transport.reached(sure=True)
        keys = " or ".join(reached.host_keys) if reached is not None else ""
        rows = [("ssh", text), *([("host key", keys)] if keys else [])]
        return (*({"word": "ok", "topic": topic, "text": text, "help": ""} for topic, text in rows), *found)

    def gc(self, dry_run: bool, older_than_s: int) -> tuple[dict[str, Any], ...]:
        """What the sweep removes, or would."""
        return tuple(self._rows(self._call("gc", dry_run=dry_run, older_than_s=older_than_s).get("rows")))

    def drain(self, on: bool, why: str, by: str) -> Drained:
        """Start no new run there any more, or again."""
        answer = self._call("drain", on=on, why=why, by=by)
        mark = answer.get("drain")
        found = None if mark is None else self._record(Drain, mark)
        return Drained(found, int(answer.get("going") or 0), int(answer.get("waiting") or 0))

    def attended(self, job_id: str, secrets: bool, ports: tuple[int, ...]) -> tuple[str, ...]:
        """The local command that is a shell where the job works."""
        argv = self._texts(self._call("environment", job_id=job_id).get("shell"))
        if secrets:
            argv = tuple("shell+secrets" if word == "shell" else word for word in argv)
        return self._transport.attended(argv, ports)

    def files(self, path: str) -> RemoteFiles:
        """The regular files at a path of the host."""
        return self._files.files(path)

    def read_file(self, path: str, offset: int, size: int) -> Iterator[bytes]:
        """Bytes of a file, piece by piece."""
        return self._files.read(path, offset, size)

    def hash_file(self, path: str) -> tuple[str, int]:
        """(SHA-256, bytes) of a file of the host."""
        return self._files.hash(path)

    def write_small(self, files: tuple[SmallFile, ...], replace: bool) -> int:
        """Put small files in place together."""
        return self._files.write_small(files, replace)

    def write_file(self, sending: Sending, source: IO[bytes], tell: Callable[[int], None]) -> tuple[str, bool]:
        """Put one file in place, whole or not at all."""
        return self._files.write(sending, source, tell)

    @cached_property
    def _files(self) -> AgentFiles:
        return AgentFiles(AgentLink(self._transport.bulk(), self._bundle), self._link)

    def execute(self, wanted: ShortCommand) -> Iterator[Said]:
        """Run a short command on a connection of its own; what ends that connection ends the command.

        The first slice says nothing but that it was sent: from there on a lost connection tells nothing of its end.
        """
        link = AgentLink(self._transport, self._bundle)
        body = {
            "argv": list(wanted.argv),
            "command": wanted.command,
            "shell": wanted.shell,
            "cwd": wanted.cwd,
            "env": dict(wanted.env),
            "path": list(wanted.path),
            "timeout_s": wanted.timeout_s,
        }
        try:
            link.open()
            yield Said(b"", b"")
            link.call("exec", body, wanted.stdin)
            while True:
                answer, data = link.call("exec_more", {"wait_s": agent_logs.FOLLOW_WAIT_S})
                found = self._said(answer, data)
                yield found
                if found.ended:
                    return
        finally:
            link.close()

    def _said(self, answer: Any, data: bytes) -> Said:
        try:
            cut = int(answer["out_bytes"])
            return Said(
                data[:cut],
                data[cut:],
                ended=bool(answer["ended"]),
                code=answer["code"],
                signal=answer["signal"],
                timed_out=bool(answer["timed_out"]),
                dropped_bytes=int(answer["dropped_bytes"]),
                duration_s=float(answer["duration_s"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise self._nonsense(f"a slice of output without {error}") from error

    def close(self) -> None:
        """End the connection; runs are not touched."""
        self._link.close()
        if "_files" in self.__dict__:
            self._files.close()
        self._transport.close()

    def _call(self, name: str, payload: bytes = b"", /, **body: Any) -> dict[str, Any]:
        answer, _ = self._link.call(name, body, payload)
        if not isinstance(answer, dict):
            raise self._nonsense(f"{name} answered no object")
        return answer

    def _report(self, answer: dict[str, Any]) -> JobReport:
        return self._record(JobReport, answer.get("report"))

    def _reports(self, answer: dict[str, Any]) -> tuple[JobReport, ...]:
        reports = answer.get("reports")
        if not isinstance(reports, list):
            raise self._nonsense("reports are no list")
        return tuple(self._record(JobReport, item) for item in reports)

    def _record(self, kind: type[T], data: Any) -> T:
        try:
            return from_json(kind, data)
        except WireError as error:
            raise self._nonsense(str(error)) from error

    def _decision(self, answer: dict[str, Any]) -> tuple[str, str]:
        decision = answer.get("decision")
        if decision not in ("go", "no", "undecided"):
            raise self._nonsense(f"the decision {decision!r}")
        return decision, str(answer.get("reason") or "")

    def _texts(self, items: Any) -> tuple[str, ...]:
        if not isinstance(items, list):
            raise self._nonsense("a list of texts is expected")
        return tuple(str(item) for item in items)

    def _rows(self, rows: Any) -> list[dict[str, Any]]:
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise self._nonsense("a list of rows is expected")
        return rows

    def _nonsense(self, what: str) -> AgentBroken:
        return AgentBroken("AIC-E512", f"the agent of {self.machine} cannot be understood: {what}")


def _clock(there: Any, before: float, after: float) -> tuple[dict[str, str], ...]:
    """A row on the clock over there beside ours while it was asked; no age is ever computed from both."""
    if not isinstance(there, (int, float)):
        return ()
    ahead_s = there - after if there > after else there - before if there < before else 0.0
    if abs(ahead_s) < SKEW_S:
        text = f"within {max(1.0, abs(ahead_s)):.0f}s of this client"
        return ({"word": "ok", "topic": "clock", "text": text, "help": ""},)
    text = f"{abs(ahead_s):.0f}s {'ahead of' if ahead_s > 0 else 'behind'} this client; ages are not affected"
    return ({"word": "note", "topic": "clock", "text": text, "help": "timedatectl"},)
