"""An error in the one form of all errors: what, the facts, the ways out; and as a document."""

from __future__ import annotations

from textwrap import wrap
from typing import Any

from aicrun.cli.screen import styled
from aicrun.errors import AicrunError, Way
from aicrun.plan.model import Way as PlanWay
from aicrun.plan.words import cells, cut, harmless
from aicrun.spec.diagnostics import DocumentInvalid

_LABEL = 10
_MOVED = 22


def lines(error: AicrunError) -> list[str]:
    """The error as printed on stderr; faults of files all of them, each with its excerpt."""
    if isinstance(error, DocumentInvalid):
        # Here, since no other error needs the form of diagnostics.
        from aicrun.cli.views.diagnostics import as_lines

        return as_lines(error.diagnostics)
    head = styled("red", f"error[{error.code}]")
    shown = [f"{head}: {_kept_lines(error.message)}"]
    shown += moved_table(error)
    shown += rows(error.facts)
    return shown + helps(error.ways)


def _kept_lines(text: str) -> str:
    return " ".join(harmless(part) for part in text.splitlines())


def moved_table(error: AicrunError) -> list[str]:
    """The facts of a stale plan, then and now; nothing for any other error."""
    moved = getattr(error, "moved", ())
    if not moved:
        return []
    wide = max(24, *(len(fact.what) for fact in moved))
    path = getattr(error, "path", "plan")
    shown = [f"  {cut(path, wide):<{wide}}  {'then':<{_MOVED}} now"]
    for fact in moved:
        then, now = (harmless(str(value)) for value in (fact.then, fact.now))
        if max(cells(then), cells(now)) <= _MOVED:
            shown.append(f"  {fact.what:<{wide}}  {then:<{_MOVED}} {styled('red', now)}")
            continue
        # Cut, the two might look alike: what differs may stand at their ends.
        shown.append(f"  {fact.what}")
        shown += [f"    {'' if place else 'then':<8}{part}" for place, part in enumerate(wrap(then, 66))]
        shown += [f"    {'' if place else 'now':<8}{styled('red', part)}" for place, part in enumerate(wrap(now, 66))]
    return shown


def rows(facts: tuple[tuple[str, str], ...]) -> list[str]:
    """Label rows; a label that is too long for its column parts from its text by two spaces."""
    shown = []
    for label, text in facts:
        parts = text.splitlines() or [""]
        shown.append(f"  {label + ' ' if len(label) > _LABEL - 1 else label:<{_LABEL}}{_kept_lines(parts[0])}")
        shown += [" " * (_LABEL + 2) + _kept_lines(part) for part in parts[1:]]
    return shown


def helps(ways: tuple[Way, ...]) -> list[str]:
    """The ways out behind one `help`: the words, and the command below them."""
    shown = []
    for index, way in enumerate(ways):
        label = "help" if index == 0 else ""
        shown.append(f"  {label:<{_LABEL}}{way.what}{':' if way.command else ''}")
        if way.command:
            shown.append(" " * (_LABEL + 4) + styled("bold", way.command))
    return shown


def next_lines(ways: tuple[Way | PlanWay, ...]) -> list[str]:
    """The last lines of a screen: what each command does, and the command."""
    wide = max((len(way.what) for way in ways), default=0) + 2
    return [f"  {way.what:<{wide}}{styled('bold', way.command)}".rstrip() for way in ways]


def document(error: AicrunError) -> dict[str, Any]:
    """The error as the one document of a command with `--json`."""
    shown: dict[str, Any] = {
        "code": error.code,
        "message": error.message,
        "exit": int(error.exit),
        "facts": [{"label": label, "text": text} for label, text in error.facts],
        "ways": [{"what": way.what, "command": way.command} for way in error.ways],
        "diagnostics": [],
    }
    if isinstance(error, DocumentInvalid):
        from aicrun.cli.views.diagnostics import as_documents

        shown["diagnostics"] = as_documents(error.diagnostics)
    moved = getattr(error, "moved", ())
    shown["moved"] = [{"what": fact.what, "then": fact.then, "now": fact.now} for fact in moved]
    return shown
