"""Draining a machine: no new run starts there, and what runs goes on. It stops nothing and edits no inventory."""

from __future__ import annotations

from aicrun.errors import UsageError
from aicrun.hosts.backend import Drained as Drained
from aicrun.lifecycle.session import Session

WHY_MOST = 200


def drain(session: Session, machine: str, on: bool, why: str = "") -> Drained:
    """Drain `machine` or lift that; the same again changes nothing but the words.

    Raises `UsageError` for a reason that is no line of at most 200 characters, `HostRefused` (drained) when another
    account's mark stays.
    """
    words = why.strip()
    if len(words) > WHY_MOST or any(ord(character) < 32 for character in words):
        raise UsageError("AIC-E005", f"the reason is one line of at most {WHY_MOST} characters")
    return session.backend(session.machine(machine).name).drain(on, words, session.by)
