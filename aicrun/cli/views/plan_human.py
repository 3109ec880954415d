"""The screen of a plan: the answer first, then the evidence, then the commands to type next.

It must not decide or measure: everything it says stands in the plan. All text of hosts was made harmless there, or is
made so here, and stands behind a bar.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.text import Text

from aicrun.cli.views.plan_page import Page, wrapped
from aicrun.cli.views.plan_table import Table
from aicrun.plan.changes import files_words
from aicrun.plan.commands import narrowed, typed, typed_for_all
from aicrun.plan.model import FieldChange, Fleet, Plan, RunPlan, Sign, Way
from aicrun.plan.records import ended_words
from aicrun.plan.source_words import largest_words
from aicrun.plan.words import ago, cells, count, counted, cut, harmless, joined, key_lines, reach_of_names, way_there

NOTE_LINES = 2
# How a block of the agent begins (`agent/notes.py`).
_BLOCK_HEAD = "aicrun: run "
STEP_VALUES = 15
CHANGE_VALUES = 24
CHANGES_MOST = 8
_NOTHING_FITS = 5
_CHANGES = (
    ("execution", Sign.REPLACE, "needs a new start"),
    ("supervision", Sign.CHANGE, "can change in place"),
    ("later", Sign.CHANGE, "acts from the next start on"),
)
_COUNTS: tuple[tuple[str, Callable[[RunPlan], bool]], ...] = (
    ("to start", lambda item: item.sign is Sign.START),
    ("to wait in line", lambda item: item.sign is Sign.WAIT),
    ("to move", lambda item: item.sign is Sign.MOVE),
    ("to change in place", lambda item: item.sign is Sign.CHANGE),
    ("to stop and start", lambda item: item.sign is Sign.REPLACE),
    ("to upload again", lambda item: item.sign is Sign.UPLOAD),
    ("to keep", lambda item: item.sign is Sign.KEEP),
    ("rejected", lambda item: _is_rejected(item)),
    ("refused", lambda item: item.sign is Sign.REFUSE and not _is_rejected(item)),
)


def plan_screen(plan: Plan, *, width: int, verbose: bool, ascii: bool, closing: bool = True) -> Text:
    """The whole screen, each line at most `width` columns but for commands to type.

    `verbose` gives every card its own row and every value in full; `ascii` uses no other characters. Without
    `closing` the counts and the commands to type next are left out, since a question follows.
    """
    page = Page(width, ascii)
    if len(plan.runs) == 1:
        _add_run(page, plan.runs[0], plan.fleet, verbose)
    else:
        _add_many(page, plan, verbose)
    if verbose:
        _add_ways_there(page, plan.fleet)
    if closing:
        page.blank()
        _add_closing(page, plan, verbose)
    return page.text()


def closing_screen(plan: Plan, *, width: int, verbose: bool, ascii: bool) -> Text:
    """The last lines of `plan_screen` alone: the counts, and the commands to type next."""
    page = Page(width, ascii)
    _add_closing(page, plan, verbose)
    return page.text()


def _add_ways_there(page: Page, fleet: Fleet) -> None:
    """Where each entry of the list led, over which carrier, with the host key, and how far a name reaches."""
    page.blank()
    label = "reached"
    for view in fleet.machines:
        if view.reached is not None:
            heard = "" if view.reading is not None else ", no answer"
            keys = key_lines(view.reached) if view.reading is not None else ()
            for text in (f"{view.machine.name}: {way_there(view.reached)}{heard}", *keys):
                page.row(label, text)
                label = ""
    page.row("run names", reach_of_names(len(fleet.machines), fleet.inventory_digest))


def _add_many(page: Page, plan: Plan, verbose: bool) -> None:
    for item in plan.runs:
        _add_headline(page, item)
    if verbose:
        for item in plan.runs:
            page.blank()
            _add_run(page, item, plan.fleet, verbose)
    else:
        for item in plan.runs:
            for line in item.warnings:
                page.blank()
                page.sentence(f"warning: {item.run}: {line}", "yellow")


def _add_headline(page: Page, item: RunPlan) -> None:
    lines = wrapped(f"{item.run}: {item.headline}", page.prose - 2, page.prose - 2)
    style = "red" if item.sign is Sign.REFUSE else ""
    for place, line in enumerate(lines):
        head = page.sign(item.sign) if place == 0 else ("  ", "")
        if place == 0 and line.startswith(item.run):
            page.add(head, (item.run, "bold"), (line[len(item.run) :], style))
        else:
            page.add(head, (line, style))


def _add_run(page: Page, item: RunPlan, fleet: Fleet, verbose: bool) -> None:
    _add_headline(page, item)
    if item.sign is Sign.CHANGE:
        _add_changes(page, item, verbose)
    _add_rows(page, item)
    if item.sign is Sign.CHANGE:
        return
    # A change that is asked for was seen in the refusal before it; a start was not refused, and says so itself.
    hides_changes = item.sign is Sign.KEEP or (item.sign is Sign.REPLACE and not verbose)
    if not hides_changes and item.job is not None and item.changes:
        page.blank()
        _add_changes(page, item, verbose)
    if item.verdicts and _shows_table(item, verbose):
        page.blank()
        Table(page, item, fleet).add(verbose)
    if item.nearest or item.after:
        page.blank()
        if item.nearest:
            page.row("nearest", item.nearest)
        for label, text in item.after:
            page.row(label, text)
    _add_story(page, item, verbose)
    if item.sign in (Sign.START, Sign.WAIT, Sign.MOVE) or verbose:
        _add_notes(page, item, fleet, verbose)
    for line in item.warnings:
        page.blank()
        page.sentence(f"warning: {line}", "yellow")


def _add_rows(page: Page, item: RunPlan) -> None:
    """The rows before the table; what a kept run is at stands right below its answer."""
    rows = list(item.rows)
    while item.sign is Sign.KEEP and rows and not rows[0][0]:
        page.sentence(rows.pop(0)[1], indent=2)
    if rows:
        page.blank()
    for label, text in rows:
        page.row(label, text)


def _shows_table(item: RunPlan, verbose: bool) -> bool:
    """A replaced run stays where it is, and a refused one needs no place: only -v shows their cards."""
    if item.sign in (Sign.START, Sign.WAIT, Sign.MOVE) or _is_rejected(item):
        return True
    return verbose


def _add_story(page: Page, item: RunPlan, verbose: bool) -> None:
    """What will happen, in order, and under which terms."""
    if item.in_order:
        page.blank()
        page.add(("  in order", ""))
    for number, (step, text) in enumerate(item.in_order, 1):
        head = f"  {number} {step:<{STEP_VALUES - 5}} "
        room = (page.width if step == "command" else page.prose) - cells(head)
        lines = wrapped(text, room, room)
        if step == "command" and not verbose:
            lines = _at_most(lines, 1 if page.width < 120 else 2, room, page.mark)
        for place, line in enumerate(lines):
            page.add((head if place == 0 else " " * cells(head), ""), (line, ""))
    if item.sign is Sign.REPLACE and not verbose:
        return
    if item.env or item.terms:
        page.blank()
    if item.env:
        _add_env(page, item)
    for label, text in item.terms:
        page.row(label, text)
    if verbose and item.largest:
        page.row("largest", largest_words(item.largest))


def _at_most(lines: list[str], most: int, room: int, mark: str) -> list[str]:
    """At most `most` lines, the last of them saying that there is more; words stay whole."""
    if len(lines) <= most:
        return lines
    last = lines[most - 1]
    while cells(last) + 1 + len(mark) > room and " " in last:
        last = last.rpartition(" ")[0]
    return [*lines[: most - 1], cut(f"{last} {mark}", room, mark)]


def _add_env(page: Page, item: RunPlan) -> None:
    """Variables as `KEY=value`, broken between them; the two cache folders come first."""
    line, label = "", "env"
    for key, value in item.env:
        part = cut(f"{key}={value}", page.prose - 12, page.mark)
        tried = f"{line}  {part}" if line else part
        if line and cells(tried) > page.prose - 12:
            page.add((f"  {label:<9} ", ""), (line, ""))
            line, label = part, ""
        else:
            line = tried
    page.add((f"  {label:<9} ", ""), (line, ""))


def _add_notes(page: Page, item: RunPlan, fleet: Fleet, verbose: bool) -> None:
    machine = item.machine
    reading = next((view.reading for view in fleet.machines if view.machine.name == machine), None)
    if reading is None or not reading.notes.text.strip():
        return
    lines = [harmless(line) for line in reading.notes.text.rstrip("\n").split("\n")]
    shown = lines if verbose else _notes_of(item.run, lines)
    page.blank()
    page.add((f"  notes of {machine}, text from the host, not checked:", ""))
    for line in shown:
        page.quoted(line)
    rest = max(len(lines), reading.notes.total_lines) - len(shown)
    if rest > 0:
        page.add((f"  ({counted(rest, 'line')} more: aicrun notes {machine})", ""))


def _notes_of(run: str, lines: list[str]) -> list[str]:
    """The first lines of people, and what the run itself left last; else what any run left last."""
    heads = [at for at, line in enumerate(lines) if line.startswith(_BLOCK_HEAD)]
    people = lines[: heads[0]] if heads else lines
    own = [at for at in heads if lines[at].startswith(f"{_BLOCK_HEAD}{run}, ")]
    at = own[0] if own else heads[0] if heads and not people else len(lines)
    end = next((head for head in heads if head > at), len(lines))
    return [*people[:NOTE_LINES], *lines[at : min(at + NOTE_LINES, end)]]


def _add_changes(page: Page, item: RunPlan, verbose: bool) -> None:
    if item.job is not None and not _lives(item):
        _add_changes_since(page, item, ended_words(item.job), verbose)
        return
    for kind, sign, heading in _CHANGES:
        changes = [change for change in item.changes if change.kind == kind]
        if item.sign is Sign.CHANGE and kind == "later":
            return
        if changes and item.sign is not Sign.CHANGE:
            page.add(("  " + heading, ""))
        for change in changes:
            _add_change(page, sign, change, verbose)


def _add_changes_since(page: Page, item: RunPlan, ended: str, verbose: bool) -> None:
    """What differs from a job that has ended: nothing acts on that one any more, and a new start takes all of it."""
    page.add((f"  changed since its last job, {ended}", ""))
    most = len(item.changes) if verbose or len(item.changes) <= CHANGES_MOST else CHANGES_MOST - 1
    for change in item.changes[:most]:
        _add_change(page, None, change, verbose)
    if most < len(item.changes):
        page.add((f"  ({len(item.changes) - most} more: {typed('plan', item.spec, '-v')})", ""))


def _add_change(page: Page, sign: Sign | None, change: FieldChange, verbose: bool) -> None:
    mark = page.sign(sign) if sign is not None else ("  ", "")
    if change.files:
        told = files_words(change.files, len(change.files) if verbose else CHANGES_MOST)
        for place, line in enumerate(wrapped(told, page.prose - CHANGE_VALUES, page.prose - CHANGE_VALUES)):
            head = f"{change.path if place == 0 else '':<{CHANGE_VALUES - 2}}"
            page.add(mark if place == 0 else ("  ", ""), (head, ""), (line, ""))
        return
    old, new = _value(change.old), _value(change.new)
    head = f"{cut(harmless(change.path), 40, page.mark):<{CHANGE_VALUES - 4}}"
    short = f"{old} -> {new}"
    indent = max(CHANGE_VALUES, cells(head) + 4)
    room = page.width - indent
    if cells(short) <= room:
        page.add(mark, (head + "  ", ""), (short, ""))
        return
    if not verbose:
        old, new = _around_difference(old, new, room, page.mark)
    # A whole value is wrapped only with -v; the marks tell the sides apart where colour cannot.
    for side, value in (("-", old), ("+", new)):
        for place, line in enumerate(wrapped(value, room, room)):
            start = mark if side == "-" and place == 0 else ("  ", "")
            label = head if side == "-" and place == 0 else " " * cells(head)
            page.add(start, (label, ""), (f"{side if place == 0 else ' '} {line}", ""))


def _around_difference(old: str, new: str, room: int, mark: str) -> tuple[str, str]:
    """Both values cut to `room` so that their first difference is seen."""
    same = next((place for place, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    skip = max(0, same - room // 2) if same > room - 12 else 0
    begin = mark if skip else ""
    return cut(begin + old[skip:], room, mark), cut(begin + new[skip:], room, mark)


def _value(value: Any) -> str:
    if value is None:
        return "(not set)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(item) for item in value)}]"
    return harmless(str(value).replace("\n", " ")) or '""'


def _add_closing(page: Page, plan: Plan, verbose: bool) -> None:
    folded = len(plan.runs) == 1 and not verbose and _table_is_long(page, plan)
    if all(item.sign is Sign.KEEP for item in plan.runs):
        ended = plan.runs and all(item.job is not None and item.job.phase == "ended" for item in plan.runs)
        page.sentence(
            "Nothing to do." + (" A finished run is not trained again unless you ask for it." if ended else "")
        )
    else:
        _add_counts(page, plan)
    if plan.fleet.offline:
        seen = _last_seen(plan.fleet)
        told = f"this is {seen}" if seen else "and this client has seen none"
        page.sentence(f"Offline: no machine was asked, {told}.", "yellow")
    _add_not_yet(page, plan)
    more = [Way("every card", typed("plan", plan.runs[0].spec, "-v"))] if folded else []
    page.ways([*more, *_ways(plan)])


def _add_not_yet(page: Page, plan: Plan) -> None:
    """What this version cannot carry out, each reason once."""
    runs: dict[str, list[str]] = {}
    for item in plan.runs:
        if item.apply_refusal is not None:
            runs.setdefault(item.apply_refusal.words, []).append(item.run)
    for words, names in runs.items():
        who = names[0] if len(names) == 1 else counted(len(names), "run")
        page.sentence(f"{who} {words}", "yellow", 2)


def _table_is_long(page: Page, plan: Plan) -> bool:
    return len(plan.runs[0].verdicts) > 12 and Table(page, plan.runs[0], plan.fleet).is_folded()


def _ways(plan: Plan) -> list[Way]:
    if len(plan.runs) == 1:
        item = plan.runs[0]
        # What cannot be applied is not offered for applying.
        shut = item.apply_refusal is not None or plan.fleet.offline
        return [way for way in item.ways if not shut or not way.command.startswith("aicrun apply ")]
    able = [item.run for item in plan.runs if item.sign is not Sign.REFUSE and item.apply_refusal is None]
    offline = ("--offline",) if plan.fleet.offline else ()
    ways = [Way("why each", typed_for_all("plan", plan, *offline, "-v"))]
    if plan.fleet.offline or not able:
        return ways
    if len(able) < len(plan.runs):
        ways.append(Way("the rest", typed_for_all("apply", plan, *narrowed(plan, able))))
    else:
        ways.append(Way("do it", typed_for_all("apply", plan)))
    return ways


def _add_counts(page: Page, plan: Plan) -> None:
    counts = [(len([item for item in plan.runs if holds(item)]), words) for words, holds in _COUNTS]
    told = ", ".join(f"{count(number)} {words}" for number, words in counts if number)
    unharmed = "Nothing has been changed."
    living = [item for item in plan.runs if item.sign is Sign.REFUSE and item.job is not None and _lives(item)]
    if len(plan.runs) == 1 and living:
        unharmed = f"Nothing has been changed, {living[0].run} goes on."
    text = f"Plan: {told}. {unharmed}"
    if not plan.fleet.inventory_file:
        text += " No machines.yaml: this machine only."
    page.sentence(text)


def _last_seen(fleet: Fleet) -> str:
    """`lab as of 2h ago`; of many machines the newest and the oldest look; empty when none was ever seen."""
    ages = [(view.seen_age_s, view.machine.name) for view in fleet.machines if view.seen_age_s is not None]
    if len(ages) > 3:
        ages = [min(ages), max(ages)]
    return joined([f"{name} as of {ago(age_s)}" for age_s, name in ages])


def _lives(item: RunPlan) -> bool:
    return item.job is not None and item.job.phase not in ("ended", "never_started")


def _is_rejected(item: RunPlan) -> bool:
    return item.sign is Sign.REFUSE and item.refusal is not None and item.refusal.exit == _NOTHING_FITS
