"""The word in time: logs that the sweep takes within two days, and what keeps them. It must not decide what goes."""

from __future__ import annotations

from collections.abc import Iterable

from aicrun import api
from aicrun.cli.screen import styled
from aicrun.plan.words import counted, duration, harmless

SOON_S = 2 * 86400
_SHOWN = 3


def sweep_lines(jobs: Iterable[api.Found]) -> list[str]:
    """Two lines for each of the few whose logs go first, the soonest first; a count of the rest."""
    due = [(left, found) for found in jobs if (left := found.logs_go_in_s) is not None and left <= SOON_S]
    due.sort(key=lambda item: item[0])
    shown = [line for left, found in due[:_SHOWN] for line in _lines(left, found)]
    more = len(due) - _SHOWN
    return [*shown, f"Logs of {counted(more, 'more run')} go within 2 days."] if more > 0 else shown


def goes_when(left_s: float) -> str:
    """`in 1d`, or that the next call may take them."""
    return "with the next sweep" if left_s <= 0 else f"in {duration(left_s).split(' ')[0]}"


def keeping(found: api.Found) -> str:
    """What copies the whole log of a job's newest step; by its id, for a name means the run's newest job."""
    return f"aicrun logs {found.report.job_id[:8]} --offset 0 > {harmless(found.report.run)}.log"


def _lines(left_s: float, found: api.Found) -> tuple[str, str]:
    head = f"Logs of {harmless(found.report.run)} go {goes_when(left_s)}; its record stays. This keeps them:"
    return head, f"  {styled('bold', keeping(found))}"
