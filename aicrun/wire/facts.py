"""What a host is: the reading that one survey call returns. It must not measure anything.

A measured number that could not be read is absent, and the reason stands in `unreadable` under the field's name;
absence is never zero and never "free".
"""

from typing import Any, Dict, Optional, Tuple

from aicrun.wire import lean
from aicrun.wire.jobs import JobReport


@lean.dataclass(frozen=True)
class BootIdentity:
    """Tells whether a recorded process can still live: kernel boot, pid namespace, and start of its PID 1."""

    boot_id: str
    pid_namespace: str
    init_ticks: int


@lean.dataclass(frozen=True)
class CardProcess:
    """A process on a card; `kind` is `compute` or `graphics`; `user` and `name` are hostile text."""

    pid: int
    kind: str
    vram_mib: Optional[int] = None
    user: str = ""
    name: str = ""
    job_id: str = ""


@lean.dataclass(frozen=True)
class Holder:
    """Who holds a card by a live ticket; `run` and `account` are hostile text, `yours` is the host's own check."""

    run: str
    account: str
    job_id: str
    age_s: float
    yours: bool = False


@lean.dataclass(frozen=True)
class Card:
    """One card as the driver tells it; `index` is NVML order and for people, `uuid` is the identity.

    `state` is `ok` or a token (`lost`, `error`); `mig` is `on`, `off`, `unsupported` or `unknown`.
    `holder` and `waiting` (jobs in line for it) are told by live tickets.
    `processes_listed` False: nobody can say who is on the card, which is not the same as nobody. `utilization_percent`
    is the highest of `utilization_looks` (0: not told).
    """

    index: int
    uuid: str
    model: str
    state: str = "ok"
    vram_total_mib: Optional[int] = None
    vram_free_mib: Optional[int] = None
    vram_used_mib: Optional[int] = None
    vram_reserved_mib: Optional[int] = None
    utilization_percent: Optional[int] = None
    compute_capability: str = ""
    compute_mode: str = "default"
    pci_bus_id: str = ""
    mig: str = "unknown"
    display: bool = False
    temperature_c: Optional[int] = None
    power_w: Optional[int] = None
    processes_listed: bool = False
    processes: Tuple[CardProcess, ...] = ()
    holder: Optional[Holder] = None
    waiting: int = 0
    unreadable: Dict[str, str] = lean.field(default_factory=dict)
    utilization_looks: int = 0


@lean.dataclass(frozen=True)
class Cards:
    """The cards of a host: `state` is `devices`, `none` or `unknown`; `reason` is a token when not `devices`.

    `none` needs a clean answer (no driver, no device); everything else is `unknown`, which refuses a GPU run. `source`
    is who told: `nvml` or `nvidia-smi` (then `detail` says why not NVML), empty when nobody was asked or answered.
    """

    state: str
    reason: str = ""
    detail: str = ""
    driver: str = ""
    cuda: str = ""
    cards: Tuple[Card, ...] = ()
    source: str = ""


@lean.dataclass(frozen=True)
class Disk:
    """The volume that holds `path` (or its nearest existing parent); `filled`: it is a folder that holds something.

    `total_inodes` is 0 where the file system counts none; `free_inodes` says nothing then. `volume` is the same for
    all paths on one file system, empty where that cannot be told. `owner` and `owner_home` are there for an agent of
    root where the folder belongs to another account. `place` is the folder that was looked at, absolute: it is there;
    empty from an agent of before.
    """

    path: str
    free_bytes: int
    total_bytes: int
    free_inodes: int
    filesystem: str = ""
    writable: bool = True
    filled: bool = False
    total_inodes: int = 0
    volume: str = ""
    owner: str = ""
    owner_home: str = ""
    place: str = ""


@lean.dataclass(frozen=True)
class Python:
    """An interpreter of the host that an environment can be built from; `version` as `3.11.7`."""

    path: str
    version: str


@lean.dataclass(frozen=True)
class Survival:
    """How a run is kept alive: `mode` A-D of the supervision design, and the promise in words.

    `outlives_logout` is `yes`, `no` or `unknown`; `why` it is no better mode, `warning` what ends the run against the
    promise of its words, `better` the command that makes a better mode possible; each may be empty.
    """

    mode: str
    promise: str
    outlives_logout: str = "unknown"
    why: str = ""
    warning: str = ""
    better: str = ""


