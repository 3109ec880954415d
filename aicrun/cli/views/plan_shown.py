"""Puts the plan's screen on stdout: with colours through rich where there are any, as plain text elsewhere."""

from __future__ import annotations

import sys

from aicrun.cli.screen import Screen
from aicrun.cli.views.plan_human import plan_screen
from aicrun.plan.model import Plan


def show_plan(screen: Screen, plan: Plan, verbose: bool, closing: bool = True) -> None:
    """Print the plan, without its last lines when a question follows them; nothing with `--json`."""
    if screen.json:
        return
    text = plan_screen(plan, width=screen.width, verbose=verbose, ascii=screen.ascii, closing=closing)
    if not screen.out_colour:
        screen.out(text.plain.rstrip("\n").split("\n"))
        return
    # Only here: rich's console costs as much as all the rest, and a pipe does not need it.
    from rich.console import Console

    console = Console(file=sys.stdout, width=max(screen.width, 400), highlight=False, markup=False, emoji=False)
    console.print(text, soft_wrap=True, end="" if text.plain.endswith("\n") else "\n")
