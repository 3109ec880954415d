"""A plan kept in a file: written without harm to what is there, and held against the world of now.

Every fact that it was made on must still hold. It plans nothing anew.
"""

from __future__ import annotations

import json
import os
import shlex
import stat

from aicrun.errors import PlanStale, UsageError, Way
from aicrun.plan.commands import typed_for_all
from aicrun.plan.model import Fleet, Plan, Wanted
from aicrun.plan.saved import KIND, Moved, moved


class Stale(PlanStale):
    """A saved plan whose world moved; `moved` has each fact with its value then and now, in the plan's order."""

    def __init__(self, path: str, saved: Plan, facts: tuple[Moved, ...]) -> None:
        first = facts[0]
        super().__init__(
            "AIC-E602",
            f"{path} is stale: {first.what} moved",
            ways=(
                Way("review and apply that", typed_for_all("plan", saved, "-o", path)),
                Way("see the old one", f"aicrun show {shlex.quote(path)}"),
            ),
        )
        self.path = path
        self.moved = facts


def write(text: str, path: str) -> None:
    """Write a plan's document to `path`, whole or not at all; an older plan there is replaced, nothing else is.

    Raises `UsageError` when something else stands there or the file cannot be written.
    """
    place = os.path.realpath(path)
    beside = f"{place}.{os.getpid()}.part"
    try:
        if _is_stream(place):
            with open(place, "w", encoding="ascii") as stream:
                stream.write(text)
            return
        _refuse_other(place, path)
        try:
            with open(beside, "x", encoding="ascii") as stream:
                stream.write(text)
            os.replace(beside, place)
        except BaseException:
            _remove(beside)
            raise
    except OSError as error:
        ways = (Way("keep it elsewhere", "aicrun plan run.yaml -o ~/plan.json"),)
        raise UsageError("AIC-E017", f"{path} cannot be written: {error.strerror}", ways=ways) from error


def _is_stream(place: str) -> bool:
    try:
        kind = os.stat(place).st_mode
    except FileNotFoundError:
        return False
    return stat.S_ISCHR(kind) or stat.S_ISFIFO(kind)


def _refuse_other(place: str, path: str) -> None:
    try:
        with open(place, encoding="utf-8") as stream:
            there = json.load(stream)
    except FileNotFoundError:
        return
    except (ValueError, RecursionError):
        # An empty file is nobody's work: a shell's redirection, or mktemp, made it.
        there = {"kind": KIND} if os.path.getsize(place) == 0 else None
    if not isinstance(there, dict) or there.get("kind") != KIND:
        ways = (Way("keep it elsewhere", "aicrun plan run.yaml -o other.json"),)
        raise UsageError("AIC-E013", f"{path} is there already, and is no saved plan", ways=ways)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def check_moved(saved: Plan, now: Fleet, wanted: tuple[Wanted, ...], path: str) -> None:
    """Return when nothing moved; raises `Stale` otherwise."""
    facts = moved(saved, now, wanted)
    if facts:
        raise Stale(path, saved, facts)
