"""The records that only a host keeps: who keeps a job, what was changed or marked, what a stop left. No deeds here."""

from typing import Any, Optional, Tuple

from aicrun.wire import lean
from aicrun.wire.facts import BootIdentity
from aicrun.wire.jobs import Limits, Retry, Upload
from aicrun.wire.launched import Launched
from aicrun.wire.names import SCHEMA


@lean.dataclass(frozen=True)
class Launch:
    """Who keeps a job now, durable before it does anything: its process, its agent, and what it could get.

    `role` is `keeper` or `again` (a keeper that only uploads again); `mode` is A to D as `launched` tells it in full;
    `token` is of the start it came from.
    """

    role: str
    pid: int
    ticks: int
    boot: BootIdentity
    agent: str
    python: str
    mode: str
    subreaper: bool
    pidfd: bool
    at: float
    schema: int = SCHEMA
    token: str = ""
    launched: Optional[Launched] = None


@lean.dataclass(frozen=True)
class Supervision:
    """Fields of a spec that were changed while the job lived: the words as written and what they mean.

    `retry` None: by an older client, the rule of the request stays.
    """

    supervision: Any
    limits: Limits
    by: str
    at: float
    schema: int = SCHEMA
    retry: Optional[Retry] = None


@lean.dataclass(frozen=True)
class Retarget:
    """Where the checkpoints of an ended job go instead of to the target of its spec."""

    upload: Upload
    by: str
    at: float
    schema: int = SCHEMA


@lean.dataclass(frozen=True)
class Pause:
    """The pause before attempt number `attempt` of `most`, after `cause`; `began_s` is boot-time seconds.

    It is open until a step of that attempt is on record.
    """

    attempt: int
    most: int
    cause: str
    pause_s: float
    began_s: float
    schema: int = SCHEMA


@lean.dataclass(frozen=True)
class StuckProcess:
    """A process that SIGKILL did not end, by identity."""

    pid: int
    ticks: int


@lean.dataclass(frozen=True)
class Stuck:
    """Processes that a stop could not end; those that still live are a job's `leftover_pids`."""

    processes: Tuple[StuckProcess, ...]
    boot: BootIdentity
    at: float
    schema: int = SCHEMA


@lean.dataclass(frozen=True)
class Mark:
    """A person's word about a job (`forgotten`), write-once."""

    by: str
    at: float
    schema: int = SCHEMA
