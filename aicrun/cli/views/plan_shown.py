"""Puts the plan's screen on stdout: with colours through rich where there are any, as plain text elsewhere.

What the files were warned of goes to stderr, below the plan's evidence: the first line of a screen is its answer.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from types import TracebackType

from rich.text import Text

from aicrun.cli.screen import Screen
from aicrun.cli.views.diagnostics import as_lines
from aicrun.cli.views.plan_human import closing_screen, plan_screen
from aicrun.plan.model import Plan, Sign
from aicrun.plan.words import counted
from aicrun.spec.diagnostics import Diagnostic


class Warned:
    """The warnings of the files of one call, told once: behind a plan, or at the latest when the call ends."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._found: list[Diagnostic] = []

    def add(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Keep some to be told."""
        self._found += diagnostics

    def tell(self) -> None:
        """Tell all, after an empty line."""
        if self._found:
            self._screen.err(["", *as_lines(self._found)])
        self._found = []

    def count(self) -> None:
        """Where nothing is to be done they are no news: tell only how many there are, and what shows them."""
        if self._found:
            files = dict.fromkeys(one.span.file for one in self._found)
            shown = " ".join(["aicrun validate", *map(shlex.quote, files)])
            self._screen.err(["", f"{counted(len(self._found), 'warning')} of the files: {shown}"])
        self._found = []

    def __enter__(self) -> Warned:
        """As it is."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Tell what was not told yet, before the error that is on its way."""
        if self._found:
            self._screen.err([*as_lines(self._found), ""])
        self._found = []


def show_plan(screen: Screen, plan: Plan, verbose: bool, warned: Warned | None = None, closing: bool = True) -> None:
    """Print the plan, without its last lines when a question follows them; nothing with `--json`."""
    if screen.json:
        return
    looks = {"width": screen.width, "verbose": verbose, "ascii": screen.ascii}
    kept = all(item.sign is Sign.KEEP for item in plan.runs)
    _print(screen, plan_screen(plan, **looks, closing=False))  # type: ignore[arg-type]  # each has its own type
    if warned is not None:
        (warned.tell if verbose or not kept else warned.count)()
    if closing or kept:
        screen.out([""])
        _print(screen, closing_screen(plan, **looks))  # type: ignore[arg-type]  # the same


def _print(screen: Screen, text: Text) -> None:
    if not screen.out_colour:
        screen.out(text.plain.rstrip("\n").split("\n"))
        return
    # Only here: rich's console costs as much as all the rest, and a pipe does not need it.
    from rich.console import Console

    console = Console(file=sys.stdout, width=max(screen.width, 400), highlight=False, markup=False, emoji=False)
    console.print(text, soft_wrap=True, end="" if text.plain.endswith("\n") else "\n")
    sys.stdout.flush()
