"""What a host runs: the request a client sends, the records a host keeps, the report it gives.

It must not decide anything (see `status.py`). Records on disk carry `schema`; keys of newer versions are kept in
`extra`. Ages and durations are in seconds of the host's own clock; a client never subtracts its clock from them.
"""

from typing import Any, Dict, Optional, Tuple

from aicrun.wire import lean
from aicrun.wire.checkpoint import Resume
from aicrun.wire.fetch import Fetch as Fetch
from aicrun.wire.launched import Launched
from aicrun.wire.names import SCHEMA as SCHEMA
from aicrun.wire.room import Room
from aicrun.wire.seen import Checkpoints, Event, InLine
from aicrun.wire.source import Source as Source
from aicrun.wire.upload import Early
from aicrun.wire.upload import Upload as Upload
from aicrun.wire.upload import UploadResult as UploadResult

STEPS = ("setup", "preflight", "command", "upload")


@lean.dataclass(frozen=True)
class Client:
    """Who asks, for the audit trail: shown, never trusted."""

    user: str
    host: str
    version: str


@lean.dataclass(frozen=True)
class Setup:
    """How the environment is built; `key` is `hashes.env_key` over `reads`; empty key: no environment of ours.

    Without a key, `path` is an environment of the machine that is used as it is; empty: there is none.

    `python` is the absolute interpreter chosen from the survey; `requirements` is the file's text; `run` are extra
    commands in the job's own tree; `path` is the final folder of the environment. `lock` and `pyproject` are the texts
    that uv reads together, `requirements_name` the file that was named; `project` takes both from the job's tree and
    installs it too. `index` are addresses in the order they are asked; `wheels` is a folder of the host.
    """

    key: str = ""
    path: str = ""
    python: str = ""
    python_version: str = ""
    packages: Tuple[str, ...] = ()
    requirements: str = ""
    requirements_name: str = ""
    torch_backend: str = ""
    run: Tuple[str, ...] = ()
    timeout_s: int = 1800
    reads: Dict[str, Any] = lean.field(default_factory=dict)
    lock: str = ""
    pyproject: str = ""
    project: bool = False
    index: Tuple[str, ...] = ()
    wheels: str = ""


@lean.dataclass(frozen=True)
class Limits:
    """Limits of one attempt's command; None means the spec sets none."""

    grace_s: int = 30
    max_duration_s: Optional[int] = None
    stall_s: Optional[int] = None


@lean.dataclass(frozen=True)
class CardNeed:
    """What the command needs to find on each of its cards when it starts; the defaults ask for nothing.

    `vram_mib` must be free. `foreign_allowed`: somebody else's compute process is no hindrance. `busy_most_percent` is
    looked at only where a card's processes cannot be listed.
    """

    vram_mib: int = 0
    foreign_allowed: bool = False
    busy_most_percent: int = 100


@lean.dataclass(frozen=True)
class Retry:
    """Further attempts of a job: `most` of them, after an ending in `when`; none by default.

    `when` holds `exit`, `exit:N`, `signal`, `signal:NAME`, `oom_kill`, `timeout`, `reboot`, `unknown`. The pause
    before an attempt begins with `backoff_s` and doubles up to `backoff_most_s`.
    """

    most: int = 0
    when: Tuple[str, ...] = ()
    backoff_s: int = 60
    backoff_most_s: int = 900


