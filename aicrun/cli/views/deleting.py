"""What a person is told before the checkpoints of a run are removed: how much, and what has no other copy."""

from __future__ import annotations

from aicrun import api
from aicrun.cli.screen import Screen, styled
from aicrun.plan.words import counted, cut, harmless, size, some

_LEFT_MOST = 5


def goes_words(doomed: api.Doomed) -> str:
    """`3 checkpoints (48.3 GiB)`; other entries of the run's own folder are counted too."""
    count = len(doomed.verified) + len(doomed.unverified)
    rows = {one.name for one in doomed.seen.checkpoints}
    others = len([name for name in doomed.removed.names if name not in rows])
    words = [counted(count, "checkpoint")] if count else []
    words += [f"{others} other {'entry' if others == 1 else 'entries'}"] if others and doomed.removed.own else []
    return f"{' and '.join(words) or 'no checkpoint'} ({size(doomed.removed.bytes)})"


def doomed_lines(screen: Screen, found: api.Found, doomed: api.Doomed) -> list[str]:
    """What would go from the machine, which of it is verified where, and what stays and why."""
    where = harmless(doomed.removed.path) or "no folder"
    shown = [f"On {found.machine}, in {where}: {goes_words(doomed)}."]
    if doomed.unverified:
        words = f"No verified copy exists of {some([*map(_name, doomed.unverified)], 5)}."
        shown.append(styled("yellow", cut(words, screen.width, screen.mark)))
    if doomed.verified:
        words = f"Verified at {harmless(doomed.seen.destination)}: {some([*map(_name, doomed.verified)], 5)}."
        shown.append(cut(words, screen.width, screen.mark))
    shown += [cut(f"Stays: {harmless(line)}", screen.width, screen.mark) for line in doomed.removed.left[:_LEFT_MOST]]
    if len(doomed.removed.left) > _LEFT_MOST:
        shown.append(f"and {len(doomed.removed.left) - _LEFT_MOST} more that stay")
    return shown


def _name(name: str) -> str:
    return "(top folder)" if name == "." else harmless(name)
