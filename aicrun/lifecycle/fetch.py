"""Brings a checkpoint of a run here: which one is meant, and what of it belongs to it. It must not change it there."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from dataclasses import replace as with_fields
from textwrap import wrap

from aicrun.errors import HostRefused, TransferFailed, UsageError, Way
from aicrun.lifecycle.find import Found
from aicrun.lifecycle.session import Session
from aicrun.lifecycle.transfer import Moved, Tell, bring
from aicrun.wire import checkpoint as wire
from aicrun.wire.checkpoint import Checkpoint, Checkpointed

LATEST, BEST = "latest", "best"
_ID_LEAST = 4
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Chosen:
    """A checkpoint of a run, and the folder over there that it lies in."""

    found: Found
    folder: str
    checkpoint: Checkpoint

    @property
    def place(self) -> str:
        """Its path over there."""
        is_top = self.checkpoint.name == wire.TOP
        return self.folder if is_top else f"{self.folder.rstrip('/')}/{self.checkpoint.name}"


def meant_checkpoint(found: Found, seen: Checkpointed, wanted: str) -> Chosen:
    """The checkpoint that a person names: `latest`, `best`, a name, or four or more digits of an id.

    `latest` is the newest that is whole, `best` the one of those with the lowest eval loss. Raises `UsageError`
    (AIC-E024) for a name that none has, `TransferFailed` where there is none (AIC-E024) or it is not whole (AIC-E025).
    """
    run, whole = found.report.run, [one for one in seen.checkpoints if one.complete in (wire.YES, wire.SETTLED)]
    look = Way("see what there is", f"aicrun checkpoints {found.called}")
    if wanted == LATEST:
        if not whole:
            what = "no checkpoint of it is whole yet" if seen.checkpoints else "it has saved no checkpoint"
            raise TransferFailed("AIC-E024", f"{run}: {what}", ways=(look,))
        return _checked(Chosen(found, seen.path, whole[0]))
    if wanted == BEST:
        rated = [(one.eval_loss, place) for place, one in enumerate(whole) if one.eval_loss is not None]
        if not rated:
            raise TransferFailed("AIC-E024", f"{run}: no checkpoint that is whole tells an eval loss", ways=(look,))
        return _checked(Chosen(found, seen.path, whole[min(rated)[1]]))
    named = [one for one in seen.checkpoints if one.name == wanted]
    named = named or [one for one in seen.checkpoints if len(wanted) >= _ID_LEAST and one.id.startswith(wanted)]
    if not named:
        _check_elsewhere(found, seen, wanted, look)
    if len(named) != 1:
        some = ", ".join(one.name for one in seen.checkpoints[:_SHOWN])
        facts = (("there are", "\n".join(wrap(some, 66, break_on_hyphens=False))),) if some else ()
        what = "more than one checkpoint" if named else "no checkpoint"
        raise UsageError("AIC-E024", f"{run}: {what} is called {wanted}", facts=facts, ways=(look,))
    return _checked(Chosen(found, seen.path, named[0]))


def fetch(session: Session, chosen: Chosen, to: str, replace: bool, tell: Tell) -> Moved:
    """Bring it into the folder `to`, under its own name; the files at the top under the run's.

    Raises as `pull`, and `TransferFailed` (AIC-E024) when it is removed over there meanwhile.
    """
    try:
        return _brought(session, chosen, to, replace, tell)
    except HostRefused as error:
        if error.token != "not_found":
            raise
        found, name = chosen.found, chosen.checkpoint.name
        words = f"{found.report.run}: {name} was removed from {found.machine} meanwhile"
        look = Way("see what there is", f"aicrun checkpoints {found.report.run}")
        raise TransferFailed("AIC-E024", words, ways=(look,)) from error


def _brought(session: Session, chosen: Chosen, to: str, replace: bool, tell: Tell) -> Moved:
    backend = session.backend(chosen.found.machine)
    files = backend.files(chosen.place)
    name = chosen.checkpoint.name
    if name == wire.TOP:
        # Folders beside them are checkpoints of their own.
        files = with_fields(files, files=tuple(row for row in files.files if "/" not in row[0]))
        name = chosen.found.report.run
    top = os.path.join(to, name)
    try:
        return bring(backend, files, top, replace, tell)
    finally:
        # Also of one that was cut.
        session.ledger.note_fetched(top)


def _check_elsewhere(found: Found, seen: Checkpointed, wanted: str, look: Way) -> None:
    """Raise `UsageError` (AIC-E024) for one that is verified at the target, and on the machine no more."""
    gone = [one for one in seen.elsewhere if one.name == wanted]
    gone = gone or [one for one in seen.elsewhere if len(wanted) >= _ID_LEAST and one.id.startswith(wanted)]
    if len(gone) != 1:
        return
    name = gone[0].name
    ways: tuple[Way, ...] = (look,)
    if seen.destination.startswith("file:/"):
        # A folder of that machine: whoever reaches it brings it.
        place = f"{seen.destination.removeprefix('file:').rstrip('/')}/{name}"
        ways = (Way("bring its copy", f"aicrun pull {shlex.quote(f'{found.machine}:{place}')} ."), look)
    told = f"{name} of {found.report.run} is on {found.machine} no more; its verified copy is at {seen.destination}"
    raise UsageError("AIC-E024", told, ways=ways)


def _checked(chosen: Chosen) -> Chosen:
    one, run = chosen.checkpoint, chosen.found.report.run
    if one.complete not in (wire.YES, wire.SETTLED):
        why = one.why or "it changed less than a minute ago"
        pull = Way("bring it as it is", f"aicrun pull {chosen.found.machine}:{chosen.place} .")
        what = f"{one.name} is none of {run}'s" if one.complete == wire.OTHER else f"{one.name} of {run} is not whole"
        raise TransferFailed("AIC-E025", f"{what}: {why}", ways=(pull,))
    if "/" in one.name or one.name in ("", ".."):
        told = f"{chosen.found.machine} tells a checkpoint whose name leads elsewhere: {one.name!r}"
        raise TransferFailed("AIC-E024", told)
    return chosen
