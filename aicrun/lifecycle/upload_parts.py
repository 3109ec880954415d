"""Which checkpoint of an upload a person means, from its manifest and from what its host told while it answered.

It asks nobody and brings nothing.
"""

from __future__ import annotations

import hashlib
import re

from aicrun.errors import AicrunError, TransferFailed, UsageError, Way
from aicrun.lifecycle.fetch import BEST, LATEST
from aicrun.lifecycle.fetch_upload import File, Manifest, Part
from aicrun.lifecycle.ledger import Uploaded
from aicrun.wire.checkpoint import SETTLED, TOP, YES, Checkpoint, Checkpointed

# A top folder that holds one of these is a checkpoint as a whole.
_OF_A_MODEL = frozenset(("config.json", "trainer_state.json", "adapter_config.json"))
_STATE = "trainer_state.json"
_NUMBERED = re.compile(r"(\d+)\D*\Z")
_ID_LEAST = 4
_SHOWN = 8


def parts(found: Manifest) -> tuple[Part, ...]:
    """The checkpoints that an upload holds: its folders, and what lies at the top, by name."""
    folders: dict[str, list[File]] = {}
    for one in found.files:
        above, slash, _ = one.path.partition("/")
        folders.setdefault(above if slash else "", []).append(one)
    top = tuple(folders.pop("", ()))
    is_model = bool(_OF_A_MODEL & {one.path for one in top})
    singles = [Part(TOP, top)] if is_model else [Part(one.path, (one,)) for one in top]
    return (*singles, *(Part(name, tuple(files)) for name, files in sorted(folders.items())))


def is_as_seen(found: Manifest, uploaded: Uploaded) -> bool:
    """False when the target holds another manifest than the one that was verified when this client saw the run last."""
    return not uploaded.manifest or uploaded.manifest == found.sha256


def meant_part(found: Manifest, uploaded: Uploaded, wanted: str) -> Part:
    """The checkpoint that a person names: `latest`, `best`, a name, or four or more digits of an id.

    Where nobody knows what the host told of them, or the upload went on since, the latest is the one with the highest
    number at its end. Raises `UsageError` (AIC-E024) for a name that none has, `TransferFailed` when it cannot be told.
    """
    told = _told(uploaded.saved) if uploaded.manifest == found.sha256 else ()
    there = {part.name: part for part in parts(found)}
    if wanted == LATEST:
        name = _latest(there, told)
        if not name:
            raise _none(found, there, "which one is the newest cannot be told: name it")
        return there[name]
    if wanted == BEST:
        rated = [
            (one.eval_loss, place, one.name)
            for place, one in enumerate(told)
            if one.eval_loss is not None and one.name in there
        ]
        if not rated:
            raise _none(found, there, "which one is the best cannot be told: name it")
        return there[min(rated)[2]]
    named = [there[wanted]] if wanted in there else []
    if not named and len(wanted) >= _ID_LEAST:
        named = [part for part in there.values() if _id(found.run_id, part.name).startswith(wanted)]
    if len(named) != 1:
        what = "more than one checkpoint" if named else "no checkpoint"
        raise _none(found, there, f"{what} is called {wanted}", UsageError)
    return named[0]


def _told(saved: Checkpointed | None) -> tuple[Checkpoint, ...]:
    """What the host told to be whole, there or at the target alone, newest first."""
    rows = (*saved.checkpoints, *saved.elsewhere) if saved is not None else ()
    return tuple(sorted((one for one in rows if one.complete in (YES, SETTLED)), key=lambda one: one.age_s))


def _latest(there: dict[str, Part], told: tuple[Checkpoint, ...]) -> str:
    known = next((one.name for one in told if one.name in there), "")
    if known or len(there) == 1:
        return known or next(iter(there))
    numbered = {name: int(digits[1]) for name in there if (digits := _NUMBERED.search(name))}
    # A trainer that keeps its state writes it last: a folder without one beside others was cut short.
    stateful = {name for name in numbered if any(one.path == f"{name}/{_STATE}" for one in there[name].files)}
    some = stateful or set(numbered)
    return max(some, key=lambda name: (numbered[name], name)) if some else TOP if TOP in there else ""


def _none(found: Manifest, there: dict[str, Part], what: str, kind: type[AicrunError] = TransferFailed) -> AicrunError:
    """Not to be told which is meant: `TransferFailed`; a name that nothing has: `UsageError`."""
    names = sorted(there)
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    facts = (("there are", shown), ("at", found.address)) if names else (("at", found.address),)
    ways = (Way("one of them", f"aicrun fetch {found.run} {names[0]}"),) if names else ()
    return kind("AIC-E024", f"{found.run}: {what}", facts=facts, ways=ways)


def _id(run_id: str, name: str) -> str:
    """As the host makes it (`agent/checkpoints.py`)."""
    return hashlib.sha256(f"{run_id}/{name}".encode("utf-8", "replace")).hexdigest()[:8]
