"""Machines as such: tried before they are written down, and what lies on one before it is taken off the list."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from aicrun.hosts.backend import ShortCommand
from aicrun.lifecycle.session import Session
from aicrun.lifecycle.survey import offline, survey
from aicrun.plan.model import Fleet
from aicrun.plan.twins import STATE
from aicrun.plan.words import reach_of_names
from aicrun.spec.model import Inventory, Machine
from aicrun.wire.names import LIST_MOST
from aicrun.wire.status import status_of

_FOLDERS = ("~/.local/state/aicrun", "~/.local/share/aicrun", "~/aic-jobs")


@dataclass(frozen=True, slots=True)
class Left:
    """What is on a machine: names of runs that have not ended there, and (folder, KiB) of what may be removed."""

    running: tuple[str, ...]
    folders: tuple[tuple[str, int], ...]


def tried(session: Session, entry: Machine) -> Fleet:
    """A machine of no inventory yet, as it is now; raises what keeps it from being reached, with its ways out."""
    trial = _trial(session, (entry,))
    try:
        trial.backend(entry.name).notes()
        return survey(trial, ())
    finally:
        trial.drop_all()


def tried_all(session: Session, entries: tuple[Machine, ...]) -> Fleet:
    """Machines of no inventory yet, asked at once; one that cannot be reached is a silent one of the fleet."""
    trial = _trial(session, entries)
    try:
        return survey(trial, ())
    finally:
        trial.drop_all()


def _trial(session: Session, entries: tuple[Machine, ...]) -> Session:
    """A session over other machines that is watched as this one is."""
    of_session = (session.connect, session.ledger, session.client, session.secrets)
    return Session(Inventory(entries), *of_session, session.deadline_s, session.waiting)


def doctor(session: Session, name: str) -> tuple[dict[str, str], ...]:
    """Findings about one machine, the last of them what the list says: how far a run's name reaches, and its twins."""
    entry, listed = session.machine(name), session.inventory
    found = session.backend(name).doctor(entry.data, tuple(map(str, entry.keep_free)))
    text = reach_of_names(len(listed.machines), listed.digest)
    return (*found, {"word": "ok", "topic": "run names", "text": text, "help": ""}, *_twins(session, name))


def _twins(session: Session, name: str) -> tuple[dict[str, str], ...]:
    """Other entries that are this machine with this account, as this client saw them last."""
    rows = []
    for view in offline(session).machines:
        first = view.why.partition(" ")[0] if view.state == STATE else ""
        if first and name in (first, view.machine.name):
            told = f"{view.machine.name} is {first}: one machine and account under two names, counted once"
            way = f"aicrun machines remove {view.machine.name}"
            rows.append({"word": "note", "topic": "run names", "text": told, "help": way})
    return tuple(rows)


def left_on(session: Session, name: str) -> Left:
    """What lies on a machine; it looks and touches nothing."""
    entry = session.machine(name)
    backend = session.backend(name)
    reports, _ = backend.jobs(limit=LIST_MOST)
    running = tuple(sorted({report.run for report in reports if not status_of(report).status.terminal}))
    places = [*_FOLDERS, f"{entry.data}/aicrun"] if entry.data else list(_FOLDERS)
    # A tilde is the shell's; what a person wrote is one word, whatever it holds.
    shown = " ".join(place if place.startswith("~/") else shlex.quote(place) for place in places)
    command = f'for place in {shown}; do du -sk "$place" 2>/dev/null | cut -f1 | grep . || echo 0; done'
    wanted = ShortCommand(command=command, shell="sh")  # noqa: S604  # a shell over there is meant
    sizes = b"".join(part.out for part in backend.execute(wanted)).split()
    return Left(running, tuple((place, int(kib)) for place, kib in zip(places, sizes, strict=False) if int(kib)))
