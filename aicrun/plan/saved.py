"""A plan as a document, to be reviewed, kept and applied later verbatim; and what moved since it was made.

It must not read or write files. There is one representation: what a reviewer reads is what will be applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from aicrun.plan.bounds import bounds_of
from aicrun.plan.document import decoded, encoded
from aicrun.plan.known import known_of
from aicrun.plan.model import Fleet, Plan, RunPlan, Verdict, Wanted
from aicrun.plan.reconcile import admitted

SCHEMA_VERSION = 1
KIND = "plan"
# Of several refusals the first of these is the exit code of the whole call (design section 5).
EXITS = (4, 7, 6, 8, 5)
# What a plan was bound to before only the entries that matter to it were; its hash tells nothing of what changed.
_WHOLE_LIST = "machines.yaml"
_NOT_ASKED = ("down", "excepted")


@dataclass(frozen=True, slots=True)
class Moved:
    """One fact that a saved plan depends on and that is another now, in words."""

    what: str
    then: str
    now: str


def to_document(plan: Plan) -> dict[str, Any]:
    """The whole plan as plain JSON values, by `schemas/plan.schema.json`."""
    document: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "kind": KIND}
    exits = [item.refusal.exit for item in plan.runs if item.refusal is not None]
    document["exit"] = next((code for code in EXITS if code in exits), 0)
    document.update(encoded(plan))
    for shown, item in zip(document["runs"], plan.runs, strict=True):
        _tell(shown, item)
    return document


def from_document(document: Any) -> Plan:
    """The plan that `to_document` gave, equal in every field; raises `ValueError` for anything else."""
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise ValueError("it is no saved plan")
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ValueError(f"it has schema_version {version}, this aicrun reads {SCHEMA_VERSION}")
    return decoded(Plan, document)


def moved(saved: Plan, now: Fleet, wanted: tuple[Wanted, ...]) -> tuple[Moved, ...]:
    """Every fact of `saved` that is another in `now`, in the order of the plan; empty when it may be applied.

    `wanted` are the same runs in the same order, with their source as it is now.
    """
    facts = {bound.what: bound.value for bound in bounds_of(saved.runs, known_of(now), wanted)}
    then = {bound.what: bound.value for bound in saved.bounds if bound.what != _WHOLE_LIST}
    return (*_differences(then, facts), *_left(saved, now, wanted))


def _left(saved: Plan, now: Fleet, wanted: tuple[Wanted, ...]) -> Iterator[Moved]:
    """Machines that the plan looked at for a copy of its runs and that nobody would look at any more."""
    asked = {view.machine.name: view for view in now.machines if view.state not in _NOT_ASKED}
    for view in saved.fleet.machines:
        name = view.machine.name
        if view.state in _NOT_ASKED or name in asked:
            continue
        if any(admitted(wish, view) or name in wish.known_on for wish in wanted):
            down = any(one.machine.name == name and one.machine.down for one in now.machines)
            yield Moved(f"{name} in machines.yaml", "asked", "down: true" if down else "not there")


def _differences(then: dict[str, str], now: dict[str, str]) -> Iterator[Moved]:
    for what in dict.fromkeys((*then, *now)):
        before, after = then.get(what, "not there"), now.get(what, "not there")
        if before != after:
            yield Moved(what, before, after)


def _tell(shown: dict[str, Any], item: RunPlan) -> None:
    """Add what readers of the document look for first and what follows from the rest."""
    shown["action"] = item.sign.name.lower()
    for one, verdict in zip(shown["verdicts"], item.verdicts, strict=True):
        one["verdict"] = _word(verdict)


def _word(verdict: Verdict) -> str:
    if verdict.unknown:
        return "unknown"
    if verdict.fits:
        return "fits"
    return "rejected, lasting" if verdict.lasting else "rejected now"
