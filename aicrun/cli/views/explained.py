"""What `explain` shows: the meaning of a field or a code, what it wants, examples, and the keys below it."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import Any

from aicrun.cli.screen import PROSE_COLUMNS, styled
from aicrun.plan.words import cells
from aicrun.spec.explain import Explanation


def lines(explained: Explanation) -> list[str]:
    """The explanation, prose at 80 columns."""
    title = (
        f"{styled('bold', explained.topic)}: {explained.title}"
        if explained.title not in ("", explained.topic)
        else styled("bold", explained.topic)
    )
    shown = [title, ""]
    if explained.text and explained.text != explained.title:
        shown += [*textwrap.wrap(explained.text, PROSE_COLUMNS - 2, initial_indent="  ", subsequent_indent="  "), ""]
    if explained.wants:
        shown += [*textwrap.wrap(f"wants     {explained.wants}", PROSE_COLUMNS, **_INDENTS), ""]
    if explained.meanwhile:
        shown += [*textwrap.wrap(f"meanwhile {explained.meanwhile}", PROSE_COLUMNS, **_INDENTS), ""]
    for example in explained.examples:
        first, *rest = example.rstrip("\n").split("\n")
        shown += [f"  example   {first}", *(f"            {line}" for line in rest)]
    shown += [""] if explained.examples else []
    shown += _keys(explained)
    while shown and not shown[-1]:
        shown.pop()
    return shown


_INDENTS: dict[str, Any] = {"initial_indent": "  ", "subsequent_indent": " " * 12}


def _keys(explained: Explanation) -> list[str]:
    if not explained.keys:
        return []
    wide = max(cells(key) for key, _ in explained.keys) + 2
    shown = []
    for key, words in explained.keys:
        needed = " (required)" if key in explained.required else ""
        head = f"  {key:<{wide}}"
        shown += textwrap.wrap(
            head + words + needed, PROSE_COLUMNS, subsequent_indent=" " * cells(head), drop_whitespace=True
        )
    return ["  keys:", *shown]


def document(explained: Explanation) -> dict[str, Any]:
    """The explanation as data."""
    shown = asdict(explained)
    # `kind` is the envelope's own word.
    shown["about"] = shown.pop("kind")
    return {**shown, "keys": [{"key": key, "words": words} for key, words in explained.keys]}
