"""Machines that may hold a run and did not say so, by a person's word: what that word costs is said when it is used.

The word is `--except`, `down`, `sleeps`, or a name in the selector. It must not refuse: that is decided before.
"""

from __future__ import annotations

from aicrun.plan.known import Known
from aicrun.plan.model import Wanted
from aicrun.plan.reconcile import admitted
from aicrun.plan.words import some


def left_out(wanted: Wanted, known: Known) -> tuple[str, ...]:
    """Names of machines that were excepted although they may hold the run, or are `down` and named for it.

    Of a machine that is `down` its owner's word stands, where neither a record nor the ledger names it.
    """
    told = _told(wanted, known)
    return tuple(
        view.machine.name
        for view in known.fleet.machines
        if (view.state == "excepted" and (admitted(wanted, view) or view.machine.name in told))
        or (view.state == "down" and view.machine.name in told)
    )


def _told(wanted: Wanted, known: Known) -> set[str]:
    """The machines that the ledger or a record names for the run."""
    return {*wanted.known_on, *(found.job.machine for found in known.records.get(wanted.spec.name, ()))}


def left_out_warnings(wanted: Wanted, known: Known) -> tuple[str, ...]:
    """One sentence for each: a second copy may run there; where it surely was, what it saved is not gone on from."""
    saved = ", and what it saved there is not gone on from" if "resume" in wanted.spec.execution else ""
    excepted = {view.machine.name for view in known.fleet.machines if view.state == "excepted"}
    return tuple(
        f"{name} was not asked ({'--except' if name in excepted else 'down: true'}): "
        f"a second copy of {wanted.spec.name} may be running there{saved if name in _told(wanted, known) else ''}"
        for name in left_out(wanted, known)
    )


def unseen_rows(wanted: Wanted, known: Known) -> tuple[tuple[str, str], ...]:
    """One row for the machines that did not answer and keep nothing from starting; none where all answered."""
    names = [view.machine.name for view in known.mute]
    if not names:
        return ()
    verb = "do" if len(names) > 1 else "does"
    return (("unseen", f"{some(names)} {verb} not answer: a copy of {wanted.spec.name} there would not be known"),)
