"""How a keeper was started, as its host recorded it. It must not decide anything."""

from aicrun.wire import lean


@lean.dataclass(frozen=True)
class Launched:
    """How a job's keeper was started: the mode (A-D, as in `facts.Survival`), its promise, why it is no better one.

    `unit` is the systemd unit that it runs in, empty for modes C and D.
    """

    mode: str
    promise: str = ""
    outlives_logout: str = "unknown"
    why: str = ""
    warning: str = ""
    unit: str = ""
