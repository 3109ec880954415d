"""The commands that a plan tells people to type. It must not run or check any."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from aicrun.plan.model import Plan
from aicrun.spec.model import RunSpec

_CONTRARY = {"--again": "--fresh", "--fresh": "--again"}
# A start that was made is not asked for again by them: --again would train anew where only an upload is left.
_ONCE = ("--again", "--fresh", "--replace", "--forget")
_CHOICE = ("--only", "--skip")


def typed(verb: str, spec: RunSpec, *extra: str) -> str:
    """`aicrun VERB FILE` with all that the run was asked for with, and what the way out adds to that."""
    return _whole(verb, (spec.file or "run.yaml",), spec, extra)


def typed_for_all(verb: str, plan: Plan, *extra: str) -> str:
    """As `typed`, for every run of a plan: all its files, and the choice that was made among their runs."""
    files = plan.options.files or tuple(dict.fromkeys(item.spec.file or "run.yaml" for item in plan.runs))
    narrower = any(part in _CHOICE for part in extra)
    choice = () if narrower else tuple(part for pair in plan.options.choice for part in pair)
    first = plan.runs[0].spec if plan.runs else None
    return _whole(verb, files or ("run.yaml",), first, (*choice, *extra))


def narrowed(plan: Plan, runs: Iterable[str]) -> tuple[str, ...]:
    """The shorter way to say that only `runs` of the plan are meant, among all the runs of its files."""
    wanted = tuple(runs)
    others = tuple(item.run for item in plan.runs if item.run not in wanted)
    if len(wanted) <= len(others):
        return tuple(part for run in wanted for part in ("--only", run))
    choice = tuple(part for pair in plan.options.choice for part in pair)
    return (*choice, *(part for run in others for part in ("--skip", run)))


def of_run(verb: str, run: str, *extra: str) -> str:
    """`aicrun VERB RUN …`."""
    return " ".join(shlex.quote(part) for part in ("aicrun", *verb.split(), run, *extra))


def asked(spec: RunSpec) -> tuple[str, ...]:
    """The options that make this run of its file, for its record; not those that were meant for one start alone."""
    overrides = (part for override in spec.overrides for part in ("--set", override))
    return (*overrides, *(part for option in spec.said if option[0] not in _ONCE for part in option))


def typed_again(verb: str, file: str, told: tuple[str, ...], *extra: str) -> str:
    """`aicrun VERB FILE` with what `asked` gave when the run was started, and what the way out adds to that."""
    added = (part for part in extra if part not in told)
    return " ".join(shlex.quote(part) for part in ("aicrun", verb, file or "run.yaml", *told, *added))


def _whole(verb: str, files: tuple[str, ...], spec: RunSpec | None, extra: tuple[str, ...]) -> str:
    parts = ["aicrun", verb, *files]
    overrides, said = (spec.overrides, spec.said) if spec is not None else ((), ())
    parts += [part for override in overrides for part in ("--set", override)]
    given = {*extra, *(_CONTRARY[part] for part in extra if part in _CONTRARY)}
    # What the way out says itself is not said twice, and not against it.
    parts += [part for option in said if option[0] not in given or len(option) > 1 for part in option]
    return " ".join(shlex.quote(part) for part in (*parts, *extra))
