"""`push` and `pull`: files and folders between here and a machine."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

import click

from aicrun import api
from aicrun.cli.options import FILE, with_json, with_machines
from aicrun.cli.screen import Screen
from aicrun.cli.views.transfer import Bar, moved_lines
from aicrun.cli.waiting import open_session
from aicrun.errors import Exit, HostRefused, HostUnreachable, TransferFailed, UsageError, Way


@click.command("push", epilog="Example: aicrun push corpus/ lab:/data/")
@click.argument("path", type=FILE)
@click.argument("there", metavar="MACHINE:PATH")
@click.option("--replace", is_flag=True, help="Also over what is there already.")
@with_machines
@with_json
@click.pass_obj
def push_command(screen: Screen, path: str, there: str, replace: bool, machines: str) -> int:
    """Send a file or a folder to a machine. What lies there already is not sent again.

    PATH there starts with / or ~/; a folder that is there gets the file or folder into it.
    """
    machine, to = _there(there)
    with open_session(screen, machines) as (session, _), Bar(screen) as bar:
        session.machine(machine)
        interruptible(screen, f"aicrun push {path} {there}")
        with told_how(screen, machine, to, sends=True):
            moved = api.transfer.push(session, path, machine, to, replace, bar.tell)
    return _done(screen, "push", moved)


@click.command("pull", epilog="Example: aicrun pull lab:/data/out/model.bin .")
@click.argument("there", metavar="MACHINE:PATH")
@click.argument("path", type=FILE, default=".")
@click.option("--replace", is_flag=True, help="Also over what is there already.")
@with_machines
@with_json
@click.pass_obj
def pull_command(screen: Screen, there: str, path: str, replace: bool, machines: str) -> int:
    """Bring a file or a folder from a machine. What lies here already is not brought again."""
    machine, source = _there(there)
    with open_session(screen, machines) as (session, _), Bar(screen) as bar:
        session.machine(machine)
        interruptible(screen, f"aicrun pull {there} {path}")
        with told_how(screen, machine, source):
            moved = api.transfer.pull(session, machine, source, path, replace, bar.tell)
    return _done(screen, "pull", moved)


def _there(text: str) -> tuple[str, str]:
    found = api.transfer.place_of(text)
    if found is None or not found[1].startswith(("/", "~/")):
        ways = (Way("write it like", "lab:/data/out"), Way("or below your home there", "lab:~/out"))
        raise UsageError("AIC-E006", f"{text}: MACHINE:PATH is expected, with a path from / or ~/ on", ways=ways)
    return found


@contextmanager
def told_how(screen: Screen, machine: str, path: str, sends: bool = False) -> Iterator[None]:
    """A refusal of the machine's, and a connection that is lost, get the command to type next.

    A transfer that was refused could not be done: it ends as every other of those, `TransferFailed`.
    """
    try:
        yield
    except HostUnreachable as error:
        error.ways = (Way("it goes on where it stopped", screen.typed), *error.ways)
        raise
    except HostRefused as error:
        quoted = shlex.quote(path) if not path.startswith("~/") else "~/" + shlex.quote(path[2:])
        folder = quoted.rpartition("/")[0] or "/"
        look = Way("look what is there", f"aicrun exec {machine} -- {shlex.quote(f'ls -ld {quoted}')}")
        verb, what = ("mkdir -p", "make that folder") if sends else ("ls -la", "look what is there")
        ways = {
            "exists": (Way("replace it", f"{screen.typed} --replace"),),
            "not_found": (Way(what, f"aicrun exec {machine} -- {shlex.quote(f'{verb} {folder}')}"),),
            "unwritable": (look, Way("room and rights there", f"aicrun doctor {machine}")),
        }
        told = error.ways or ways.get(error.token, (look,))
        raise TransferFailed(error.code, error.message, facts=error.facts, ways=told) from error


def interruptible(screen: Screen, again: str) -> None:
    """What Ctrl-C leaves behind, and the command that goes on with it."""
    screen.interrupted = ("What is whole is in place; the rest lies beside it.", f"Go on with: {again}")


def _done(screen: Screen, kind: str, moved: api.transfer.Moved) -> int:
    screen.out(moved_lines(screen, moved))
    if screen.json:
        screen.document(kind, api.as_json(moved))
    return Exit.DONE