@lean.dataclass(frozen=True)
class Notes:
    """What a plan may show of the host's notes, untrusted: people first, then blocks; counts are of the whole file."""

    text: str = ""
    people_lines: int = 0
    blocks: int = 0
    total_lines: int = 0


@lean.dataclass(frozen=True)
class Drain:
    """Why no new run starts here: `account` drained it, for itself or, when `everybody`, for all accounts.

    `why` and `by` (user@host) are text of people, hostile.
    """

    account: str
    everybody: bool = False
    age_s: float = 0.0
    why: str = ""
    by: str = ""


@lean.dataclass(frozen=True)
class Program:
    """Whether `word` is a program for a job here: its `place`, empty when none is on the PATH that was `searched`.

    `path` is the PATH that was asked for (empty: the usual one of jobs); `envs` are keys of environments that have it.
    """

    word: str
    path: str = ""
    place: str = ""
    searched: str = ""
    envs: Tuple[str, ...] = ()


@lean.dataclass(frozen=True)
class WheelFolder:
    """A folder of wheels that was asked for: `listing` hashes the names and sizes in it; empty: there is none."""

    path: str
    listing: str = ""
    wheels: int = 0


@lean.dataclass(frozen=True)
class InputSeen:
    """A file or folder that a run reads, `path` as it was asked for; `why` it cannot, empty when this account can."""

    path: str
    why: str = ""


@lean.dataclass(frozen=True)
class InputReady:
    """An input that was brought to the host before and is whole: how much it is, since when, and its revision."""

    key: str
    files: int = 0
    bytes: int = 0
    age_s: float = 0.0
    revision: str = ""


@lean.dataclass(frozen=True)
class GitText:
    """The text of a file at `path` in a commit."""

    path: str
    text: str


@lean.dataclass(frozen=True)
class GitSource:
    """What a host says of a `revision` of the repository `git`: `word` is `ok`, `missing`, `unreachable` or `no_git`.

    `name` is the branch or tag that it is now, `detail` what git said; `texts` are the files that were asked for and
    are there. All of it is text of others.
    """

    git: str
    revision: str
    word: str
    commit: str = ""
    name: str = ""
    detail: str = ""
    texts: Tuple[GitText, ...] = ()


@lean.dataclass(frozen=True)
class HostReading:
    """Everything one survey call learned.

    `measured` holds facts of earlier jobs of the asked run names, newest first. `envs_ready` are the keys of complete
    environments below the data folder. `unreadable_records` names run records that are there and cannot be read:
    they may be the run, so they refuse a start. `drain` is there while no new run of this account starts here.
    `programs` answers for the first words of commands that were asked for, `wheels` for folders of wheels,
    `inputs` for files and folders to read, `inputs_ready` for what was brought here before. `git` are answers of
    `git_source`, which the client puts here: a survey asks no other place.
    """

    hostname: str
    host_id: str
    boot: BootIdentity
    account: str
    uid: int
    home: str
    shell: str
    system: str
    architecture: str
    libc: str
    python: str
    agent_digest: str
    cpus: int
    memory_mib: int
    cards: Cards
    state_root: str
    jobs_root: str
    survival: Survival
    cpus_free: Optional[float] = None
    memory_free_mib: Optional[int] = None
    data: str = ""
    active_jobs: int = 0
    container: bool = False
    disks: Tuple[Disk, ...] = ()
    pythons: Tuple[Python, ...] = ()
    uv: str = ""
    notes: Notes = Notes()
    jobs: Tuple[JobReport, ...] = ()
    unreadable_records: Tuple[str, ...] = ()
    measured: Tuple[Dict[str, Any], ...] = ()
    envs_ready: Tuple[str, ...] = ()
    took_s: float = 0.0
    drain: Optional[Drain] = None
    programs: Tuple[Program, ...] = ()
    wheels: Tuple[WheelFolder, ...] = ()
    inputs: Tuple[InputSeen, ...] = ()
    git: Tuple[GitSource, ...] = ()
    inputs_ready: Tuple[InputReady, ...] = ()
