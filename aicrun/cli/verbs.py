"""Commands that act on one run: `stop`, `upload`, `delete`. What ends or removes something asks first."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

import click

from aicrun import api
from aicrun.cli.options import agreed, with_json, with_machines, with_unit, with_yes
from aicrun.cli.screen import Screen
from aicrun.cli.views.deleting import doomed_lines, goes_words
from aicrun.cli.views.endings import ending_lines, headline, kept_line, last_line, uploaded_row
from aicrun.cli.views.steps import Story
from aicrun.cli.views.trouble import next_lines
from aicrun.cli.waiting import open_session
from aicrun.errors import AicrunError, Exit, HostRefused, TransferFailed, UsageError, Way
from aicrun.plan.words import ago, counted, harmless, size
from aicrun.spec.model import UploadSpec
from aicrun.spec.sizes import duration_s
from aicrun.spec.targets import upload_target


@click.command("stop", epilog="Example: aicrun stop sft-run --grace 2m")
@click.argument("run")
@click.option(
    "--grace", metavar="DURATION", default="", help="Time to end by itself before it is killed; default: limits.grace."
)
@with_yes
@with_machines
@with_json
@click.pass_obj
def stop_command(screen: Screen, run: str, grace: str, yes: bool, machines: str) -> int:
    """Stop a run: it is asked to end, then killed with its whole process tree."""
    grace_s = _grace(grace)
    with open_session(screen, machines) as (session, _):
        found = api.find(session, run)
        if found.standing.status.terminal:
            screen.err([f"{headline(found)}; there is nothing to stop."])
            return _done(screen, "stop", found)
        if not agreed(screen, f"Stop {found.report.run} on {found.machine}?{_lost(found)}", yes):
            screen.err(["Nothing was stopped."])
            _done(screen, "stop", found)
            return Exit.INTERRUPTED
        screen.interrupted = (
            f"The wish to stop {found.report.run} stands on {found.machine}; the stop goes on there.",
        )
        found = api.stop(session, found, grace_s, Story(screen).tell)
        screen.out(ending_lines(screen, api.ending(session, found)))
    stopped = found.standing.status.terminal
    _done(screen, "stop", found)
    return Exit.DONE if stopped else api.exit_of(found)


@contextmanager
def _told_how(found: api.Found, kind: type[AicrunError] | None = None) -> Iterator[None]:
    """What the machine refuses gets the command that goes first; it becomes an error of `kind`, if one is given."""
    try:
        yield
    except HostRefused as error:
        run = shlex.quote(found.report.run)
        # It may be another job that is in the way.
        busy = shlex.quote(dict(error.facts).get("job", run))
        busy = run if busy == found.report.job_id else busy
        ways = {
            "not_finished": (Way("stop it first", f"aicrun stop {busy}"), Way("or wait for it", f"aicrun wait {busy}")),
            "nothing_to_upload": _instead(found, run),
        }
        error.ways = error.ways or ways.get(error.token, ())
        if kind is None:
            raise
        raise kind(error.code, error.message, facts=error.facts, ways=error.ways) from error


def _instead(found: api.Found, run: str) -> tuple[Way, ...]:
    report = found.report
    if report.phase == "never_started" or report.decision == "no":
        return (Way("see why", f"aicrun inspect {run}"),)
    fetch = Way("bring its checkpoint here", f"aicrun fetch {run}")
    # Another target is refused as well once one is verified, or the private files are gone.
    if report.upload_request is not None or report.swept:
        return (fetch,)
    return (fetch, Way("or upload it elsewhere", f"aicrun upload {run} --to file:~/checkpoints/"))


def _done(screen: Screen, kind: str, found: api.Found) -> int:
    if screen.json:
        screen.document(kind, api.document_of(found))
    return Exit.DONE


def _grace(text: str) -> int | None:
    if not text:
        return None
    seconds = duration_s(text)
    if seconds is None:
        raise UsageError(
            "AIC-E006", f"{text} is no duration", ways=(Way("write it like", f"--grace {with_unit(text, '30s')}"),)
        )
    return seconds


def _lost(found: api.Found) -> str:
    kept = found.report.checkpoints
    if kept is None or not kept.newest:
        return " It has written no checkpoint."
    age = "" if kept.newest_age_s is None else f", written {ago(kept.newest_age_s)}"
    return f" Kept: {harmless(kept.newest)}{age}."


@click.command("upload", epilog="Example: aicrun upload sft-run checkpoint-3000")
@click.argument("run")
@click.argument("checkpoint", default="")
@click.option("--to", metavar="TARGET", default="", help="Another target than the spec's: checkpoints.upload.to.")
@click.option("--with", "tool", metavar="TOOL", default="", help="What carries it: checkpoints.upload.with.")
@click.option("--endpoint", metavar="URL", default="", help="Of an S3-compatible server.")
@click.option("--profile", metavar="NAME", default="", help="Of the machine's AWS configuration.")
@with_machines
@with_json
@click.pass_obj
def upload_command(screen: Screen, /, run: str, checkpoint: str, machines: str, **more: str) -> int:
    """Upload an ended run's checkpoints again and verify them; the training is not repeated.

    With CHECKPOINT (latest, best, a name or an id) just that one is uploaded and verified.
    """
    goal = _goal(more, checkpoint)
    with open_session(screen, machines) as (session, _):
        found = api.find(session, run)
        if checkpoint:
            with _told_how(found, TransferFailed):
                return _one_uploaded(screen, session, found, checkpoint)
        screen.interrupted = (f"The upload of {found.report.run} goes on on {found.machine}.",)
        with _told_how(found, TransferFailed):
            found = api.upload(session, found, Story(screen).tell, goal=goal)
        result = found.report.upload
        verified = result is not None and result.verified
        if verified:
            screen.out([uploaded_row(found.report), last_line(found, api.ending(session, found).saved)])
        else:
            screen.out(ending_lines(screen, api.ending(session, found)))
    _done(screen, "upload", found)
    return Exit.DONE if verified else Exit.TRANSFER_FAILED


def _goal(more: dict[str, str], checkpoint: str) -> UploadSpec | None:
    to, fields = more["to"], {"with": more["tool"], "endpoint": more["endpoint"], "profile": more["profile"]}
    if to and checkpoint:
        raise UsageError("AIC-E006", "--to is for all that the run saved: leave the checkpoint out")
    if to:
        return upload_target(to, fields)
    named = [f"--{name}" for name, value in fields.items() if value]
    if named:
        raise UsageError("AIC-E006", f"{named[0]} belongs to another target: name it with --to")
    return None


def _one_uploaded(screen: Screen, session: api.Session, found: api.Found, wanted: str) -> int:
    """Upload one checkpoint; whether it is verified is asked of the machine afterwards."""
    one = api.meant_checkpoint(found, api.checkpoints(session, found), wanted).checkpoint
    if one.on_host != "yes":
        ways = (Way("fetch it from the upload", f"aicrun fetch {found.called} {shlex.quote(one.name)}"),)
        words = f"{harmless(one.name)} is not on {found.machine} any more: there is nothing to send again"
        raise TransferFailed("AIC-E607", words, ways=ways)
    screen.interrupted = (f"The upload of {harmless(one.name)} goes on on {found.machine}.",)
    # Also what is verified already: somebody may have removed it from the target since.
    found = api.upload(session, found, Story(screen).tell, one.name)
    seen = api.checkpoints(session, found)
    one = next((other for other in seen.checkpoints if other.name == one.name), one)
    verified = one.uploaded_age_s is not None
    if verified:
        where = found.report.upload_request
        told = f" at {harmless(where.destination)}" if where is not None else ""
        screen.out([f"{harmless(one.name)} of {found.report.run}, {size(one.bytes)}, is uploaded and verified{told}"])
    else:
        screen.err([f"{harmless(one.name)} of {found.report.run} is not verified: {_log_of_upload(found)}"])
    if screen.json:
        screen.document("upload", {**api.document_of(found), "checkpoint": api.as_json(one)})
    return Exit.DONE if verified else Exit.TRANSFER_FAILED


def _log_of_upload(found: api.Found) -> str:
    return f"aicrun logs {found.called} --step upload"


@click.command("delete", epilog="Example: aicrun delete sft-old")
@click.argument("run")
@click.option("--checkpoints", is_flag=True, help="Its checkpoints on the machine too; says which have no other copy.")
@with_yes
@with_machines
@with_json
@click.pass_obj
def delete_command(screen: Screen, run: str, checkpoints: bool, yes: bool, machines: str) -> int:
    """Remove the records and logs of an ended run's newest job; other jobs of its name stay.

    Its workspace stays, and its checkpoints do without --checkpoints.
    """
    with open_session(screen, machines) as (session, _):
        found = api.find(session, run)
        with _told_how(found):
            return _deleted(screen, session, found, checkpoints, yes)


def _others(session: api.Session, found: api.Found) -> list[api.Found]:
    """The other jobs of the run's name, newest first: what is deleted is one of them."""
    listed = api.jobs(session, (), True).jobs
    return [one for one in listed if one.report.run == found.report.run and one.report.job_id != found.report.job_id]


