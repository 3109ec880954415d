"""`plan` and `show`: what apply would do, and why. Nothing is changed by either."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

import click

from aicrun import api
from aicrun.cli.options import FILE, with_json, with_machines, with_wishes
from aicrun.cli.screen import Screen
from aicrun.cli.views.plan_json import plan_document
from aicrun.cli.views.plan_shown import Warned, show_plan
from aicrun.cli.waiting import open_session
from aicrun.errors import Exit, UsageError, Way, worst


@dataclass(frozen=True)
class Wishes:
    """What the options of `plan` and `apply` say together; fields are named as the options are."""

    overrides: tuple[str, ...] = ()
    again: bool = False
    fresh: bool = False
    replace: bool = False
    forget: bool = False
    excepted: tuple[str, ...] = ()
    use_kept: bool = False
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    strict: bool = False
    verbose: bool = False

    def options(self, files: Sequence[str]) -> api.Options:
        """What the plan needs to know of them."""
        if self.again and self.fresh:
            ways = (Way("the two of them", "aicrun apply --help"),)
            raise UsageError("AIC-E006", "--again resumes where the spec says, --fresh begins from nothing", ways=ways)
        choice = (*(("--only", run) for run in self.only), *(("--skip", run) for run in self.skip))
        return api.Options(
            self.again, self.fresh, self.replace, self.forget, self.use_kept, files=tuple(files), choice=choice
        )

    def said(self, machines: str) -> tuple[tuple[str, ...], ...]:
        """The options that a command to type next must say again; `--set`, `--only` and `--skip` are kept apart."""
        flags = ("again", "fresh", "replace", "forget", "use_kept", "strict")
        told: tuple[tuple[str, ...], ...]
        told = tuple((f"--{flag.replace('_', '-')}",) for flag in flags if getattr(self, flag))
        told += tuple(("--except", machine) for machine in self.excepted)
        return (*told, ("--machines", machines)) if machines else told

    def load(self, warned: Warned, files: Sequence[str], machines: str) -> api.Loaded:
        """The runs that are meant; what the files are warned of is kept to be told."""
        loaded = api.load(files, self.overrides, self.strict)
        names = [spec.name for spec in loaded.specs]
        facts, ways = (("runs", ", ".join(names)),), (Way("all of them", shlex.join(["aicrun", "plan", *files])),)
        for name in (*self.only, *self.skip):
            if name not in names:
                raise UsageError("AIC-E003", f"the files have no run {name}", facts=facts, ways=ways)
        kept = tuple(s for s in loaded.specs if (not self.only or s.name in self.only) and s.name not in self.skip)
        if not kept:
            raise UsageError("AIC-E003", "no run is left to plan", facts=facts, ways=ways)
        warned.add(loaded.warnings)
        return replace(loaded, specs=tuple(replace(spec, said=self.said(machines)) for spec in kept))


def code_of(plan: api.Plan, applying: bool) -> Exit:
    """The exit code of a plan as it stands: the weightiest of its refusals, else `DONE`."""
    codes = [item.refusal.exit for item in plan.runs if item.refusal is not None]
    if applying:
        codes += [item.apply_refusal.exit for item in plan.runs if item.apply_refusal is not None]
    return worst([Exit(code) for code in codes])


@click.command("plan", epilog="Example: aicrun plan run.yaml -o plan.json && aicrun apply plan.json")
@click.argument("files", nargs=-1, type=FILE, metavar="[FILES]...")
@click.option("-o", "out", metavar="FILE", type=FILE, default="", help="Save the plan, to apply exactly it later.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit 2 when the plan would change something.")
@click.option("--offline", is_flag=True, help="Ask no machine: plan with how each was last seen. Not to be applied.")
@with_wishes
@with_machines
@with_json
@click.pass_obj
def plan_command(
    screen: Screen,
    /,
    files: tuple[str, ...],
    out: str,
    detailed_exitcode: bool,
    offline: bool,
    machines: str,
    **wishes: object,
) -> int:
    """Show what apply would do, every machine's verdict, and why. Changes nothing. FILES default to run.yaml."""
    wanted = Wishes(**wishes)  # type: ignore[arg-type]  # click gives the fields their types
    if out and offline:
        raise UsageError("AIC-E006", "an --offline plan cannot be applied, so that -o does not save it")
    if out and not out.endswith(".json"):
        # By its name apply tells a plan from a spec.
        ways = (Way("write it like", f"-o {shlex.quote(out.rpartition('.')[0] or out)}.json"),)
        raise UsageError("AIC-E006", f"-o {out}: a saved plan is a file whose name ends in .json", ways=ways)
    paths = files or ("run.yaml",)
    with Warned(screen) as warned:
        loaded = wanted.load(warned, paths, machines)
        with open_session(screen, machines, folder_of(paths)) as (session, warnings):
            warned.add(warnings)
            planned = api.plan(session, loaded.specs, wanted.options(paths), wanted.excepted, offline)
        code = code_of(planned.plan, applying=bool(out))
        if out and code is Exit.DONE:
            api.save(planned, out)
        if screen.json:
            screen.document("plan", plan_document(planned.plan))
        else:
            show_plan(screen, planned.plan, wanted.verbose, warned)
    if out:
        done = f"saved: {out}; apply exactly it: aicrun apply {shlex.quote(out)}"
        screen.err([done if code is Exit.DONE else f"not saved: {out} would hold a plan that cannot be applied"])
    if code is Exit.DONE and detailed_exitcode and api.needs_work(planned.plan):
        return Exit.CHANGES_PENDING
    return code


def folder_of(paths: Sequence[str]) -> str:
    """The folder from which the inventory is looked for: that of the first file."""
    return paths[0] if os.path.isdir(paths[0]) else os.path.dirname(os.path.abspath(paths[0]))


@click.command("show", epilog="Example: aicrun show plan.json")
@click.argument("file", type=FILE)
@click.option("-v", "--verbose", is_flag=True, help="One row a card, whole values.")
@with_json
@click.pass_obj
def show_command(screen: Screen, file: str, verbose: bool) -> int:
    """Show a saved plan as it was printed. No machine is asked."""
    if not api.is_saved_plan(file):
        ways = (Way("plan it", f"aicrun plan {shlex.quote(file)}"),)
        raise UsageError("AIC-E015", f"{file} is no saved plan: its name does not end in .json", ways=ways)
    plan = api.read_saved(file)
    if screen.json:
        screen.document("plan", plan_document(plan))
    else:
        show_plan(screen, plan, verbose)
    return code_of(plan, applying=False)
