"""`checkpoints` and `fetch`: what a run has saved, and one of it brought here. Nothing is changed over there."""

from __future__ import annotations

import click

from aicrun import api
from aicrun.cli.options import FILE, with_json, with_machines
from aicrun.cli.screen import Screen
from aicrun.cli.transfers import interruptible, told_how
from aicrun.cli.views.checkpoints import checkpoint_lines
from aicrun.cli.views.transfer import Bar, moved_lines
from aicrun.cli.waiting import open_session
from aicrun.errors import Exit, UsageError, Way


@click.command("checkpoints", epilog="Example: aicrun checkpoints sft-run")
@click.argument("run")
@with_machines
@with_json
@click.pass_obj
def checkpoints_command(screen: Screen, run: str, machines: str) -> int:
    """The checkpoints of a run, newest first: step and losses, and whether each is whole. Also while it runs.

    Whole is what a reader of its files finds whole, or settled: unchanged for a minute, or since the run ended.
    """
    with open_session(screen, machines) as (session, _):
        found = api.find(session, run)
        seen = api.checkpoints(session, found)
    screen.out(checkpoint_lines(screen, found, seen))
    if screen.json:
        words = {"run": found.report.run, "machine": found.machine, "job": found.report.job_id}
        screen.document("checkpoints", {**words, **api.as_json(seen)})
    return Exit.DONE


@click.command("fetch", epilog="Example: aicrun fetch sft-run best -o models")
@click.argument("run")
@click.argument("checkpoint", default="")
@click.option("--checkpoint", "named", metavar="CHECKPOINT", default="", help="The same, as an option.")
@click.option("-o", "--output", "to", type=FILE, metavar="FOLDER", default=".", help="Where to; default: here.")
@click.option("--replace", is_flag=True, help="Also over other files of its names.")
@with_machines
@with_json
@click.pass_obj
def fetch_command(screen: Screen, run: str, checkpoint: str, named: str, to: str, replace: bool, machines: str) -> int:
    """Bring a checkpoint here: checked by its hashes, gone on with after a cut, never over something else.

    CHECKPOINT is latest (the newest that is whole; the default), best (the lowest eval loss), a name, or an id.
    """
    if checkpoint and named:
        raise UsageError(
            "AIC-E006", "the checkpoint is named twice", ways=(Way("name it once", f"aicrun fetch {run}"),)
        )
    with open_session(screen, machines) as (session, _):
        found = api.find(session, run)
        interruptible(screen, screen.typed)
        told = brought(screen, session, found, checkpoint or named or "latest", to, replace)
    if screen.json:
        screen.document("fetch", told)
    return Exit.DONE


def brought(
    screen: Screen, session: api.Session, found: api.Found, wanted: str = "latest", to: str = ".", replace: bool = False
) -> dict[str, object]:
    """Bring a checkpoint of a run into the folder `to` and say so; what a document tells of it."""
    chosen = api.meant_checkpoint(found, api.checkpoints(session, found), wanted)
    with Bar(screen) as bar, told_how(screen, found.machine, chosen.place):
        moved = api.fetch(session, chosen, to, replace, bar.tell)
    screen.out(moved_lines(screen, moved))
    about = {"run": found.report.run, "machine": found.machine, "checkpoint": api.as_json(chosen.checkpoint)}
    return {**about, **api.as_json(moved)}