def _stay(others: list[api.Found], run: str) -> str:
    return f"{counted(len(others), 'other job')} of {run} {'stay' if len(others) > 1 else 'stays'}"


def _deleted(screen: Screen, session: api.Session, found: api.Found, checkpoints: bool, yes: bool) -> int:
    doomed = api.doomed(session, found) if checkpoints else None
    others = _others(session, found)
    which = f"job {found.report.job_id}, {found.standing.status.value}"
    which += f"; {_stay(others, 'it')}" if others else ""
    if doomed is not None:
        screen.err(doomed_lines(screen, found, doomed))
    what = f"{goes_words(doomed)} and the" if doomed is not None and doomed.removed.names else "the"
    if not agreed(screen, f"Delete {what} records and logs of {found.report.run} ({which})?", yes):
        screen.err(["Nothing was deleted."])
        _done(screen, "delete", found)
        return Exit.INTERRUPTED
    left = [f"kept: {kept}"] if doomed is None and (kept := kept_line(found)) else []
    if doomed is not None:
        removed = api.delete_checkpoints(session, found, doomed)
        screen.out([f"deleted {goes_words(doomed)} on {found.machine}: {harmless(removed.path)}"])
    found = api.delete(session, found)
    screen.out([f"deleted the records and logs of {found.report.run}, job {found.report.job_id}", *left])
    if others:
        rows = [(ago(one.report.age_s), one.report.job_id[:8]) for one in others[:3]]
        ways = next_lines(tuple(Way(f"from {age}", f"aicrun delete {job}") for age, job in rows))
        screen.out([f"{_stay(others, found.report.run)}:", *ways])
    if screen.json:
        more = {} if doomed is None else {"checkpoints": api.as_json(doomed.removed)}
        screen.document("delete", {**api.document_of(found), **more})
    return Exit.DONE
