"""`machines add`: offers the names that ssh knows, tries a machine, asks which cards stay its owner's, writes it down.

Cards are written by UUID, which stays with a card; its number and model stand beside it for people. It must not write
anything that nobody agreed to, and it tries only what was named or chosen.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Iterable

import click

from aicrun import api
from aicrun.cli.options import agreed, with_json, with_machines, with_yes
from aicrun.cli.screen import Screen, styled
from aicrun.cli.views.tables import machines_lines
from aicrun.cli.views.trouble import next_lines
from aicrun.cli.waiting import open_session
from aicrun.errors import Exit, UsageError, Way
from aicrun.plan.words import card_model, counted, harmless
from aicrun.spec.folders import config_folder
from aicrun.spec.inventory import FILE, HERE, find_inventory, load_inventory
from aicrun.spec.inventory_edit import quoted_text, with_machine
from aicrun.spec.inventory_file import change
from aicrun.spec.model import LocalReach, Machine, SshReach

# As the schema of machines.yaml has it: told before the machine is tried.
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


@click.command("add", epilog="Example: aicrun machines add lab --ssh ana@10.0.0.7:2222 --keep 0")
@click.argument("name", required=False)
@click.option(
    "--ssh", "target", metavar="TARGET", default="", help="An alias of your ssh configuration, or user@host:port."
)
@click.option("--local", is_flag=True, help="This very machine, without ssh; its usual name is here.")
@click.option("--data", metavar="DIR", default="", help="Its data volume; caches and environments go below it.")
@click.option(
    "--keep", metavar="CARD", multiple=True, help="A card that runs never get: its number, or its UUID's beginning."
)
@click.option("--untried", is_flag=True, help="Write it down though it does not answer now.")
@with_yes
@with_machines
@with_json
@click.pass_obj
def add_command(screen: Screen, /, name: str | None, machines: str, **wishes: object) -> int:
    """Try a machine, show its cards, and write it into machines.yaml. Without a name: those that your ssh knows."""
    inventory = find_inventory(machines, os.environ, os.path.abspath("."), config_folder(os.environ))
    path = inventory or os.path.join(config_folder(os.environ), FILE)
    listed = load_inventory(path)[0].machines if os.path.exists(path) else ()
    keep = tuple(wishes["keep"]) if isinstance(wishes["keep"], tuple) else ()
    if name is None:
        new = _offered(screen, listed)
        return (
            _of_offered(screen, path, machines, new) if screen.in_terminal and not wishes["yes"] and new else Exit.DONE
        )
    if name in [machine.name for machine in listed]:
        look = Way("look at it", f"aicrun machines check {name}")
        raise UsageError("AIC-E019", f"{path} has a machine {name} already", ways=(look,))
    if not _NAME.fullmatch(name):
        other = Way("give it another", f"aicrun machines add NAME --ssh {shlex.quote(str(wishes['target']) or name)}")
        message = f"{harmless(name)} is no machine's name: those have letters, digits, . _ - and at most 63 of them"
        raise UsageError("AIC-E006", message, ways=(other,))
    if wishes["local"] and wishes["target"]:
        raise UsageError("AIC-E006", "--local is this very machine, which no --ssh leads to: one of the two")
    reach = LocalReach() if wishes["local"] else SshReach(str(wishes["target"]) or name)
    entry = Machine(name, reach, data=str(wishes["data"]))
    if wishes["untried"]:
        return _added(screen, path, entry, _unseen(keep), bool(wishes["yes"]))
    began = time.monotonic()
    with open_session(screen, machines) as (session, _):
        fleet = api.tried(session, entry)
    screen.out(machines_lines(screen, fleet, time.monotonic() - began, closely=True))
    kept = _kept(screen, fleet.machines[0], keep, bool(wishes["yes"]))
    return _added(screen, path, entry, kept, bool(wishes["yes"]))


def _offered(screen: Screen, listed: tuple[Machine, ...]) -> tuple[str, ...]:
    """Shows the names of the user's ssh configuration that no machine of the inventory has or is reached by."""
    targets = [machine.reach.target for machine in listed if isinstance(machine.reach, SshReach)]
    known = {*targets, *(machine.name for machine in listed)}
    new = tuple(name for name in api.aliases() if name not in known)
    if screen.json:
        screen.document("machines_offer", {"aliases": list(new)})
        return ()
    if not new:
        way = Way("name one", "aicrun machines add lab --ssh ana@10.0.0.7:2222")
        raise UsageError("AIC-E006", "your ssh configuration names no machine that is not in the list yet", ways=(way,))
    rows = [f"  {number:<3} aicrun machines add {name}" for number, name in enumerate(new, 1)]
    screen.out(["Your ssh knows these:", *rows])
    return new


