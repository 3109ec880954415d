"""A saved plan against the world of now: every fact that it was made on must still hold. It plans nothing anew."""

from __future__ import annotations

from aicrun.errors import PlanStale, Way
from aicrun.plan.model import Fleet, Plan, Wanted
from aicrun.plan.saved import Moved, moved


class Stale(PlanStale):
    """A saved plan whose world moved; `moved` has each fact with its value then and now, in the plan's order."""

    def __init__(self, path: str, spec_file: str, facts: tuple[Moved, ...]) -> None:
        first = facts[0]
        super().__init__(
            "AIC-E602",
            f"{path} is stale: {first.what} moved",
            ways=(
                Way("review and apply that", f"aicrun plan {spec_file or 'run.yaml'} -o {path}"),
                Way("see the old one", f"aicrun show {path}"),
            ),
        )
        self.path = path
        self.moved = facts


def check_moved(saved: Plan, now: Fleet, wanted: tuple[Wanted, ...], path: str) -> None:
    """Return when nothing moved; raises `Stale` otherwise."""
    facts = moved(saved, now, wanted)
    if facts:
        raise Stale(path, saved.runs[0].spec.file if saved.runs else "", facts)
