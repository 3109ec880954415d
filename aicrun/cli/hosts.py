"""Commands about one machine: `notes`, `doctor`, `gc`. The list of machines is in `machines.py`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from aicrun import api
from aicrun.cli.options import agreed, with_json, with_machines, with_yes
from aicrun.cli.screen import Screen
from aicrun.cli.views.hosts import doctor_lines, gc_lines, notes_lines
from aicrun.cli.waiting import open_session
from aicrun.errors import Exit, HostRefused, TransferFailed, UsageError, Way
from aicrun.spec.sizes import duration_s

_WEEK = "7d"
# As many machines are offered by their whole command; the row above names all.
_NAMED = 3


@click.command("notes", epilog='Example: aicrun notes here --add "Card 2 has a loud fan"')
@click.argument("machine", required=False)
@click.option("--add", "line", metavar="TEXT", default=None, help="Append one line.")
@with_machines
@with_json
@click.pass_obj
def notes_command(screen: Screen, machine: str | None, line: str | None, machines: str) -> int:
    """Show a machine's notes, or add a line. Piped into a file it is the bare text."""
    with open_session(screen, machines) as (session, _):
        name = machine_of(session, machine)
        if line is not None:
            api.add_note(session, name, line)
        text = api.notes(session, name)
    if screen.json:
        screen.document("notes", {"machine": name, "text": text})
    elif line is not None:
        screen.out([f"added to the notes of {name}"])
    elif screen.out_terminal:
        screen.out(notes_lines(screen, name, text))
    else:
        screen.raw(text.encode("utf-8", "replace"))
    return Exit.DONE


def machine_of(session: api.Session, name: str | None) -> str:
    """The machine named, or the only one there is; raises `UsageError` when there are several."""
    names = [machine.name for machine in session.inventory.machines]
    if name is not None:
        return session.machine(name).name
    if len(names) == 1:
        return names[0]
    context = click.get_current_context()
    verb, typed = context.command_path, context.find_root().obj.typed
    ways = tuple(Way(f"on {one}", typed.replace(verb, f"{verb} {one}", 1)) for one in names[:_NAMED])
    raise UsageError("AIC-E006", "which machine?", facts=(("machines", ", ".join(names)),), ways=ways)


@contextmanager
def _could_not() -> Iterator[None]:
    """What a machine refuses to `doctor` and `gc` could not be done: 14, not the code of a refused start."""
    try:
        yield
    except HostRefused as error:
        raise TransferFailed(error.code, error.message, facts=error.facts, ways=error.ways) from error


@click.command("doctor", epilog="Example: aicrun doctor here")
@click.argument("machine", required=False)
@with_machines
@with_json
@click.pass_obj
def doctor_command(screen: Screen, machine: str | None, machines: str) -> int:
    """Look for what is wrong with a machine: one line a finding, with the way out."""
    with open_session(screen, machines) as (session, _), _could_not():
        name = machine_of(session, machine)
        findings = api.doctor(session, name)
    screen.out(doctor_lines(screen, name, findings))
    if screen.json:
        screen.document("doctor", {"machine": name, "findings": list(findings)})
    return Exit.TRANSFER_FAILED if any(finding.get("word") == "bad" for finding in findings) else Exit.DONE


@click.command("gc", epilog="Example: aicrun gc --dry-run")
@click.argument("machine", required=False)
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@click.option(
    "--older-than",
    metavar="DURATION",
    default=_WEEK,
    show_default=True,
    help="Only of runs that ended at least this long ago.",
)
@with_yes
@with_machines
@with_json
@click.pass_obj
def gc_command(screen: Screen, machine: str | None, dry_run: bool, older_than: str, yes: bool, machines: str) -> int:
    """Remove logs and private files of ended runs now. Never a checkpoint, a workspace or a run's record."""
    seconds = duration_s(older_than)
    if seconds is None:
        raise UsageError("AIC-E006", f"{older_than} is no duration", ways=(Way("write it like", "--older-than 7d"),))
    with open_session(screen, machines) as (session, _), _could_not():
        name = machine_of(session, machine)
        rows = api.gc(session, name, True, seconds)
        code = Exit.DONE
        if rows and not dry_run:
            screen.err(gc_lines(screen, name, rows, True)[:-1])
            if agreed(screen, f"Remove this from {name}?", yes):
                rows = api.gc(session, name, False, seconds)
            else:
                dry_run, code = True, Exit.INTERRUPTED
        screen.out(gc_lines(screen, name, rows, dry_run, older_than if older_than != _WEEK else ""))
    if screen.json:
        screen.document("gc", {"machine": name, "dry_run": dry_run, "rows": list(rows)})
    return code
