"""What a host sees of a job beside its records: its checkpoints, its place in line, its history.

Parts of a report; they are kept in no record of their own but the place in line. It must not decide anything.
"""

from typing import Optional, Tuple

from aicrun.wire import lean


@lean.dataclass(frozen=True)
class Checkpoints:
    """What lies in the run's checkpoint folder: the newest entry by modification, and totals.

    For a run that resumes, where somebody plans or looks: `start` is what it would go on from, `skipped` why a newer
    one is not, `unreadable` why nobody knows.
    """

    path: str
    newest: str = ""
    newest_age_s: Optional[float] = None
    newest_bytes: int = 0
    count: int = 0
    bytes: int = 0
    start: str = ""
    start_age_s: Optional[float] = None
    skipped: str = ""
    unreadable: str = ""


@lean.dataclass(frozen=True)
class InLine:
    """How a job stands with its cards: `position` from 1 while it waits, 0 when it holds or held them.

    `why` is one line; the `holder_…` fields and `ahead` (a job id) are hostile text, empty when nobody's. `reason` is a
    token where it is not the cards that it waits for: `drained`.
    """

    cards: Tuple[str, ...]
    position: int = 0
    why: str = ""
    ahead: str = ""
    holder_run: str = ""
    holder_account: str = ""
    holder_job_id: str = ""
    holder_age_s: Optional[float] = None
    granted: bool = False
    folder: str = ""
    scope: str = ""
    reason: str = ""


@lean.dataclass(frozen=True)
class Event:
    """One line of a job's history; `event` is a token of `status.EVENTS`; `by` only for people's verbs."""

    event: str
    at: float
    age_s: float
    by: str = ""
    detail: str = ""
