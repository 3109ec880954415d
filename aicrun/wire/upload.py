"""Where a run's checkpoints go and what came of it: parts of requests, records and reports. It must not know how."""

from typing import Any, Dict, Optional, Tuple

from aicrun.wire import lean
from aicrun.wire.names import SCHEMA

# The moments at which checkpoints are uploaded while the command still runs begin with these.
EACH, EVERY = "each", "every"
# Beside the command, not one of the steps that follow each other; it has a log like these.
EARLY_STEP = "early"


@lean.dataclass(frozen=True)
class Upload:
    """Where checkpoints go: `destination` is resolved, `tool` carries them, the rest as written.

    `every_s` is the least time between two uploads while the command runs, for a `when` that begins with `every`.
    Without `probe` nothing is tried there before the command.
    """

    to: str
    scheme: str
    destination: str
    layout: str = "run"
    when: str = "success"
    required: bool = True
    tool: str = ""
    endpoint: str = ""
    profile: str = ""
    every_s: int = 0
    probe: bool = True


@lean.dataclass(frozen=True)
class UploadResult:
    """What an upload achieved; `verified` only after the target was read back and every size and hash agreed.

    `manifest` is the SHA-256 of the manifest that lies there then.
    """

    destination: str
    verified: bool
    files: int = 0
    bytes: int = 0
    missing: Tuple[str, ...] = ()
    skipped: Tuple[str, ...] = ()
    error: str = ""
    at: float = 0.0
    schema: int = SCHEMA
    manifest: str = ""
    extra: Dict[str, Any] = lean.field(default_factory=dict)


@lean.dataclass(frozen=True)
class Early:
    """What was uploaded while the command ran: so many checkpoints are verified there, the `newest` of them by name.

    `pruned` of them were removed from the machine since. `trouble` is why uploads fail at this moment, since
    `trouble_age_s`; empty when they do not. The next try is in `again_s`.
    """

    verified: int = 0
    newest: str = ""
    newest_age_s: Optional[float] = None
    pruned: int = 0
    trouble: str = ""
    trouble_age_s: Optional[float] = None
    again_s: Optional[float] = None


def is_early(upload: Optional[Upload]) -> bool:
    """Whether checkpoints are uploaded while the command runs."""
    return upload is not None and upload.when.partition(":")[0] in (EACH, EVERY)
