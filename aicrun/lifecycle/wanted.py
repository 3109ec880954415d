"""What this client knows of each run before any machine is asked: its source, the files the plan reads, its secrets.

It must not ask a machine, nor decide anything.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import replace

from aicrun.lifecycle.sent_inputs import Seen, take_inputs
from aicrun.lifecycle.session import Session
from aicrun.lifecycle.snapshot import Snapshot, take
from aicrun.plan.environment import files_read
from aicrun.plan.locks import requires_python
from aicrun.plan.model import Wanted
from aicrun.plan.secret_sources import secret_sources
from aicrun.spec.model import RunSpec
from aicrun.wire.jobs import Source


def gathered(session: Session, specs: tuple[RunSpec, ...]) -> tuple[tuple[Wanted, ...], dict[str, Snapshot]]:
    """The runs of `specs` in their order; and the source of each that has one, by run, each input by `run/input`.

    Raises what `take` and `take_inputs` raise. A secret's value is not read, only whether it is there.
    """
    aside = [session.inventory.file] if session.inventory.file else []
    # What a run has made and a person has fetched is no code of the next.
    aside += session.ledger.fetched()
    snapshots = {spec.name: taken for spec in specs if (taken := take(spec, aside, session.cache)) is not None}
    wanted, seen = [], Seen()
    for spec in specs:
        inputs = take_inputs(spec, session.cache, seen)
        sources = {name: snapshot.source for name, snapshot in inputs.items()}
        wanted.append(_wanted(session, spec, snapshots.get(spec.name), sources))
        snapshots.update({f"{spec.name}/{name}": snapshot for name, snapshot in inputs.items()})
    return tuple(wanted), snapshots


def _wanted(session: Session, spec: RunSpec, taken: Snapshot | None, inputs: Mapping[str, Source]) -> Wanted:
    top = spec.source.path if spec.source is not None else spec.folder
    sent = {entry.path for entry in taken.entries} if taken is not None else set()
    files = {}
    is_fetched = spec.source is not None and bool(spec.source.git)
    for name in files_read(spec.setup) if not is_fetched else ():
        # A missing file is the plan's to refuse: it knows whether this run would need it at all. The project is
        # installed from the tree, so what is not sent is missing there.
        if spec.setup is not None and spec.setup.project and name not in sent:
            continue
        path = os.path.join(top, name)
        with contextlib.suppress(OSError, UnicodeDecodeError), open(path, encoding="utf-8") as stream:
            files[name] = stream.read()
    return Wanted(
        for_its_python(spec, files),
        taken.source if taken is not None else None,
        files,
        taken.largest if taken is not None else (),
        session.ledger.machines_of(spec.name),
        session.secrets.unset(secret_sources(spec.execution, spec.supervision)),
        inputs,
        taken.pointers if taken is not None else (),
        taken.submodules if taken is not None else (),
    )


def for_its_python(spec: RunSpec, files: Mapping[str, str]) -> RunSpec:
    """The spec with the Pythons that its lock was made for, where it asks for none itself."""
    setup = spec.setup
    if setup is None or setup.python or not (setup.lock or setup.project):
        return spec
    ranges = [found for text in files.values() if (found := requires_python(text))]
    return replace(spec, setup=replace(setup, python=ranges[0])) if ranges else spec
