"""`apply`: load, look, plan, show, ask, carry out, and say what came of it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

import click

from aicrun import api
from aicrun.cli.options import FILE, agreed, with_json, with_machines, with_wishes, with_yes
from aicrun.cli.plans import Wishes, code_of, folder_of
from aicrun.cli.screen import Screen
from aicrun.cli.views.endings import ending_lines, going_lines, left_lines
from aicrun.cli.views.keeping import sweep_lines
from aicrun.cli.views.plan_json import plan_document
from aicrun.cli.views.plan_shown import Warned, show_plan
from aicrun.cli.views.steps import Story
from aicrun.cli.waiting import open_session
from aicrun.errors import Exit, UsageError, Way, worst
from aicrun.lifecycle.events import Happening, StepBegan

_NOTHING_YET = ("Nothing has been started. The same apply may be run again.",)
_MAYBE = ("The start may have arrived. The same apply adopts the run if it started, and starts it if not.",)
_VERBS = {
    api.Sign.START: "Start",
    api.Sign.WAIT: "Start",
    api.Sign.MOVE: "Move",
    api.Sign.REPLACE: "Stop and start",
    api.Sign.CHANGE: "Change",
    api.Sign.UPLOAD: "Upload again",
}


@click.command("apply", epilog="Example: aicrun apply run.yaml --follow --yes")
@click.argument("files", nargs=-1, type=FILE, metavar="[FILES]...")
@click.option("-f", "--follow", is_flag=True, help="Show the log and wait for the end; exit as the run ended.")
@click.option("--fetch", is_flag=True, help="With --follow: bring the newest checkpoint of what succeeded here.")
@click.option("--no-wait", is_flag=True, help="Return as soon as the machine accepted the start.")
@with_yes
@with_wishes
@with_machines
@with_json
@click.pass_obj
def apply_command(screen: Screen, /, files: tuple[str, ...], yes: bool, machines: str, **asked: object) -> int:
    """Carry out what run files, or one saved plan, say. Applying twice gives one job. FILES default to run.yaml."""
    follow, fetch, no_wait = (bool(asked.pop(name)) for name in ("follow", "fetch", "no_wait"))
    wanted = Wishes(**asked)  # type: ignore[arg-type]  # click gives the fields their types
    paths = files or ("run.yaml",)
    if follow and no_wait:
        ways = (Way("follow it later", "aicrun logs -f RUN"),)
        raise UsageError("AIC-E006", "--follow stays to the end, and --no-wait returns at once: keep one", ways=ways)
    if fetch and not follow:
        raise UsageError("AIC-E006", "--fetch is for a run that is followed to its end", ways=(Way("add", "--follow"),))
    screen.interrupted = _NOTHING_YET
    how = How(follow, no_wait, yes, wanted.verbose, fetch)
    if any(api.is_saved_plan(path) for path in paths):
        return _apply_saved(screen, paths, machines, wanted, how)
    with Warned(screen) as warned:
        loaded = wanted.load(warned, paths, machines)
        with open_session(screen, machines, folder_of(paths)) as (session, warnings):
            warned.add(warnings)
            api.settle(session, loaded.specs)
            planned = api.plan(session, loaded.specs, wanted.options(paths), wanted.excepted)
            planned = api.decided(session, planned, Story(screen).tell)
            screen.err([session.ledger.remark] if session.ledger.remark else [])
            return Applying(screen, session, how, warned).run(planned)


def _apply_saved(screen: Screen, paths: tuple[str, ...], machines: str, wanted: Wishes, how: How) -> int:
    if len(paths) > 1 or wanted != Wishes(verbose=wanted.verbose):
        plan = next(path for path in paths if api.is_saved_plan(path))
        ways = (Way("apply it alone", f"aicrun apply {shlex.quote(plan)}"),)
        raise UsageError("AIC-E006", "a saved plan is applied alone and exactly as it was reviewed", ways=ways)
    saved = api.read_saved(paths[0])
    folder = saved.runs[0].spec.folder if saved.runs else "."
    with open_session(screen, machines or saved.fleet.inventory_file, folder) as (session, _):
        planned = api.recheck(session, saved, paths[0])
        return Applying(screen, session, how, Warned(screen), saved=True).run(planned)


@dataclass(frozen=True)
class How:
    """How an apply was asked for."""

    follow: bool
    no_wait: bool
    yes: bool
    verbose: bool
    fetch: bool = False


class Applying:
    """One apply, from the plan shown to the exit code."""

    def __init__(self, screen: Screen, session: api.Session, how: How, warned: Warned, saved: bool = False) -> None:
        self._screen = screen
        self._session = session
        self._how = how
        self._saved = saved
        self._warned = warned
        self._story = Story(screen)

    def run(self, planned: api.Planned) -> int:
        """Show, ask, carry out; the exit code of the whole call."""
        code = code_of(planned.plan, applying=True)
        show_plan(self._screen, planned.plan, self._how.verbose, self._warned, closing=code is not Exit.DONE)
        if code is not Exit.DONE:
            self._refused_by_apply(planned.plan)
            return self._document(planned.plan, (), code)
        if not api.needs_work(planned.plan):
            return self._kept(planned)
        api.check_secrets(self._session, planned.plan)
        self._screen.out([""])
        if not self._agreed(planned):
            self._screen.err(["Nothing has been changed."])
            return self._document(planned.plan, (), Exit.INTERRUPTED)
        second = _Second(self)
        outcomes = api.apply(self._session, planned, second.approve, self._tell, again=not self._saved)
        shown = second.planned or planned
        if not outcomes:
            self._screen.err(
                [] if code_of(shown.plan, applying=True) is not Exit.DONE else ["Nothing has been started."]
            )
            return self._document(shown.plan, (), code_of(shown.plan, applying=True))
        return self._seen_through(shown.plan, outcomes)

    def again(self, planned: api.Planned) -> bool:
        """Whether the second plan, made because the world moved, is carried out."""
        self._screen.err(["the world moved since the plan; planned again:"])
        refused = code_of(planned.plan, applying=True) is not Exit.DONE
        show_plan(self._screen, planned.plan, self._how.verbose, closing=refused)
        if refused:
            return False
        return not api.needs_work(planned.plan) or self._agreed(planned)

    def _tell(self, happening: Happening) -> None:
        """The story; from the first start on, leaving means that it may have arrived."""
        if isinstance(happening, StepBegan) and happening.step != "push":
            self._screen.interrupted = _MAYBE
        self._story.tell(happening)

    def _refused_by_apply(self, plan: api.Plan) -> None:
        for item in plan.runs:
            if item.apply_refusal is not None and item.refusal is None:
                refusal = item.apply_refusal
                error = api.AicrunError(
                    refusal.code,
                    f"{item.run}: {refusal.words}",
                    facts=refusal.facts,
                    ways=tuple(Way(way.what, way.command) for way in refusal.ways),
                )
                # Here, as errors are rare: the view is loaded when one is shown.
                from aicrun.cli.views.trouble import lines

                self._screen.err(lines(error))

    def _agreed(self, planned: api.Planned) -> bool:
        work = [item for item in planned.plan.runs if item.sign is not api.Sign.KEEP]
        first = work[0]
        where = f" on {first.machine}" if first.machine else ""
        question = f"{_VERBS[first.sign]} {first.run}{where}?" if len(work) == 1 else f"Do this for {len(work)} runs?"
        return agreed(self._screen, question, self._how.yes)

    def _kept(self, planned: api.Planned) -> int:
        kept = tuple(
            api.Outcome(item.run, item.sign, api.Found(item.machine, item.job) if item.job is not None else None)
            for item in planned.plan.runs
        )
        if not self._how.follow:
            self._screen.err(sweep_lines([outcome.found for outcome in kept if outcome.found is not None]))
            return self._document(planned.plan, kept, Exit.DONE)
        return self._seen_through(planned.plan, kept)

    def _seen_through(self, plan: api.Plan, outcomes: tuple[api.Outcome, ...]) -> int:
        final, codes = [], []
        for outcome in outcomes:
            found, code = outcome.found, Exit.DONE
            if found is not None:
                self._screen.interrupted = left_lines(found)
                found, code = self._one(outcome, found)
                if self._how.fetch and code is Exit.DONE:
                    code = self._fetched(found)
            final.append(api.Outcome(outcome.run, outcome.sign, found, outcome.adopted))
            codes.append(code)
        return self._document(plan, tuple(final), worst(codes))

    def _fetched(self, found: api.Found) -> Exit:
        """The newest checkpoint brought here; that it cannot be is told, and takes nothing of the run's own end."""
        # Imported here: few applies end with a fetch.
        from aicrun.cli.checkpoints import brought
        from aicrun.cli.views.trouble import lines

        try:
            brought(self._screen, self._session, found)
        except api.AicrunError as error:
            self._screen.err(lines(error))
            return error.exit
        return Exit.DONE

    def _one(self, outcome: api.Outcome, found: api.Found) -> tuple[api.Found, Exit]:
        if outcome.sign is api.Sign.KEEP and not self._how.follow:
            return found, Exit.DONE
        if outcome.sign is api.Sign.CHANGE and not self._how.follow:
            self._screen.out([f"{found.report.run} changed. It is {found.standing.status.value} on {found.machine}."])
            return found, Exit.DONE
        if self._how.follow:
            return self._followed(outcome, found)
        if not self._how.no_wait and outcome.sign is not api.Sign.UPLOAD:
            found = api.until_started(self._session, found, self._story.tell)
        return self._told(found)

    def _followed(self, outcome: api.Outcome, found: api.Found) -> tuple[api.Found, Exit]:
        ended = api.settled(found) and outcome.sign in (api.Sign.KEEP, api.Sign.UPLOAD)
        if not ended:
            self._screen.err([f"following {found.report.run} on {found.machine}; Ctrl-C leaves it running"])
            # A run that went on before is joined at its last lines, a new one is shown from its first byte.
            offset = None if outcome.sign is api.Sign.KEEP or outcome.adopted else 0
            found = api.follow(self._session, found, self._story.tell, offset)
            self._story.flush()
        return self._told(found)

    def _told(self, found: api.Found) -> tuple[api.Found, Exit]:
        if not api.settled(found):
            self._screen.out(["", *going_lines(found)])
            return found, Exit.DONE
        self._screen.out(["", *ending_lines(self._screen, api.ending(self._session, found))])
        return found, api.exit_of(found)

    def _document(self, plan: api.Plan, outcomes: tuple[api.Outcome, ...], code: Exit) -> int:
        if self._screen.json:
            runs = [
                {
                    "run": outcome.run,
                    "action": outcome.sign.name.lower(),
                    "adopted": outcome.adopted,
                    "job": api.document_of(outcome.found) if outcome.found is not None else None,
                }
                for outcome in outcomes
            ]
            self._screen.document("apply", {"exit": int(code), "plan": plan_document(plan), "runs": runs})
        return code


class _Second:
    """Remembers the second plan, if one was made."""

    def __init__(self, applying: Applying) -> None:
        self._applying = applying
        self.planned: api.Planned | None = None

    def approve(self, planned: api.Planned) -> bool:
        """Show the second plan and ask."""
        self.planned = planned
        return self._applying.again(planned)
