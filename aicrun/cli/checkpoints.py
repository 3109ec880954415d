"""`checkpoints` and `fetch`: what a run has saved, and one of it brought here. Nothing is changed over there."""

from __future__ import annotations

from dataclasses import dataclass

import click

from aicrun import api
from aicrun.cli.options import FILE, with_json, with_machines
from aicrun.cli.screen import Screen
from aicrun.cli.transfers import interruptible, told_how
from aicrun.cli.views.checkpoints import checkpoint_lines
from aicrun.cli.views.transfer import Bar, moved_lines
from aicrun.cli.waiting import open_session
from aicrun.errors import Exit, UsageError, Way
from aicrun.plan.words import harmless


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
        words = {"run": found.report.run, "machine": found.machine}
        # `job` is its older name here; everywhere else that is the whole report.
        words |= {"job_id": found.report.job_id, "job": found.report.job_id}
        screen.document("checkpoints", {**words, **api.as_json(seen)})
    return Exit.DONE


@click.command("fetch", epilog="Example: aicrun fetch sft-run best -o models")
@click.argument("run")
@click.argument("checkpoint", default="")
@click.option("--checkpoint", "named", metavar="CHECKPOINT", default="", help="The same, as an option.")
@click.option("-o", "--output", "to", type=FILE, metavar="FOLDER", default=".", help="Where to; default: here.")
@click.option("--replace", is_flag=True, help="Also over other files of its names.")
@click.option("--from", "target", metavar="TARGET", default="", help="From this upload target, and from no machine.")
@click.option("--endpoint", metavar="URL", default="", help="With --from: the S3 server, if not Amazon's.")
@click.option("--profile", metavar="NAME", default="", help="With --from: a profile of your AWS settings.")
@with_machines
@with_json
@click.pass_obj
def fetch_command(screen: Screen, /, run: str, checkpoint: str, named: str, machines: str, **wishes: object) -> int:
    """Bring a checkpoint here: checked by its hashes, gone on with after a cut, never over something else.

    CHECKPOINT is latest (the newest that is whole; the default), best (the lowest eval loss), a name, or an id. Where
    the run's machine is gone it comes from the verified upload, with a tool and the credentials of this machine.
    """
    if checkpoint and named:
        raise UsageError(
            "AIC-E006", "the checkpoint is named twice", ways=(Way("name it once", f"aicrun fetch {run}"),)
        )
    target, endpoint, profile = (str(wishes[name]) for name in ("target", "endpoint", "profile"))
    if not target and (endpoint or profile):
        words = "--endpoint and --profile go with a target"
        raise UsageError("AIC-E006", words, ways=(Way("name it", f"aicrun fetch {run} --from s3://bucket/runs/"),))
    wanted = Wanted(checkpoint or named or "latest", str(wishes["to"]), bool(wishes["replace"]))
    with open_session(screen, machines) as (session, _):
        interruptible(screen, screen.typed)
        if target:
            uploaded = api.uploaded.named(run, target, endpoint, profile)
            told = _from_upload(screen, session, uploaded, wanted)
        else:
            told = _fetched(screen, session, run, wanted)
    if screen.json:
        screen.document("fetch", told)
    return Exit.DONE


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which checkpoint of a run, the folder it goes into, and whether it may lie over something else."""

    checkpoint: str = "latest"
    to: str = "."
    replace: bool = False


def _fetched(screen: Screen, session: api.Session, run: str, wanted: Wanted) -> dict[str, object]:
    """From wherever it lies: the machine, or else the upload that is known here."""
    try:
        found = api.find(session, run)
    except api.AicrunError as error:
        return _instead(screen, session, api.uploaded.instead(session, run, error), wanted)
    return brought(screen, session, found, wanted)


def brought(screen: Screen, session: api.Session, found: api.Found, wanted: Wanted = Wanted()) -> dict[str, object]:
    """Bring a checkpoint of a run and say so; what a document tells of it. From its upload when it is there no more."""
    chosen: api.Chosen | None = None
    try:
        chosen = api.meant_checkpoint(found, api.checkpoints(session, found), wanted.checkpoint)
        with Bar(screen) as bar, told_how(screen, found.machine, chosen.place):
            moved = api.fetch(session, chosen, wanted.to, wanted.replace, bar.tell)
    except api.AicrunError as error:
        if chosen is not None and error.code != "AIC-E024":
            # A connection that was lost in the middle is gone on with, from there.
            raise
        other = api.uploaded.instead(session, found.report.run, error, found)
        return _instead(screen, session, other, wanted)
    screen.out(moved_lines(screen, moved))
    about = {"run": found.report.run, "job_id": found.report.job_id, "machine": found.machine}
    about |= {"checkpoint": api.as_json(chosen.checkpoint)}
    return {**about, **api.as_json(moved)}


def _instead(screen: Screen, session: api.Session, other: api.uploaded.Instead, wanted: Wanted) -> dict[str, object]:
    try:
        return _from_upload(screen, session, other.uploaded, wanted, f", for {other.why}")
    except api.AicrunError as error:
        raise other.failed(error) from error


def _from_upload(
    screen: Screen, session: api.Session, uploaded: api.uploaded.Uploaded, wanted: Wanted, why: str = ""
) -> dict[str, object]:
    if not screen.json:
        screen.rewrite(f"asking {harmless(uploaded.upload.destination)} what it holds")
    try:
        found = api.uploaded.opened(session, uploaded)
    finally:
        screen.clear()
    part = api.uploaded.meant_part(found, uploaded, wanted.checkpoint)
    anew = "" if api.uploaded.is_as_seen(found, uploaded) else "; uploaded anew since this client saw the run last"
    screen.err([f"{_named(part.name)} from {harmless(found.address)}{why}{anew}"])
    with Bar(screen) as bar:
        moved = api.uploaded.fetch(session, uploaded, found, part, (wanted.to, wanted.replace, bar.tell))
    screen.out(moved_lines(screen, moved))
    about = {
        "run": found.run,
        "job_id": uploaded.job_id,
        "from": found.address,
        "checkpoint": {"name": part.name, "bytes": part.bytes},
    }
    return {**about, **api.as_json(moved)}


def _named(name: str) -> str:
    return "the top folder" if name == "." else harmless(name)
