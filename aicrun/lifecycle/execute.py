"""One short command of a person on a machine. It must not become a way to train: that is what a run is for."""

from __future__ import annotations

import re
from collections.abc import Iterator

from aicrun.errors import UsageError, Way
from aicrun.hosts.backend import Said, ShortCommand
from aicrun.lifecycle.session import Session

# Launchers of trainings, and ways to leave something behind: both belong into a run, which has a lock and an end.
_LASTING = re.compile(
    r"\b(torchrun|deepspeed|accelerate\s+launch|nohup|setsid|disown)\b|\b(tmux|screen)\s+(new|-d)|(?<![&>])&\s*$"
    r"|\bpython[\d.]*\s+(-\S+\s+)*\S*train\S*\.py\b"
)


def execute(session: Session, machine: str, wanted: ShortCommand) -> Iterator[Said]:
    """Its output slice by slice, the last one with how it ended.

    Raises `UsageError` (AIC-E018) for what looks like a training or leaves something running.
    """
    found = _LASTING.search(" ".join(wanted.argv) or wanted.command)
    if found is not None:
        ways = (Way("as a run, which outlives you", "aicrun init"), Way("and then", "aicrun apply run.yaml"))
        raise UsageError("AIC-E018", f"exec is for short steps, and this has {found[0].strip()!r}", ways=ways)
    return session.backend(machine).execute(wanted)
