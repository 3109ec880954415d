"""What this client knows of each run before any machine is asked: its source, the files the plan reads, its secrets.

It must not ask a machine, nor decide anything.
"""

from __future__ import annotations

import contextlib
import os

from aicrun.lifecycle.session import Session
from aicrun.lifecycle.snapshot import Snapshot, take
from aicrun.plan.model import Wanted
from aicrun.plan.secret_sources import secret_sources
from aicrun.spec.model import RunSpec


def gathered(session: Session, specs: tuple[RunSpec, ...]) -> tuple[tuple[Wanted, ...], dict[str, Snapshot]]:
    """The runs of `specs` in their order, and the source of each that has one, by run.

    Raises what `snapshot.take` raises. A secret's value is not read, only whether it is there.
    """
    aside = [session.inventory.file] if session.inventory.file else []
    snapshots = {spec.name: taken for spec in specs if (taken := take(spec, aside)) is not None}
    return tuple(_wanted(session, spec, snapshots.get(spec.name)) for spec in specs), snapshots


def _wanted(session: Session, spec: RunSpec, taken: Snapshot | None) -> Wanted:
    files = {}
    if spec.setup is not None and spec.setup.requirements:
        top = spec.source.path if spec.source is not None else spec.folder
        path = os.path.join(top, spec.setup.requirements)
        # A missing file is the plan's to refuse: it knows whether this run would need it at all.
        with contextlib.suppress(OSError, UnicodeDecodeError), open(path, encoding="utf-8") as stream:
            files[spec.setup.requirements] = stream.read()
    return Wanted(
        spec,
        taken.source if taken is not None else None,
        files,
        taken.largest if taken is not None else (),
        session.ledger.machines_of(spec.name),
        session.secrets.unset(secret_sources(spec.execution, spec.supervision)),
    )