def _of_offered(screen: Screen, path: str, machines: str, new: tuple[str, ...]) -> int:
    """Tries those that the person picks, all at once, and writes down whichever answered and is agreed to."""
    chosen = _chosen(screen, "Try which? Numbers or names, as 1,2; Enter for none:", dict(enumerate(new, 1)))
    if not chosen:
        screen.err(["Nothing was written."])
        return Exit.INTERRUPTED
    began = time.monotonic()
    with open_session(screen, machines) as (session, _):
        fleet = api.tried_all(session, tuple(Machine(name, SshReach(name)) for name in chosen))
    screen.out(machines_lines(screen, fleet, time.monotonic() - began))
    for view in fleet.machines:
        if view.reading is not None:
            _added(screen, path, view.machine, _kept(screen, view, (), False), False)
    silent = [view.machine.name for view in fleet.machines if view.reading is None]
    if silent:
        ways = tuple(Way(f"why not {name}", f"aicrun machines add {name}") for name in silent[:3])
        screen.out(["", *next_lines(ways)])
    return Exit.UNREACHABLE if len(silent) == len(fleet.machines) else Exit.DONE


def _added(screen: Screen, path: str, entry: Machine, kept: tuple[api.Card, ...], yes: bool) -> int:
    if not agreed(screen, f"Write {entry.name} into {path}?", yes):
        screen.err(["Nothing was written."])
        return Exit.INTERRUPTED
    target = entry.reach.target if isinstance(entry.reach, SshReach) else ""
    fields = {"name": entry.name, "ssh": target, "data": entry.data}
    lines = {key: quoted_text(value) for key, value in fields.items() if value}
    if not target:
        lines["local"] = "true"
    is_first = not os.path.exists(path)
    if kept:
        lines["keep_free"] = _pinned(kept)
    inventory = change(path, lambda text, file: with_machine(text, file, lines))
    ways = [Way("plan with it", "aicrun plan run.yaml")]
    told = [f"{entry.name} is in {path}: {counted(len(inventory.machines), 'machine')}."]
    if is_first and target:
        # Without a file there was one machine: this one.
        told.append("This machine is not in it: runs on it are not listed or planned any more.")
        ways.append(Way("keep it too", f"aicrun machines add {HERE} --local"))
    screen.out([*told, *next_lines(tuple(ways))])
    if screen.json:
        cards = [_name(card) for card in kept]
        screen.document("machines_add", {"machine": entry.name, "file": path, "keep_free": cards})
    return Exit.DONE


def _pinned(cards: Iterable[api.Card]) -> str:
    """`[GPU-…, GPU-…]  # [0] RTX 5080, [1] RTX 3090`; harmless words hold no line break that would end the comment."""
    seen = [card for card in cards if card.model]
    words = ", ".join(f"[{card.index}] {card_model(card.model)}" for card in seen)
    return f"[{', '.join(_name(card) for card in cards)}]" + (f"  # {words}" if words else "")


def _name(card: api.Card) -> str:
    # The host's text goes into a file as it is; a card without a proper UUID has nothing but its number.
    return card.uuid if re.fullmatch(r"GPU-[0-9A-Za-z-]+", card.uuid) else str(card.index)


def _kept(screen: Screen, view: api.MachineView, keep: tuple[str, ...], yes: bool) -> tuple[api.Card, ...]:
    """The cards that stay their owner's: those of `--keep`, else as the person answers, none where nobody can."""
    cards = view.reading.cards.cards if view.reading is not None else ()
    if keep:
        return tuple(_card(word, cards, view.machine.name) for word in keep)
    if yes or not cards or not screen.in_terminal:
        return ()
    numbers = {card.index: str(card.index) for card in cards}
    question = f"Keep cards of {view.machine.name} free of runs? Numbers, as 0,1; Enter for none:"
    answer = _chosen(screen, question, numbers)
    return tuple(card for card in cards if str(card.index) in answer)


def _card(word: str, cards: tuple[api.Card, ...], machine: str) -> api.Card:
    bare = word.strip("[]")
    found = [card for card in cards if bare == str(card.index)]
    found = found or [card for card in cards if bare and card.uuid.lower().startswith(bare.lower())]
    if len(found) == 1:
        return found[0]
    there = ", ".join(f"[{card.index}] {harmless(card.uuid)}" for card in cards) or "none"
    what = "names several cards" if found else "is no card"
    raise UsageError("AIC-E006", f"--keep {word}: that {what} of {machine}", facts=(("cards", there),))


def _unseen(keep: tuple[str, ...]) -> tuple[api.Card, ...]:
    """Cards of a machine that nobody looked at: only a whole UUID names one."""
    for word in keep:
        if not re.fullmatch(r"GPU-[0-9A-Za-z-]+", word):
            ways = (Way("see the UUIDs, on the machine", "nvidia-smi -L"),)
            raise UsageError("AIC-E006", f"--keep {word}: with --untried a card has to be named by its UUID", ways=ways)
    return tuple(api.Card(0, word, "") for word in keep)


def _chosen(screen: Screen, question: str, offered: dict[int, str]) -> tuple[str, ...]:
    """What a person picks of numbered names; asked again until it is understood, none at the end of the input."""
    while True:
        screen.ask(f"{styled('bold', question)} ")
        line = sys.stdin.readline()
        words = line.replace(",", " ").replace("[", " ").replace("]", " ").split()
        picked = [offered.get(int(word), "") if word.isdecimal() else word for word in words]
        if all(name in offered.values() for name in picked):
            return tuple(dict.fromkeys(picked))
        unknown = next(word for word, name in zip(words, picked, strict=True) if name not in offered.values())
        screen.err([f"{harmless(unknown)} is none of these: {', '.join(map(str, offered))}."])
