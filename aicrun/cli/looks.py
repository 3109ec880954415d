"""Commands that only look: `list`, `inspect`, `logs`, `wait`. Leaving them never touches a run."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any

import click

from aicrun import api
from aicrun.cli.options import with_json, with_machines, with_unit
from aicrun.cli.safe_text import Bare
from aicrun.cli.screen import Screen
from aicrun.cli.views.endings import ending_lines, headline, last_line, left_lines
from aicrun.cli.views.inspect_yaml import inspect_lines
from aicrun.cli.views.tables import list_lines
from aicrun.cli.waiting import open_session
from aicrun.errors import Exit, UsageError, Way
from aicrun.lifecycle.events import Happening, LogBytes, Remark, StepBegan, StepDone
from aicrun.plan.words import harmless, size
from aicrun.spec.sizes import duration_s

STEPS = ("setup", "preflight", "command", "upload", "early")


@click.command("list", epilog="Example: aicrun list --status failed --all")
@click.option("--all", "everything", is_flag=True, help="Up to 200 runs instead of the 20 newest.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    metavar="STATUS",
    help="Only runs of this status, as the table names it; more than once for several.",
)
@with_machines
@with_json
@click.pass_obj
def list_command(screen: Screen, everything: bool, statuses: tuple[str, ...], machines: str) -> int:
    """List runs of all machines, newest first."""
    wanted = tuple(_status(text) for text in statuses)
    with open_session(screen, machines) as (session, _):
        listing = api.jobs(session, wanted, everything)
    screen.out(list_lines(screen, listing, everything, wanted))
    if screen.json:
        screen.document(
            "list",
            {
                "jobs": [api.document_of(found) for found in listing.jobs],
                "omitted": listing.omitted,
                "silent": [{"machine": machine, "why": why} for machine, why in listing.silent],
            },
        )
    return Exit.DONE if listing.jobs or not listing.silent else Exit.UNREACHABLE


def _status(text: str) -> str:
    plain = text.strip().lower().replace("-", " ").replace("_", " ")
    if plain not in api.STATUSES:
        facts = (("statuses", "\n".join(wrap(", ".join(api.STATUSES), 66))),)
        raise UsageError("AIC-E006", f"there is no status {text}", facts=facts)
    return plain


@click.command("inspect", epilog="Example: aicrun inspect sft-run --env")
@click.argument("run")
@click.option("--env", "with_env", is_flag=True, help="Also the job's environment; secrets by name only.")
@click.option("--diff", "with_diff", is_flag=True, help="Only what its source differed in from its commit.")
@with_machines
@with_json
@click.pass_obj
def inspect_command(screen: Screen, run: str, with_env: bool, with_diff: bool, machines: str) -> int:
    """Everything about one run, as YAML. RUN is a name, an id, four or more of its digits, or NAME@MACHINE."""
    with open_session(screen, machines) as (session, _):
        found = api.find(session, run)
        if with_diff:
            return _diff(screen, found, api.source_diff(session, found))
        env = api.environment(session, found) if with_env else None
        reached = api.reached(session, found)
    screen.out(inspect_lines(found, env, reached))
    if screen.json:
        more = {"reached": None if reached is None else api.as_json(reached), **({} if env is None else {"env": env})}
        screen.document("inspect", {**api.document_of(found), **more})
    return Exit.DONE


def _diff(screen: Screen, found: api.Found, text: bytes | None) -> int:
    """The text alone, so that `git apply` takes it; why there is none is said beside it."""
    if screen.json:
        shown = None if text is None else text.decode("utf-8", "replace")
        screen.document("inspect", {"run": found.report.run, "job": found.report.job_id, "diff": shown})
    elif text is None:
        screen.err([_no_diff(found)])
    else:
        printer = _Printer(screen, False)
        printer.write(text)
        printer.end()
    return Exit.DONE


def _no_diff(found: api.Found) -> str:
    source, run = found.report.source, found.report.run
    if source is None:
        return f"{run} has no source of its own"
    if source.git or (source.commit and not source.dirty):
        return f"the source of {run} is commit {source.commit[:12]} as it is"
    return f"nothing is kept of what differed: {run} has {source.files} files, tree {source.tree[:12]}"


@click.command("logs", epilog="Example: aicrun logs -f sft-run")
@click.argument("run")
@click.option(
    "--tail",
    type=click.IntRange(0, 100_000),
    metavar="LINES",
    default=200,
    show_default=True,
    help="How many last lines.",
)
@click.option("--offset", type=click.IntRange(min=0), metavar="BYTE", default=None, help="From this byte on instead.")
@click.option("-f", "--follow", is_flag=True, help="Go on as it grows; Ctrl-C leaves the run running.")
@click.option(
    "--step",
    type=click.Choice(STEPS),
    metavar="STEP",
    default=None,
    help="The log of setup, preflight, command, upload, or early (uploads meanwhile); default: the command, if begun.",
)
@click.option(
    "--attempt", type=click.IntRange(min=1), metavar="N", default=None, help="Of this attempt; default: the newest."
)
@click.option("--raw", is_flag=True, help="The bytes as they are, also on a terminal.")
@with_machines
@with_json
@click.pass_obj
def logs_command(
    screen: Screen, /, run: str, follow: bool, step: str | None, raw: bool, machines: str, **where: Any
) -> int:
    """Print a run's log, bare: all of it is the host's text."""
    asked = _Asked(where["tail"], where["offset"], where["attempt"] or 0)
    if follow and screen.json:
        raise UsageError(
            "AIC-E006",
            "--follow has no end that one JSON document could wait for",
            ways=(
                Way("what there is now", f"aicrun logs {shlex.quote(run)} --json"),
                Way("then what came after", f"aicrun logs {shlex.quote(run)} --json --offset NEXT_OFFSET"),
            ),
        )
    with open_session(screen, machines) as (session, _):
        found = api.find(session, run)
        printer = _Printer(screen, raw)
        # Nobody asked for one step or attempt alone: the run is meant.
        onward = step in (None, "command") and not asked.attempt
        step = step or _newest_step(found)
        _check_attempt(found, step, asked.attempt)
        if screen.json:
            return _log_document(screen, session, found, step, asked)
        if not follow:
            for data in api.log(session, found, step, *asked.where):
                printer.write(data)
            printer.end()
            screen.err(_not_kept(found, step) if asked.attempt in (0, found.report.attempt) else [])
            return Exit.DONE
        screen.interrupted = left_lines(found)
        _follow(session, found, step, asked, printer, onward)
        # Of this very job, under the name that was typed.
        now = replace(api.find(session, found.report.job_id), key=found.key)
        last = _newest_step(now) if onward else step
        goes_on = [f"the {last} ended, the run goes on: aicrun wait {run}"]
        screen.err([f"{headline(now)}.", last_line(now)] if api.settled(now) else goes_on)
        return Exit.DONE


def _not_kept(found: api.Found, step: str) -> list[str]:
    dropped = sum(item.log_dropped_bytes for item in found.report.steps if item.step == step)
    return [f"{size(dropped)} of this log was not kept"] if dropped else []


def _newest_step(found: api.Found) -> str:
    started = [step.step for step in found.report.steps if step.state != "waiting"]
    # A finished upload says little: what people look for is the command's own log.
    return "command" if "command" in started else (started[-1] if started else "setup")


@dataclass(frozen=True)
class _Asked:
    """Which part of a log: `attempt` 0 is the newest, `offset` None the last `tail` lines."""

    tail: int
    offset: int | None
    attempt: int

    @property
    def where(self) -> tuple[int | None, int, int]:
        """In the order that the api takes."""
        return self.offset, self.tail, self.attempt


def _check_attempt(found: api.Found, step: str, attempt: int) -> None:
    newest = found.report.attempt
    if attempt > newest:
        run = found.report.run
        raise UsageError(
            "AIC-E006",
            f"{run} is at attempt {newest}: there is no attempt {attempt} yet",
            ways=(Way("its newest", f"aicrun logs {found.called} --step {step}"),),
        )


def _follow(session: api.Session, found: api.Found, step: str, asked: _Asked, printer: _Printer, onward: bool) -> None:
    part = api.log_slice(session, found, step, *asked.where)
    printer.write(part.data)
    api.follow_log(session, found, part, printer.tell, onward=onward)
    printer.end()


def _log_document(screen: Screen, session: api.Session, found: api.Found, step: str, asked: _Asked) -> int:
    part = api.log_slice(session, found, step, *asked.where)
    screen.document(
        "logs",
        {
            "run": found.report.run,
            "job_id": found.report.job_id,
            "machine": found.machine,
            "step": part.step or step,
            "attempt": part.attempt,
            "offset": part.offset,
            "next_offset": part.next_offset,
            "eof": part.eof,
            "dropped_bytes": part.dropped_bytes,
            "gap_bytes": part.gap_bytes,
            "text": part.data.decode("utf-8", "replace"),
        },
    )
    return Exit.DONE


class _Printer:
    """Log bytes on stdout: harmless on a terminal, untouched elsewhere or with `--raw`."""

    def __init__(self, screen: Screen, raw: bool) -> None:
        self._screen = screen
        self._bare = Bare() if screen.out_terminal and not raw else None
        self._pauses = False

    def write(self, data: bytes) -> None:
        """Print some bytes of the log."""
        if self._bare is None:
            self._screen.raw(data)
        else:
            sys.stdout.write(self._bare.feed(data))
            sys.stdout.flush()

    def end(self) -> None:
        """Print what was held back."""
        if self._bare is not None:
            sys.stdout.write(self._bare.rest())
            sys.stdout.flush()

    def tell(self, happening: Happening) -> None:
        """The log goes to stdout, remarks to stderr."""
        if isinstance(happening, LogBytes):
            self.write(happening.data)
        elif isinstance(happening, Remark):
            self._screen.err([happening.words])
        elif isinstance(happening, StepBegan) and not self._pauses:
            # Once: a countdown would run through the log.
            self._pauses = True
            self._screen.err([harmless(happening.words)])
        elif isinstance(happening, StepDone):
            self._pauses = False
            self._screen.err([harmless(happening.words)])


@click.command("wait", epilog="Example: aicrun wait sft-run --timeout 2h")
@click.argument("run")
@click.option("--timeout", metavar="DURATION", default="", help="Give up after this long, with exit code 13.")
@with_machines
@with_json
@click.pass_obj
def wait_command(screen: Screen, run: str, timeout: str, machines: str) -> int:
    """Wait until a run ended, and exit as it ended: 0 succeeded, 10 failed, 11 stopped, 12 unknown."""
    seconds = _seconds(timeout)
    with open_session(screen, machines) as (session, _):
        found = api.find(session, run)
        screen.interrupted = left_lines(found)
        found = api.wait(session, found, seconds)
        passed = not api.settled(found)
        code = Exit.WAIT_PASSED if passed else api.exit_of(found)
        if screen.json:
            screen.document("wait", {**api.document_of(found), "passed": passed, "exit": int(code)})
        elif passed:
            screen.err([f"{found.report.run} is {found.standing.status.value} still; {timeout} passed. It goes on."])
        else:
            screen.out(ending_lines(screen, api.ending(session, found)))
    return code


def _seconds(text: str) -> float | None:
    if not text:
        return None
    seconds = duration_s(text)
    if seconds is None:
        raise UsageError(
            "AIC-E006", f"{text} is no duration", ways=(Way("write it like", f"--timeout {with_unit(text, '90s')}"),)
        )
    return seconds
