"""What a plan says before the start about what the run will survive: the host's own words, made harmless.

It must not judge: which mode a host has and what that promises is found out there.
"""

from __future__ import annotations

from aicrun.plan import words
from aicrun.plan.draft import Site
from aicrun.wire.facts import HostReading

_MOST = 200


def survival_rows(reading: HostReading) -> tuple[tuple[str, str], ...]:
    """One row with the promise; none for a host that promised nothing."""
    promise = _said(reading.survival.promise)
    return (("survival", promise),) if promise else ()


def survival_warnings(site: Site) -> tuple[str, ...]:
    """What ends the run against expectation on this machine, with the command that would change it."""
    survival = site.reading.survival
    if not survival.warning:
        return ()
    better = _said(survival.better)
    way = f"; there, `{better}` would change it" if better else ""
    return (f"{site.machine.name}: {_said(survival.warning)}{way}",)


def _said(text: str) -> str:
    return words.cut(words.harmless(text), _MOST)
