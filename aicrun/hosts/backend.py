"""Backend: who runs a job on a machine. The agent is one; a cluster's scheduler will be another.

Implementations raise `HostUnreachable` when no answer came, `HostRefused` for a clear no, `AgentBroken` for nonsense.
A start is never retried blindly: it is asked for by job id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

from aicrun.spec.model import Reached
from aicrun.wire.checkpoint import Checkpointed, Removed
from aicrun.wire.facts import Drain, GitSource, HostReading
from aicrun.wire.jobs import JobReport, JobRequest, Upload


@dataclass(frozen=True, slots=True)
class Question:
    """What a survey wants to know, in one call.

    `runs`: names whose records and measured facts are wanted; `paths`: volumes to look at (may begin with `~`);
    `data`: the machine's data volume (may be empty), below which built environments are looked for.
    `programs`: first words of commands, each with the PATH that its job sets itself (empty: the usual one, which
    begins with `path`, the machine's own folders). `wheels`: folders of wheels, `inputs`: files and folders that a run
    reads (both may begin with `~`); `brought`: keys of inputs that may have been brought there before.
    """

    runs: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    data: str = ""
    cards: bool = True
    path: tuple[str, ...] = ()
    programs: tuple[tuple[str, str], ...] = ()
    wheels: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    brought: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Bytes of a log from `offset` on; `next_offset` is where to go on, `eof` that the end of now is reached.

    `dropped_bytes` were not recorded (cap or full disk); when the head's budget is used, bytes jump from the head
    to the kept tail and `gap_bytes` tells how many are missing before this slice.
    """

    data: bytes
    offset: int
    next_offset: int
    eof: bool
    dropped_bytes: int = 0
    gap_bytes: int = 0
    step: str = ""
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Reserved:
    """The answer to `reserve`: `ok`, `busy` (another record of this run stands) or `no` (with its reason)."""

    answer: str
    report: JobReport | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Drained:
    """The answer to `drain`: the mark that counts now (None: none), and jobs that go on or stand in line under it."""

    drain: Drain | None
    going: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class ShortCommand:
    """A command of a person: `argv`, or `command` as text for `shell`; `cwd` empty is the home there.

    `path` stands before the usual PATH; `timeout_s` is from 1 to 3600; `stdin` is all of its input.
    """

    argv: tuple[str, ...] = ()
    command: str = ""
    shell: str = "bash"
    cwd: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    timeout_s: int = 300
    stdin: bytes = b""


@dataclass(frozen=True, slots=True)
class Said:
    """A slice of a short command's output; once `ended`, exactly one of `code` and `signal` tells how.

    `dropped_bytes` were over the cap of 1 MiB so far; `timed_out`: its time was over and it was ended.
    """

    out: bytes
    err: bytes
    ended: bool = False
    code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    dropped_bytes: int = 0
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RemoteFiles:
    """What lies at a path over there: (relative path, bytes, mode bits) of each regular file, sorted.

    The path is "" for a file itself. `skipped` are links and devices. All of it is the host's text.
    """

    path: str
    is_folder: bool
    files: tuple[tuple[str, int, int], ...]
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sending:
    """A file on its way to a machine. `path` may be a folder there: then `name` is put behind it.

    `key` tells its content from others while it arrives: what was sent under the same key is not sent again.
    """

    path: str
    name: str
    bytes: int
    key: str
    mode: int = 0o644
    replace: bool = False
    make_folders: bool = False


@dataclass(frozen=True, slots=True)
class SmallFile:
    """A file that is sent together with others: its whole content, and its path there."""

    path: str
    content: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class GitQuestion:
    """A `revision` (empty: the default branch) of the repository `git`, and the texts of `files` in it.

    `path` are the machine's own folders of programs; the answer comes within `timeout_s`.
    """

    git: str
    revision: str = ""
    files: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    timeout_s: int = 60


@dataclass(frozen=True, slots=True)
class Content:
    """A file of this client on its way to a store: the SHA-256 that it had, where it lies, and its size then."""

    hash: str
    path: str
    bytes: int


class Backend(Protocol):
    """A place that runs jobs. All ids are 16 hex digits; every call is idempotent by job id."""

    machine: str

    def reached(self) -> Reached | None:
        """Where the way to it led, as far as that is known by now; None for this machine."""
        ...

    def survey(self, question: Question) -> HostReading:
        """Everything about the host that the question asks."""
        ...

    def git_source(self, asked: GitQuestion) -> GitSource:
        """What the host, with its own credentials, finds a revision of a repository to be."""
        ...

    def missing(self, tree: str, manifest: bytes, hashes: tuple[str, ...]) -> tuple[str, ...]:
        """Which of `hashes` (SHA-256 of contents) the host's store lacks; keeps `manifest` as the tree's listing."""
        ...

    def listed(self, tree: str) -> bytes | None:
        """The listing that was kept with `missing` for the tree; None where the host has it no more."""
        ...

    def put(self, contents: Sequence[Content]) -> None:
        """Send files to the store; verified there, safe to repeat: a large one goes on where it was cut off.

        Raises `PlanStale` (AIC-E650) for a file that is not what was hashed any more.
        """
        ...

    def reserve(
        self, request: JobRequest, confirm: bool, secrets: Mapping[str, Any] | None = None, diff: bytes = b""
    ) -> Reserved:
        """Make the job's record and its keeper; with `confirm` decide `go` in the same step (one-machine rule).

        `secrets` are {NAME: value} or {NAME: {value | file, for}}: there until the job's keeper ends, in no record.
        `diff` is what the source differs in from its commit, at most `DIFF_CAP_BYTES`.
        """
        ...

    def look(self, run: str) -> tuple[tuple[JobReport, ...], tuple[str, ...]]:
        """All records of the run that are not `no`, and the names of records that cannot be read."""
        ...

    def confirm(self, job_id: str) -> tuple[str, str]:
        """(decision that stands, its reason)."""
        ...

    def withdraw(self, job_id: str, reason: str) -> tuple[str, str]:
        """(decision that stands, its reason); an unknown id leaves a tombstone."""
        ...

    def unqueue(self, job_id: str, by: str) -> tuple[str, str]:
        """(`no` when the job waits no more and will never start, `go` when it has started; the reason)."""
        ...

    def touch(self, job_id: str) -> None:
        """Restart the gate timer of a reservation."""
        ...

    def jobs(
        self, ids: tuple[str, ...] = (), *, statuses: tuple[str, ...] = (), limit: int = 20
    ) -> tuple[tuple[JobReport, ...], int]:
        """Reports newest first and how many more there are; with `ids` exactly those that exist."""
        ...

    def job(self, key: str) -> JobReport:
        """The newest job of a run name, run id, job id, or four or more first digits of an id; `not_found` else."""
        ...

    def environment(self, job_id: str) -> dict[str, str]:
        """What the job's command found in its environment; empty when it never started."""
        ...

    def source_diff(self, job_id: str) -> bytes | None:
        """What the job's source differs in from its commit; None where that was not kept."""
        ...

    def wait(self, job_id: str, known: str, timeout_s: float) -> JobReport:
        """Long poll: returns when the job's status differs from `known` (a status value) or after `timeout_s`."""
        ...

    def log(
        self, job_id: str, step: str, offset: int | None, limit: int, tail_lines: int, attempt: int = 0
    ) -> LogSlice:
        """A slice of a step's log; `offset` None: the last `tail_lines` lines; `step` empty: the newest step."""
        ...

    def follow(self, job_id: str, step: str, offset: int, attempt: int = 0) -> Iterator[LogSlice]:
        """Slices as they grow, on a channel of its own, until the step has ended and all was read.

        One without data comes now and then while nothing grows, so that whoever follows may look around.
        `attempt` 0 is the newest that has the step, and stays so when another begins.
        """
        ...

    def stop(self, job_id: str, by: str, grace_s: int | None) -> JobReport:
        """Ask a job to end; returns at once with the intent recorded; a finished job is left as it is."""
        ...

    def supervise(
        self,
        job_id: str,
        supervision: dict[str, Any],
        limits: dict[str, Any],
        by: str,
        retry: dict[str, Any] | None = None,
    ) -> JobReport:
        """Change supervision fields in place, delivered to a live keeper; without `retry` that rule stays."""
        ...

    def upload(
        self,
        job_id: str,
        by: str,
        secrets: Mapping[str, Any] | None = None,
        checkpoint: str = "",
        goal: Upload | None = None,
    ) -> JobReport:
        """Upload the checkpoints of an ended job again, or just one; returns when it runs. `secrets` as for `reserve`.

        `goal` is another target, from now on the job's.
        """
        ...

    def delete(self, job_id: str, by: str) -> JobReport:
        """Remove the records and logs of a terminal job; never its checkpoints or workspace."""
        ...

    def delete_checkpoints(self, job_id: str, by: str, names: tuple[str, ...] | None = None) -> Removed:
        """Remove a terminal job's checkpoints, exactly those of `names`; without it only tell what would go."""
        ...

    def forget(self, job_id: str, by: str) -> JobReport:
        """A person says that an `unknown` job does not count any more."""
        ...

    def checkpoints(self, job_id: str) -> Checkpointed:
        """The checkpoints in the folder of a job's run, newest first; also while it runs."""
        ...

    def notes(self) -> str:
        """The whole notes file as text (at most 1 MiB of its end)."""
        ...

    def add_note(self, text: str, by: str) -> None:
        """Append one line by a person."""
        ...

    def doctor(self, data: str, keep: tuple[str, ...] = ()) -> tuple[dict[str, str], ...]:
        """Findings, each `{word: ok|note|bad|?, topic, text, help}`; `keep` are kept cards, by number or UUID."""
        ...

    def gc(self, dry_run: bool, older_than_s: int) -> tuple[dict[str, Any], ...]:
        """What the sweep removes (or would): rows of `{what, path, bytes, why}`."""
        ...

    def drain(self, on: bool, why: str, by: str) -> Drained:
        """Start no new run there any more, or again; `drained` when somebody else's mark stays."""
        ...

    def attended(self, job_id: str, secrets: bool, ports: tuple[int, ...]) -> tuple[str, ...]:
        """The local command that is a shell where the job works, for a terminal; `ports` of there answer here too."""
        ...

    def files(self, path: str) -> RemoteFiles:
        """The regular files at an absolute path, or one that begins with `~/`."""
        ...

    def read_file(self, path: str, offset: int, size: int) -> Iterator[bytes]:
        """The bytes from `offset` up to `size`, piece by piece, on a connection for many bytes."""
        ...

    def hash_file(self, path: str) -> tuple[str, int]:
        """(SHA-256, bytes) of a regular file as it is over there; of one that was just read whole it is known."""
        ...

    def write_small(self, files: tuple[SmallFile, ...], replace: bool) -> int:
        """Put files in place, each whole or not at all, folders with them; how many lay there already, exactly so.

        Raises `HostRefused` as `write_file`; those before the one that is refused may be in place.
        """
        ...

    def write_file(self, sending: Sending, source: IO[bytes], tell: Callable[[int], None]) -> tuple[str, bool]:
        """(its path there, whether it lay there already): what was sent of it before is not sent again.

        Raises `TransferFailed` (AIC-E645) when `source`, a file, changes meanwhile.

        `tell` hears how many bytes lie there.
        """
        ...

    def execute(self, wanted: ShortCommand) -> Iterator[Said]:
        """Run it on a connection of its own, slice by slice; leaving the iterator ends its whole tree there."""
        ...

    def close(self) -> None:
        """End the connection; runs are not touched."""
        ...