@lean.dataclass(frozen=True)
class JobRequest:
    """One submission, complete: a keeper needs nothing else. Kept 0600, for `env` may hold what is private.

    `execution` and `supervision` are the spec's fields as written, for the digest and for showing differences.
    `command` has one item when it is text for the shell, else it is argv (`is_argv`). `env` is the job's own part;
    the base environment is added on the host. `workspace` and `checkpoints` are absolute folders of the host;
    `checkpoint_link` is a path in the working tree that becomes a link to `checkpoints` (empty: none). `cards` are
    UUIDs; for `queue_wait_s` the job waits in line for them (0: not at all); `priority` counts in its account only.
    `first_attempt` is above 1 when earlier jobs of the run were lost and this one goes on with their retries.
    `left_out` are machines that a person left out although they may hold another copy of the run.
    `preflight` is empty for none, `auto` (where torch is installed), `cuda`, `rocm`, or `run:` and a command.
    `inputs` are files and folders of the host by name, which the command reads and nobody changes; `fetches` are those
    of them that are brought there first. `room` is what the host looks for on its disks before it takes the job.
    `keep` above 0: so many of the newest checkpoints stay when those that are verified uploaded are pruned.
    `spec_file` is as typed, `spec_folder` the client's folder that holds it; `asked` are the options that made this run
    of that file, `--set` and its like: all three for the commands to type next, nothing is decided by them.
    """

    job_id: str
    run: str
    run_id: str
    rank: str
    digest: str
    client: Client
    execution: Dict[str, Any]
    workspace: str
    command: Tuple[str, ...]
    schema: int = SCHEMA
    named: Tuple[str, ...] = ()
    is_argv: bool = False
    shell: str = "bash"
    cwd: str = ""
    env: Dict[str, str] = lean.field(default_factory=dict)
    machine: str = ""
    spec_file: str = ""
    supervision: Dict[str, Any] = lean.field(default_factory=dict)
    source: Optional[Source] = None
    setup: Setup = Setup()
    checkpoints: str = ""
    checkpoint_link: str = ""
    upload: Optional[Upload] = None
    limits: Limits = Limits()
    cards: Tuple[str, ...] = ()
    card_indexes: Tuple[int, ...] = ()
    path: Tuple[str, ...] = ()
    progress: Dict[str, Any] = lean.field(default_factory=dict)
    notes: str = ""
    max_jobs: int = 32
    queue_wait_s: int = 86400
    priority: int = 0
    retry: Retry = Retry()
    first_attempt: int = 1
    card_need: CardNeed = CardNeed()
    left_out: Tuple[str, ...] = ()
    preflight: str = ""
    inputs: Dict[str, str] = lean.field(default_factory=dict)
    fetches: Tuple[Fetch, ...] = ()
    room: Tuple[Room, ...] = ()
    resume: Optional[Resume] = None
    keep: int = 0
    spec_folder: str = ""
    asked: Tuple[str, ...] = ()
    extra: Dict[str, Any] = lean.field(default_factory=dict)


@lean.dataclass(frozen=True)
class RunRecord:
    """The small record of a job under its run's name; it outlives the sweep and holds no command's environment."""

    job_id: str
    run: str
    run_id: str
    rank: str
    digest: str
    client: Client
    created_at: float
    schema: int = SCHEMA
    named: Tuple[str, ...] = ()
    execution: Dict[str, Any] = lean.field(default_factory=dict)
    supervision: Dict[str, Any] = lean.field(default_factory=dict)
    machine: str = ""
    spec_file: str = ""
    workspace: str = ""
    checkpoints: str = ""
    upload: Optional[Upload] = None
    source: Optional[Source] = None
    cards: Tuple[str, ...] = ()
    card_indexes: Tuple[int, ...] = ()
    boot_id: str = ""
    host_id: str = ""
    retry: Retry = Retry()
    first_attempt: int = 1
    spec_folder: str = ""
    asked: Tuple[str, ...] = ()
    extra: Dict[str, Any] = lean.field(default_factory=dict)


@lean.dataclass(frozen=True)
class Decision:
    """Write-once: `go` or `no`, put in place by `link()`; `reason` is a token for `no`, `by` the client or keeper."""

    decision: str
    reason: str = ""
    by: str = ""
    at: float = 0.0
    schema: int = SCHEMA
    extra: Dict[str, Any] = lean.field(default_factory=dict)


@lean.dataclass(frozen=True)
class StepStart:
    """Durable before the step's program may run; a process is (pid, start ticks) on one boot.

    `cgroup` is the folder of the control group that its tree is in, `cgroup_memory` the group that counts what was
    killed for memory; empty where there is none, then `cgroup_why` may tell why.
    """

    step: str
    attempt: int
    pid: int
    ticks: int
    session: int
    boot_id: str
    pid_namespace: str
    init_ticks: int
    started_at: float
    schema: int = SCHEMA
    cgroup: str = ""
    cgroup_memory: str = ""
    cgroup_why: str = ""
    extra: Dict[str, Any] = lean.field(default_factory=dict)


@lean.dataclass(frozen=True)
class StepExit:
    """How the kernel said a step ended: exactly one of `code` and `signal`, or neither and `spawn_error`.

    `stop_sent` and `timed_out` are True only when our signal was really sent to a live tree. `oom_kill` only on the
    kernel's own count; `oom_suspected`: some process was killed for memory, this one was not, or it cannot be told;
    `oom_shared`: perhaps one that is not of the run, for others are in the group that counts. `refused` is the token
    of what stood in the way of a `spawn_error`, where there is one.
    """

    step: str
    attempt: int
    duration_s: float
    ended_at: float
    code: Optional[int] = None
    signal: Optional[int] = None
    spawn_error: str = ""
    stop_sent: bool = False
    timed_out: bool = False
    oom_kill: bool = False
    schema: int = SCHEMA
    oom_suspected: bool = False
    oom_shared: bool = False
    refused: str = ""
    extra: Dict[str, Any] = lean.field(default_factory=dict)


