"""The machines of the inventory: seen as they are now, and the commands that change the list or what one may start."""

from __future__ import annotations

import os
import shlex
import time

import click

from aicrun import api
from aicrun.cli.hosts import machine_of
from aicrun.cli.machine_add import add_command
from aicrun.cli.options import agreed, with_json, with_machines, with_yes
from aicrun.cli.screen import Screen
from aicrun.cli.views.hosts import drain_lines, left_lines
from aicrun.cli.views.tables import machines_lines
from aicrun.cli.views.trouble import next_lines
from aicrun.cli.waiting import open_session
from aicrun.errors import Exit, UsageError, Way
from aicrun.plan.kept_cards import gone
from aicrun.spec.folders import config_folder
from aicrun.spec.inventory import find_inventory
from aicrun.spec.inventory_edit import with_down, without
from aicrun.spec.inventory_file import change
from aicrun.spec.model import SshReach


@click.group("machines", invoke_without_command=True, epilog="Example: aicrun machines --json")
@with_machines
@with_json
@click.pass_context
def machines_command(context: click.Context, machines: str) -> int:
    """Show every machine and card as it is now; a command behind it changes one machine."""
    if context.invoked_subcommand is not None:
        # Both options may stand before the command or behind it.
        both = {"machines": machines, "json": context.obj.json}
        context.default_map = {context.invoked_subcommand: both}
        return Exit.DONE
    return _shown(context.obj, machines, "")


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
    with open_session(screen, machines) as (session, _):
        name = machine_of(session, machine)
        found = api.drain(session, name, not off, why)
    screen.out(drain_lines(screen, name, found))
    if screen.json:
        mark = None if found.drain is None else api.as_json(found.drain)
        counts = {"going": found.going, "waiting": found.waiting}
        screen.document("drain", {"machine": name, "drained": mark is not None, "drain": mark, **counts})
    return Exit.DONE


@machines_command.command(
    "list", short_help="Every machine and card as it is now.", epilog="Example: aicrun machines list"
)
@with_machines
@with_json
@click.pass_obj
def list_command(screen: Screen, machines: str) -> int:
    """Every machine and card as it is now; the same as `aicrun machines`."""
    return _shown(screen, machines, "")


@machines_command.command("check", epilog="Example: aicrun machines check lab")
@click.argument("machine")
@with_machines
@with_json
@click.pass_obj
def check_command(screen: Screen, machine: str, machines: str) -> int:
    """One machine: does it answer, what cards has it, who holds which."""
    return _shown(screen, machines, machine)


machines_command.add_command(add_command)


@machines_command.command(
    "down",
    short_help="Write `down: true`: it is neither asked nor waited for.",
    epilog="Example: aicrun machines down home",
)
@click.argument("machine")
@with_machines
@with_json
@click.pass_obj
def down_command(screen: Screen, machine: str, machines: str) -> int:
    """Write `down: true` for a machine: it is not asked and not waited for until `machines up`."""
    return _set_down(screen, machine, machines, True)


@machines_command.command("up", epilog="Example: aicrun machines up home")
@click.argument("machine")
@with_machines
@with_json
@click.pass_obj
def up_command(screen: Screen, machine: str, machines: str) -> int:
    """Take `down: true` away again."""
    return _set_down(screen, machine, machines, False)


@machines_command.command("remove", epilog="Example: aicrun machines remove attic --clean")
@click.argument("machine")
@click.option("--clean", is_flag=True, help="First list what lies on it and what still runs there.")
@with_yes
@with_machines
@with_json
@click.pass_obj
def remove_command(screen: Screen, machine: str, clean: bool, yes: bool, machines: str) -> int:
    """Take a machine out of machines.yaml. Nothing on it is touched and nothing is stopped."""
    with open_session(screen, machines) as (session, _):
        path = _written(session.inventory.file)
        session.machine(machine)
        left = api.left_on(session, machine) if clean else None
        reach = session.machine(machine).reach
    if left is not None:
        # A command that works also when the machine is in the list no more.
        by_hand = f"ssh {shlex.quote(reach.target)} " if isinstance(reach, SshReach) else ""
        screen.out(left_lines(screen, machine, left, by_hand))
    if not agreed(screen, f"Take {machine} out of {path}?", yes):
        screen.err(["Nothing was changed."])
        return Exit.INTERRUPTED
    change(path, lambda text, file: without(text, file, machine))
    screen.out([f"{machine} is no longer in {path}. What lies on it was left as it was."])
    if screen.json:
        screen.document("machines_remove", {"machine": machine, "file": path, "left": api.as_json(left)})
    return Exit.DONE


def _set_down(screen: Screen, machine: str, machines: str, down: bool) -> int:
    path = _written(_inventory(machines))
    change(path, lambda text, file: with_down(text, file, machine, down))
    words = "down: it is not asked and not waited for" if down else "up: it is asked again"
    back = Way("take it back", f"aicrun machines {'up' if down else 'down'} {machine}")
    screen.out([f"{machine} is {words} ({path}).", *next_lines((back,))])
    if screen.json:
        screen.document("machines_down", {"machine": machine, "file": path, "down": down})
    return Exit.DONE


def _inventory(machines: str) -> str:
    return find_inventory(machines, os.environ, os.path.abspath("."), config_folder(os.environ))


def _written(path: str) -> str:
    if path:
        return path
    ways = (Way("begin one", "aicrun machines add lab"),)
    raise UsageError("AIC-E019", "there is no machines.yaml: the only machine is this one", ways=ways)


def _shown(screen: Screen, machines: str, only: str) -> int:
    began = time.monotonic()
    with open_session(screen, machines) as (session, _):
        fleet = api.machines(session, only)
    screen.out(machines_lines(screen, fleet, time.monotonic() - began, bool(only)))
    if screen.json:
        listed = {"inventory": fleet.inventory_file, "inventory_digest": fleet.inventory_digest}
        screen.document("machines", {**listed, "machines": [_machine(view) for view in fleet.machines]})
    silent = [view for view in fleet.machines if view.state in ("silent", "unsupported")]
    return Exit.UNREACHABLE if silent and len(silent) == len(fleet.machines) else Exit.DONE


def _machine(view: api.MachineView) -> dict[str, object]:
    reading = api.as_json(view.reading) if view.reading is not None else None
    kept: dict[str, object] = {"keep_free": [str(item) for item in view.machine.keep_free]}
    kept["keep_free_gone"] = list(gone(view.machine, view.reading)) if view.reading is not None else []
    reached = {"reached": None if view.reached is None else api.as_json(view.reached)}
    return {"name": view.machine.name, "state": view.state, "why": view.why, "reading": reading, **kept, **reached}
