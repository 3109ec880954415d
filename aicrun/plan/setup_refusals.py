"""The refusals of a plan whose environment cannot be made: a file that is not there, a lock that cannot be used.

It must not decide when to refuse.
"""

from __future__ import annotations

import posixpath

from aicrun.plan import words
from aicrun.plan.commands import typed
from aicrun.plan.locks import LOCK, PYPROJECT
from aicrun.plan.model import Refusal, Way
from aicrun.spec.model import RunSpec

NO_REQUIREMENTS = "AIC-E679"
UNUSABLE_LOCK = "AIC-E683"
NO_LOCK = "AIC-E684"


def no_file(spec: RunSpec, path: str) -> Refusal:
    """A file that the setup names or reads is not there, or is not sent."""
    field = _field(spec)
    where = "the source" if spec.source is not None else "the spec's folder"
    source = spec.source
    facts = [("looked in", words.harmless(source.git) or source.path if source is not None else spec.folder)]
    if field == "project" and not (source is not None and source.git):
        facts.append(("counted", "files that are sent: what git ignores and source.exclude names is none of them"))
    verb = "names" if path not in (LOCK, PYPROJECT) or field == "requirements" else "reads"
    ways = [Way("make it", "uv lock")] if posixpath.basename(path) == LOCK else []
    ways += [Way("then look again", typed("plan", spec)), Way("what it reads", f"aicrun explain setup.{field}")]
    told = f"refused, setup.{field} {verb} {words.harmless(path)}, which is not in {where}"
    return Refusal(NO_REQUIREMENTS if field == "requirements" else NO_LOCK, 4, told, tuple(facts), tuple(ways))


def no_lock(spec: RunSpec) -> Refusal:
    """The file is there and is no lock of uv."""
    name = words.harmless(spec.setup.lock if spec.setup is not None and spec.setup.lock else LOCK)
    told = f"refused, {name} is no lock that uv wrote"
    facts = (("instead", "requirements: takes a requirements file, whoever wrote it"),)
    ways = (Way("make one", "uv lock"), Way("then look again", typed("plan", spec)))
    return Refusal(UNUSABLE_LOCK, 4, told, facts, ways)


def local_sources(spec: RunSpec, packages: tuple[str, ...]) -> Refusal:
    """The lock names packages of a disk that the build will not have at hand."""
    shown = _some(packages)
    if _field(spec) == "project":
        told = f"refused, the lock names packages outside the source: {shown}"
        facts = (("instead", "move them below the source, or name them by an address of git"),)
        return Refusal(UNUSABLE_LOCK, 4, told, facts, (Way("then look again", typed("plan", spec)),))
    told = f"refused, the lock names packages of your disk: {shown}"
    why = (("why", "setup.lock sends two texts and no code"), ("instead", "setup: {project: true} installs the source"))
    ways = (Way("what that does", "aicrun explain setup.project"), Way("then look again", typed("plan", spec)))
    return Refusal(UNUSABLE_LOCK, 4, told, why, ways)


def not_in_wheels(spec: RunSpec, packages: tuple[str, ...]) -> Refusal:
    """The lock names packages that no folder of wheels can stand for."""
    told = f"refused, setup.wheels cannot hold what the lock takes from elsewhere: {_some(packages)}"
    facts = (("instead", "make wheels of them, name them by version in pyproject.toml, then uv lock"),)
    ways = (Way("what it holds", "aicrun explain setup.wheels"), Way("then look again", typed("plan", spec)))
    return Refusal(UNUSABLE_LOCK, 4, told, facts, ways)


def _some(packages: tuple[str, ...]) -> str:
    more = f" and {len(packages) - 3} more" if len(packages) > 3 else ""
    return words.harmless(words.joined(packages[:3]) + more)


def _field(spec: RunSpec) -> str:
    setup = spec.setup
    return "requirements" if setup is None or setup.requirements else "lock" if setup.lock else "project"
