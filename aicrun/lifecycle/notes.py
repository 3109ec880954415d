"""The notes of a machine: read whole, added to by one line. Their text is the host's, never trusted."""

from __future__ import annotations

from aicrun.errors import UsageError
from aicrun.lifecycle.session import Session


def read(session: Session, machine: str) -> str:
    """The notes file of a machine (at most 1 MiB of its end)."""
    return session.backend(session.machine(machine).name).notes()


def add(session: Session, machine: str, text: str) -> None:
    """Append one line by a person; raises `UsageError` for an empty line or one with a line break."""
    line = text.strip()
    if not line or any(ord(character) < 32 for character in line):
        raise UsageError("AIC-E005", "a note is one line of text")
    session.backend(session.machine(machine).name).add_note(line, session.by)
