"""Small changes of a person's machines.yaml that leave every other byte of it as it is: comments, order, blank lines.

Pure: a text in, a text out. Whoever writes it reads it back first (`load_inventory_text`). What is laid out in a way
that these few edits cannot keep is refused, with the line to write by hand.
"""

from __future__ import annotations

import json
import re

from aicrun.errors import UsageError, Way
from aicrun.spec.nodes import Node
from aicrun.spec.source import read

# Plain words that YAML reads as something else than text.
_WORDS = frozenset(("true", "false", "null", "~"))
BEGINNING = "version: 1\nmachines:\n"


def quoted_text(value: str) -> str:
    """`value` as YAML that reads back as that text: plain where that is safe, else in double quotes."""
    if re.fullmatch(r"[A-Za-z_~/][\w@.+/-]*(:\d+)?", value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value)


def with_machine(text: str, file: str, fields: dict[str, str]) -> str:
    """`text` (may be empty) with one more entry behind the last; `fields` in the order they are written.

    Values are written as they are given; the caller quotes. Raises `UsageError` (AIC-E019).
    """
    lines = [f"{'- ' if not number else '  '}{key}: {value}" for number, (key, value) in enumerate(fields.items())]
    if not text.strip():
        return BEGINNING + "".join(f"  {line}\n" for line in lines)
    entries = _entries(text, file)
    last = entries[-1]
    rows = text.splitlines(keepends=True)
    if not rows[-1].endswith("\n"):
        rows[-1] += "\n"
    dash = _dash(last, rows, file)
    at = _last_row(last, rows) + 1
    return "".join((*rows[:at], *(f"{' ' * dash}{line}\n" for line in lines), *rows[at:]))


def with_down(text: str, file: str, name: str, down: bool) -> str:
    """`text` with `down: true` at the machine `name`, or without it. Raises `UsageError` (AIC-E019)."""
    entry = _named(text, file, name)
    word = "true" if down else "false"
    there = entry.at("down")
    if there is not None:
        if down or text[there.start.index - 1 : there.start.index] != " " or _is_flow(entry, text):
            return text[: there.start.index] + word + text[there.end.index :]
        rows = text.splitlines(keepends=True)
        own = rows[there.start.line].split("#")[0].strip() == f"down: {there.text}"
        if own:
            return "".join((*rows[: there.start.line], *rows[there.start.line + 1 :]))
        return text[: there.start.index] + word + text[there.end.index :]
    if not down:
        return text
    if _is_flow(entry, text):
        end = text.rindex("}", entry.start.index, entry.end.index)
        kept = text[:end].rstrip()
        return kept + ", down: true" + text[end:]
    rows = text.splitlines(keepends=True)
    name_node = entry.at("name")
    at = (name_node.end.line if name_node is not None else entry.start.line) + 1
    if not rows[at - 1].endswith("\n"):
        rows[at - 1] += "\n"
    return "".join((*rows[:at], f"{' ' * entry.start.column}down: true\n", *rows[at:]))


def without(text: str, file: str, name: str) -> str:
    """`text` without the machine `name`. Raises `UsageError` (AIC-E019), also for the only one that is left."""
    entry = _named(text, file, name)
    rows = text.splitlines(keepends=True)
    _dash(entry, rows, file)
    if len(_entries(text, file)) == 1:
        raise UsageError(
            "AIC-E019", f"{name} is the only machine of {file}", ways=(Way("remove the file", f"rm {file}"),)
        )
    return "".join((*rows[: entry.start.line], *rows[_last_row(entry, rows) + 1 :]))


def _entries(text: str, file: str) -> list[Node]:
    root = read(text.encode("utf-8"), file).root
    listed = root.at("machines") if root is not None else None
    entries = list(listed.elements()) if listed is not None else []
    if not entries:
        raise _by_hand(file, "it has no list of machines that an entry could be put into")
    return entries


def _named(text: str, file: str, name: str) -> Node:
    for entry in _entries(text, file):
        found = entry.at("name")
        if found is not None and found.text == name:
            return entry
    raise UsageError("AIC-E002", f"no machine is named {name}", facts=(("in", file),))


def _is_flow(entry: Node, text: str) -> bool:
    return text[entry.start.index : entry.start.index + 1] == "{"


def _dash(entry: Node, rows: list[str], file: str) -> int:
    """The column of the entry's dash, which stands on its own line's beginning."""
    before = rows[entry.start.line][: entry.start.column]
    if before.strip() != "-":
        raise _by_hand(file, "its machines do not stand one below the other, each behind a dash")
    return before.index("-")


def _last_row(entry: Node, rows: list[str]) -> int:
    """The last row that holds something of the entry; comments and blank lines behind it are the next one's."""
    last = entry.end.line if entry.end.column else entry.end.line - 1
    last = min(last, len(rows) - 1)
    while last > entry.start.line and (not rows[last].strip() or rows[last].lstrip().startswith(("#", "- "))):
        last -= 1
    return last


def _by_hand(file: str, why: str) -> UsageError:
    return UsageError(
        "AIC-E019", f"{file} cannot be changed by a command: {why}", ways=(Way("change it by hand", file),)
    )
