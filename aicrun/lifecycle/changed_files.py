"""Names the files of a source that differ from those of the last job, where that job's host has their listing still.

It must not fail a plan: what cannot be told stays told by the two trees.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from aicrun.errors import AicrunError
from aicrun.lifecycle.session import Session
from aicrun.lifecycle.snapshot import Snapshot
from aicrun.plan.changes import files_words
from aicrun.plan.model import FieldChange, Plan, RunPlan, Sign

# A listing of more files is megabytes, for a few names.
FILES_MOST = 20_000
_NAMED = 6


def with_files(session: Session, plan: Plan, snapshots: Mapping[str, Snapshot]) -> Plan:
    """The same plan, with the names of the files that a changed source differs in; asks only for what changed."""
    if plan.fleet.offline:
        return plan
    return replace(plan, runs=tuple(_told(session, item, snapshots.get(item.run)) for item in plan.runs))


def _told(session: Session, item: RunPlan, snapshot: Snapshot | None) -> RunPlan:
    source = item.job.source if item.job is not None else None
    change = next((one for one in item.changes if one.path == "source"), None)
    if change is None or source is None or snapshot is None or not source.tree or source.files > FILES_MOST:
        return item
    try:
        listing = session.backend(item.job_machine).listed(source.tree)
    except AicrunError:
        return item
    files = _differing(listing, snapshot) if listing is not None else ()
    return _with(item, change, files) if files else item


def _differing(listing: bytes, snapshot: Snapshot) -> tuple[str, ...]:
    """Each path behind its sign, in order; none for a listing that nobody can read."""
    try:
        before = {str(path): (str(kind), str(content)) for path, kind, content, _ in json.loads(listing)}
    except (ValueError, TypeError, RecursionError):
        return ()
    now = {entry.path: (entry.kind, entry.content) for entry in snapshot.entries}
    signs = {
        path: "+" if path not in before else "-" if path not in now else "~"
        for path in before.keys() | now.keys()
        if before.get(path) != now.get(path)
    }
    return tuple(f"{signs[path]} {path}" for path in sorted(signs))


def _with(item: RunPlan, change: FieldChange, files: tuple[str, ...]) -> RunPlan:
    changes = tuple(replace(one, files=files) if one is change else one for one in item.changes)
    rows = item.rows
    if item.sign is Sign.KEEP and rows and rows[0][0] == "source":
        rows = (("source", files_words(files, _NAMED)), *rows[2:])
    return replace(item, changes=changes, rows=rows)
