"""The values that a checked run.yaml and machines.yaml become. Plain frozen data; it must not read or check anything.

Sizes are whole MiB (2**20 bytes) or bytes as the name says, durations whole seconds. Text that may still hold
placeholders (`${run.id}`) is marked so; everything else is final.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Bounds:
    """A closed range; an absent side does not bound. For versions each side is a tuple of numbers."""

    low: Any = None
    high: Any = None


@dataclass(frozen=True, slots=True)
class CardDemand:
    """What the spec asks of each card. `vram_mib` must be free on top of `headroom_mib` when the run starts."""

    vram_mib: int
    headroom_mib: int
    count: int = 1
    models: tuple[str, ...] = ()
    total_vram_mib: Bounds | None = None
    uuid: str = ""
    index: int | None = None
    max_utilization_percent: int = 10
    foreign_allowed: bool = False
    compute_capability: Bounds | None = None
    driver: Bounds | None = None
    cuda: Bounds | None = None
    same_model: bool = True


@dataclass(frozen=True, slots=True)
class DiskDemand:
    """Free bytes wanted on the volume of `path` (may hold placeholders)."""

    path: str
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Selector:
    """Where the run may go: empty `names` and `labels` admit every machine."""

    names: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    gpu: CardDemand | None = None
    cpus: int | None = None
    memory_mib: int | None = None
    disk: DiskDemand | None = None


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """Code the run needs: `path` is absolute on this client, `include`/`exclude` are gitignore-style patterns.

    Or `git` is the address of a repository that the host fetches, at `revision` (empty: its default branch); then
    `path` is empty.
    """

    path: str
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    git: str = ""
    revision: str = ""


@dataclass(frozen=True, slots=True)
class SetupSpec:
    """How the environment is made; `requirements` and `lock` are files relative to the source (or the spec's folder).

    `venv` and `wheels` are folders on the machine and may hold its placeholders. `index` are addresses in the order
    they are asked, each with `NAME=` before it or none.
    `preflight` is `cuda`, `rocm`, `none` or a command; empty where the spec says nothing.
    """

    python: str = ""
    packages: tuple[str, ...] = ()
    requirements: str = ""
    torch_backend: str = "none"
    run: tuple[str, ...] = ()
    timeout_s: int = 1800
    preflight: str = ""
    lock: str = ""
    project: bool = False
    venv: str = ""
    wheels: str = ""
    index: tuple[str, ...] = ()


# What a `retry` without `when` tries again: every ending that somebody saw, and a reboot. `unknown` only if named.
RETRY_WHEN = ("exit", "signal", "oom_kill", "timeout", "reboot")
RETRY_BACKOFF = "1m..15m"


@dataclass(frozen=True, slots=True)
class UploadSpec:
    """The checkpoint target; `to` may hold placeholders; `tool` is what carries it (`copy`, `aws`, …).

    `endpoint` and `profile` are those of an S3 server. `every_s` belongs to a `when` that begins with `every`. Without
    `probe` nothing is tried there before the command.
    """

    to: str
    scheme: str
    tool: str
    layout: str = "run"
    when: str = "success"
    required: bool = True
    endpoint: str = ""
    profile: str = ""
    every_s: int = 0
    probe: bool = True


@dataclass(frozen=True, slots=True)
class CheckpointSpec:
    """Where the command writes checkpoints (empty: `$AICRUN_CHECKPOINT_DIR` alone) and where they go.

    `keep` above 0: so many of the newest stay on the machine when what is verified uploaded is pruned.
    """

    path: str = ""
    upload: UploadSpec | None = None
    keep: int = 0


@dataclass(frozen=True, slots=True)
class LimitsSpec:
    """Limits of one attempt's command."""

    max_duration_s: int | None = None
    grace_s: int = 30
    stall_s: int | None = None


@dataclass(frozen=True, slots=True)
class RetrySpec:
    """Further attempts: at most `most`, when one ends in a way of `when`; the pause doubles between its bounds."""

    most: int
    when: tuple[str, ...]
    backoff_s: int
    backoff_most_s: int


@dataclass(frozen=True, slots=True)
class ProgressSpec:
    """One value read from the log: `goal` is `min`, `max` or empty."""

    name: str
    pattern: str
    goal: str = ""


# A data set of terabytes on a slow line takes hours; a fetch that stands still is ended by its tool long before.
FETCH_TIMEOUT_S = 6 * 3600


@dataclass(frozen=True, slots=True)
class InputFrom:
    """An input that is brought to the machine: from `address`, as written.

    `scheme` is `s3`, `rclone` or `hf`, fetched by the machine with `tool` (which `endpoint`, `profile` and `revision`
    are for) within `timeout_s`; or `local`, a file or folder of this client, whose absolute path is `path`.
    """

    address: str
    scheme: str
    tool: str = ""
    endpoint: str = ""
    profile: str = ""
    revision: str = ""
    timeout_s: int = FETCH_TIMEOUT_S
    path: str = ""


@dataclass(frozen=True, slots=True)
class ResumeSpec:
    """How a run finds its start: `path` below the checkpoint folder, empty for the newest that is whole.

    `complete_when` is a file that a whole one has, `args` are added to an argv command (may hold placeholders).
    """

    path: str = ""
    complete_when: str = ""
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunSpec:
    """A checked run.yaml, placeholders of `params` and `run.name` filled in, others left for the plan.

    `execution`, `supervision` and `selector` are the three classes of fields of design section 5, as written
    (unset keys absent, source text of scalars): the digest and every printed difference come from them.
    `inputs` are paths on the machine by name (may hold placeholders), `brought` what is brought there, by name.
    `overrides` are the `--set` arguments that shaped it, in order; `said` are the other options it was asked for with,
    each with its value, so that a command to type next says them again. `command` is one text for the shell, or argv
    when `is_argv`.
    """

    name: str
    file: str
    folder: str
    command: tuple[str, ...]
    execution: Mapping[str, Any]
    supervision: Mapping[str, Any]
    selector: Mapping[str, Any]
    is_argv: bool = False
    shell: str = "bash"
    description: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    machine: Selector = field(default_factory=Selector)
    workspace: str = ""
    cwd: str = ""
    source: SourceSpec | None = None
    setup: SetupSpec | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    limits: LimitsSpec = field(default_factory=LimitsSpec)
    queue_wait_s: int = 86400
    queue_priority: int = 0
    checkpoints: CheckpointSpec = field(default_factory=CheckpointSpec)
    progress: tuple[ProgressSpec, ...] = ()
    notes: str = ""
    overrides: tuple[str, ...] = ()
    retry: RetrySpec | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    brought: Mapping[str, InputFrom] = field(default_factory=dict)
    resume: ResumeSpec | None = None
    said: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class LocalReach:
    """The machine the client itself runs on."""


@dataclass(frozen=True, slots=True)
class SshReach:
    """A machine behind ssh: an alias of the user's configuration or `user@host:port`, as written."""

    target: str


@dataclass(frozen=True, slots=True)
class Reached:
    """Where an ssh entry led: user, host and port as ssh resolves them, and who carries (`why`: it and no other).

    `host_keys` are of the form `ED25519 SHA256:…`: the one that the machine showed or, where the carrier does not tell,
    those that were accepted for it, of which it showed one; empty when neither is known.
    """

    user: str
    host: str
    port: int
    carrier: str
    why: str = ""
    host_keys: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """`user@host` as a person reads it, with the port where it is not 22."""
        user = f"{self.user}@" if self.user else ""
        host = f"[{self.host}]" if ":" in self.host and self.port != 22 else self.host
        return f"{user}{host}" + (f":{self.port}" if self.port != 22 else "")


@dataclass(frozen=True, slots=True)
class SlurmReach:
    """A cluster whose login node is reached by `over`."""

    over: SshReach | LocalReach
    partition: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """One entry of the inventory. `data` empty: none was given; `keep_free` are numbers and UUIDs, as written."""

    name: str
    reach: LocalReach | SshReach | SlurmReach
    labels: Mapping[str, str] = field(default_factory=dict)
    data: str = ""
    keep_free: tuple[int | str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    max_jobs: int = 32
    down: bool = False
    sleeps: bool = False
    line: int = 0
    shared_memory: bool = False


@dataclass(frozen=True, slots=True)
class Inventory:
    """All machines in the order of the file; `file` is empty when there is none and this machine stands alone."""

    machines: tuple[Machine, ...]
    file: str = ""
    digest: str = ""
