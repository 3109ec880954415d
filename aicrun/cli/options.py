"""Options that several commands share, each with one meaning, and the answer to a question."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from aicrun.cli.screen import Screen, styled
from aicrun.errors import UsageError, Way

F = TypeVar("F", bound=Callable[..., Any])
# A path as it is typed; the type is what lets Tab complete it.
FILE = click.Path()


def _set_json(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
    ctx.find_root().obj.json = value
    return value


def with_json(command: F) -> F:
    """`--json`: exactly one document on stdout."""
    return click.option(
        "--json", is_flag=True, expose_value=False, callback=_set_json, help="Print one JSON document on stdout."
    )(command)


def with_machines(command: F) -> F:
    """`--machines FILE`: the inventory to use."""
    return click.option(
        "--machines", metavar="FILE", type=FILE, default="", help="The inventory; default: the nearest machines.yaml."
    )(command)


def with_yes(command: F) -> F:
    """`--yes`: do not ask."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask; needed where stdin is no terminal.")(command)


def with_wishes(command: F) -> F:
    """What `plan` and `apply` take beyond their files."""
    for option in reversed(
        (
            click.option(
                "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a field: --set machine.gpu=24GiB"
            ),
            click.option("--again", is_flag=True, help="Run an ended run once more, resuming where its spec says."),
            click.option("--fresh", is_flag=True, help="Run an ended run once more, from nothing."),
            click.option("--replace", is_flag=True, help="Stop the job in progress, then start the new one."),
            click.option("--forget", is_flag=True, help="Treat an unknown end as if the job had never been."),
            click.option("--except", "excepted", multiple=True, metavar="MACHINE", help="Plan without this machine."),
            click.option("--use-kept", is_flag=True, help="Also use cards that keep_free keeps."),
            click.option("--only", multiple=True, metavar="RUN", help="Only these runs of the files."),
            click.option("--skip", multiple=True, metavar="RUN", help="All runs of the files but these."),
            click.option("--strict", is_flag=True, help="Warnings of the files are errors."),
            click.option("-v", "--verbose", is_flag=True, help="One row a card, whole values."),
        )
    ):
        command = option(command)
    return command


def agreed(screen: Screen, question: str, yes: bool) -> bool:
    """Whether the person says yes; anything else than `y` or `yes` is no.

    Raises `UsageError` where nobody can be asked and `--yes` was not given.
    """
    if yes:
        return True
    if not screen.in_terminal:
        raise UsageError(
            "AIC-E012",
            f"{question} Nobody can be asked: stdin is no terminal",
            ways=(Way("answer beforehand", f"{screen.typed} --yes"),),
        )
    screen.ask(f"{styled('bold', question)} [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def with_unit(text: str, otherwise: str) -> str:
    """How a duration without a unit is to be written, or `otherwise` for what is no whole number."""
    return f"{text}s" if text.isascii() and text.isdigit() else otherwise