@lean.dataclass(frozen=True)
class StopIntent:
    """Durable before any signal; `by` as user@host."""

    by: str
    grace_s: int
    at: float
    schema: int = SCHEMA
    extra: Dict[str, Any] = lean.field(default_factory=dict)


@lean.dataclass(frozen=True)
class NextAttempt:
    """The attempt that is due after one that ended by `cause`: number `attempt` of `most`, in `in_s` seconds.

    `cause` as in `Retry.when`, exact (`exit:75`, `signal:KILL`). `not_made` is empty, or why nobody makes it:
    `stopped`, `reboot`, `supervisor_lost`, `changed` (the rule), `card` (its cards could not be had).
    """

    attempt: int
    most: int
    cause: str
    in_s: float = 0.0
    not_made: str = ""


@lean.dataclass(frozen=True)
class End:
    """Write-once, after the last attempt: raw facts from which the status is computed for ever.

    `attempts` is the number of the newest attempt, `exits` are its steps' (with the setup, which is not repeated).
    `lost` is empty, or why nobody recorded the end (`reboot`, `supervisor_lost`, `record_lost`). `next_attempt` is
    one that was due and was not made. `reason` tells why a job never started, `detail` then says it in words.
    """

    attempts: int
    at: float
    exits: Tuple[StepExit, ...] = ()
    upload: Optional[UploadResult] = None
    stop: Optional[StopIntent] = None
    lost: str = ""
    detail: str = ""
    schema: int = SCHEMA
    next_attempt: Optional[NextAttempt] = None
    reason: str = ""
    extra: Dict[str, Any] = lean.field(default_factory=dict)


@lean.dataclass(frozen=True)
class StepReport:
    """A step of the newest attempt: `state` is `waiting`, `running`, `ended` or `lost`."""

    step: str
    state: str = "waiting"
    pid: int = 0
    age_s: Optional[float] = None
    exit: Optional[StepExit] = None
    log_bytes: int = 0
    log_dropped_bytes: int = 0


@lean.dataclass(frozen=True)
class JobReport:
    """Everything a host says about one job; the status is computed from it by `status.status_of`.

    `decision` is `undecided`, `go` or `no`; `phase` is where the job stands: `reserved`, `waiting`, one of `STEPS`,
    `between` (no step runs at this moment), `ended` or `never_started`. `supervised` False with a living tree: the
    exit code will not be known. `forgotten`: a person said that it does not count any more. `events` are filled for one
    job, oldest first, at most 200. `leftover_pids` are processes that a stop could not end. `line` is there for a job
    with cards; `card_allocated`: it has held them. `attempt` is the newest that began, of `attempts_most` that its
    rule allows, `first_attempt` the job's own first; `next_attempt` is due after it, or was. `launched`: its newest
    keeper's. `sample` is what was measured last of a running command, with its `age_s` and the `peaks`; what is not
    measured is absent. `stalled_s`: for how long neither log nor checkpoints grew, once that is `stall_limit_s`.
    """

    job_id: str
    run: str
    run_id: str
    digest: str
    client: Client
    age_s: float
    decision: str
    phase: str
    rank: str = ""
    decision_reason: str = ""
    supervised: bool = False
    attempt: int = 1
    steps: Tuple[StepReport, ...] = ()
    stop: Optional[StopIntent] = None
    stop_age_s: Optional[float] = None
    leftover_pids: Tuple[int, ...] = ()
    lost: str = ""
    lost_detail: str = ""
    ended_age_s: Optional[float] = None
    execution: Dict[str, Any] = lean.field(default_factory=dict)
    supervision: Dict[str, Any] = lean.field(default_factory=dict)
    source: Optional[Source] = None
    workspace: str = ""
    checkpoints: Optional[Checkpoints] = None
    upload_request: Optional[Upload] = None
    upload: Optional[UploadResult] = None
    cards: Tuple[str, ...] = ()
    card_indexes: Tuple[int, ...] = ()
    machine: str = ""
    spec_file: str = ""
    swept: bool = False
    progress: Dict[str, str] = lean.field(default_factory=dict)
    facts: Dict[str, Any] = lean.field(default_factory=dict)
    newer_schema: bool = False
    forgotten: bool = False
    events: Tuple[Event, ...] = ()
    line: Optional[InLine] = None
    card_allocated: bool = False
    attempts_most: int = 1
    next_attempt: Optional[NextAttempt] = None
    launched: Optional[Launched] = None
    sample: Dict[str, Any] = lean.field(default_factory=dict)
    first_attempt: int = 1
    stalled_s: Optional[float] = None
    stall_limit_s: Optional[int] = None
    early: Optional[Early] = None
    spec_folder: str = ""
    asked: Tuple[str, ...] = ()
    extra: Dict[str, Any] = lean.field(default_factory=dict)
