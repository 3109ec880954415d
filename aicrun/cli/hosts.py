"""Commands about machines: `machines` with `drain`, `notes`, `doctor`, `gc`."""

from __future__ import annotations

import time

import click

from aicrun import api
from aicrun.cli.options import agreed, with_json, with_machines, with_yes
from aicrun.cli.screen import Screen
from aicrun.cli.views.hosts import doctor_lines, drain_lines, gc_lines, notes_lines
from aicrun.cli.views.tables import machines_lines
from aicrun.errors import Exit, UsageError, Way
from aicrun.spec.sizes import duration_s

_WEEK = "7d"


@click.group("machines", invoke_without_command=True, epilog="Example: aicrun machines --json")
@with_machines
@with_json
@click.pass_context
def machines_command(context: click.Context, machines: str) -> int:
    """Show every machine and card as it is now; a command behind it changes one machine."""
    if context.invoked_subcommand is not None:
        # The inventory may be named before the command or behind it.
        context.default_map = {context.invoked_subcommand: {"machines": machines}}
        return Exit.DONE
    screen: Screen = context.obj
    began = time.monotonic()
    with api.open_session(machines) as (session, _):
        fleet = api.machines(session)
    screen.out(machines_lines(screen, fleet, time.monotonic() - began))
    if screen.json:
        screen.document(
            "machines", {"inventory": fleet.inventory_file, "machines": [_machine(view) for view in fleet.machines]}
        )
    silent = [view for view in fleet.machines if view.state in ("silent", "unsupported")]
    return Exit.UNREACHABLE if silent and len(silent) == len(fleet.machines) else Exit.DONE


@machines_command.command("drain", epilog='Example: aicrun machines drain gpu-box --why "new power supply"')
@click.argument("machine", required=False)
@click.option("--off", is_flag=True, help="Start runs there again.")
@click.option("--why", metavar="TEXT", default="", help="Shown to whoever is kept waiting; one line.")
@with_machines
@with_json
@click.pass_obj
def drain_command(screen: Screen, machine: str | None, off: bool, why: str, machines: str) -> int:
    """Start no new run on a machine; what runs goes on.

    As root it is for every account of the machine, else for your own runs alone. A run with a card waits in line
    there, one without is refused.
    """
    if off and why:
        raise UsageError("AIC-E006", "--why says why a machine is drained; --off lifts that")
    with api.open_session(machines) as (session, _):
        name = machine_of(session, machine)
        found = api.drain(session, name, not off, why)
    screen.out(drain_lines(screen, name, found))
    if screen.json:
        mark = None if found.drain is None else api.as_json(found.drain)
        counts = {"going": found.going, "waiting": found.waiting}
        screen.document("drain", {"machine": name, "drained": mark is not None, "drain": mark, **counts})
    return Exit.DONE


def _machine(view: api.MachineView) -> dict[str, object]:
    reading = api.as_json(view.reading) if view.reading is not None else None
    return {"name": view.machine.name, "state": view.state, "why": view.why, "reading": reading}


@click.command("notes", epilog='Example: aicrun notes here --add "Card 2 has a loud fan"')
@click.argument("machine", required=False)
@click.option("--add", "line", metavar="TEXT", default=None, help="Append one line.")
@with_machines
@with_json
@click.pass_obj
def notes_command(screen: Screen, machine: str | None, line: str | None, machines: str) -> int:
    """Show a machine's notes, or add a line. Piped into a file it is the bare text."""
    with api.open_session(machines) as (session, _):
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
    raise UsageError("AIC-E006", "which machine?", facts=(("machines", ", ".join(names)),))


@click.command("doctor", epilog="Example: aicrun doctor here")
@click.argument("machine", required=False)
@with_machines
@with_json
@click.pass_obj
def doctor_command(screen: Screen, machine: str | None, machines: str) -> int:
    """Look for what is wrong with a machine: one line a finding, with the way out."""
    with api.open_session(machines) as (session, _):
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
    with api.open_session(machines) as (session, _):
        name = machine_of(session, machine)
        rows = api.gc(session, name, True, seconds)
        if rows and not dry_run:
            screen.err(gc_lines(screen, name, rows, True)[:-1])
            if agreed(screen, f"Remove this from {name}?", yes):
                rows = api.gc(session, name, False, seconds)
            else:
                dry_run = True
        screen.out(gc_lines(screen, name, rows, dry_run))
    if screen.json:
        screen.document("gc", {"machine": name, "dry_run": dry_run, "rows": list(rows)})
    return Exit.DONE
