"""What `doctor`, `notes` and `gc` show about one machine. The text of findings and notes is the host's."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Sequence
from typing import Any

from aicrun import api
from aicrun.cli.safe_text import line
from aicrun.cli.screen import Screen, styled
from aicrun.cli.views.steps import quoted
from aicrun.cli.views.trouble import next_lines
from aicrun.errors import Way
from aicrun.plan.words import ago, counted, cut, drained, harmless, name, short, size

_COLOURS = {"ok": "green", "note": "yellow", "bad": "red", "?": "yellow"}
_HELP = " " * 17
# What parts the blocks of the agent (`agent/notes.py`) from the lines of people; nothing to read for either.
_BEGINS = re.compile(r"^<!-- aicrun job [0-9a-f]{16} -->$", re.MULTILINE)
_MARKER = re.compile(r"^<!-- (?:end of )?aicrun job [0-9a-f]{16} -->\n", re.MULTILINE)
_BLOCK = re.compile(
    r"^<!-- aicrun job ([0-9a-f]{16}) -->\n.*?^<!-- end of aicrun job \1 -->\n", re.MULTILINE | re.DOTALL
)


def doctor_lines(screen: Screen, machine: str, findings: Sequence[dict[str, str]]) -> list[str]:
    """One line a finding, its word first; a way out below what needs one; the count last."""
    shown = []
    for finding in findings:
        word = finding.get("word", "?")
        head = styled(_COLOURS.get(word, "yellow"), f"{word:<4}")
        first, *more = _wrapped(finding.get("text", ""), screen.width - len(_HELP)) or [""]
        shown.append(f"{head}  {harmless(finding.get('topic', '')):<10} {first}".rstrip())
        shown += [_HELP + text for text in more]
        if word != "ok":
            shown += [_HELP + styled("bold", text) for text in harmless_lines(finding.get("help", ""))]
    counts = [(sum(1 for item in findings if item.get("word") == word), word) for word in ("bad", "note", "?", "ok")]
    nouns = {"bad": "bad", "note": "note", "?": "unknown", "ok": "ok"}
    told = ", ".join(
        counted(number, nouns[word], "notes" if word == "note" else nouns[word]) for number, word in counts if number
    )
    return [*shown, "", f"{machine}: {told}."]


def harmless_lines(text: str) -> list[str]:
    """The lines of a host's text, each harmless, empty ones left out."""
    return [shown for part in text.splitlines() if (shown := harmless(part)).strip()]


def _wrapped(text: str, room: int) -> list[str]:
    return [row for part in harmless_lines(text) for row in textwrap.wrap(part, max(room, 20), break_on_hyphens=False)]


def notes_lines(screen: Screen, machine: str, text: str) -> list[str]:
    """The notes behind bars, under a line that says whose they are; the marks around aicrun's blocks are left out."""
    ways = next_lines((Way("add a line", f'aicrun notes {machine} --add "…"'),))
    if not text.strip():
        return [f"{machine} has no notes yet.", "", *ways]
    blocks = len(_BEGINS.findall(text))
    people = [part for part in _BLOCK.sub("", text).split("\n") if part.strip()]
    lines = [line(part) for part in _MARKER.sub("", text).rstrip("\n").split("\n")]
    whose = f"{counted(len(people), 'line')} by people, {counted(blocks, 'block')} by aicrun"
    head = f"notes of {machine}, {whose}; text from the host:"
    return [head, *quoted(screen, lines, cutting=True), "", *ways]


def gc_lines(
    screen: Screen, machine: str, rows: Sequence[dict[str, Any]], dry_run: bool, older_than: str = ""
) -> list[str]:
    """What goes, how big, and why; then the sum. `older_than` is the duration that was asked for, if one was."""
    shown = []
    for row in rows:
        what, why = _going(row), harmless(str(row.get("why", "")))
        age_s = row.get("ended_age_s")
        why = why.replace("ended", f"ended {ago(age_s)}", 1) if isinstance(age_s, (int, float)) else why
        freed = row.get("bytes", 0)
        shown.append(
            cut(f"  {size(freed if isinstance(freed, int) else 0):>10}  {what}: {why}", screen.width, screen.mark)
        )
    whole = sum(row["bytes"] for row in rows if isinstance(row.get("bytes"), int))
    if not rows:
        return [f"{machine}: nothing to remove."]
    asked = ["--older-than", shlex.quote(older_than)] if older_than else []
    if dry_run:
        return [
            *shown,
            "",
            f"{machine}: {size(whole)} would be removed. Nothing has been changed.",
            *next_lines((Way("do it", " ".join(["aicrun gc", machine, *asked, "--yes"])),)),
        ]
    return [*shown, "", f"{machine}: {size(whole)} removed."]


def _going(row: dict[str, Any]) -> str:
    """`job 7c1e09d2 of sft-run`: what goes, by the name that people know it by."""
    what, run, job = (harmless(str(row.get(key, ""))) for key in ("what", "run", "job_id"))
    return f"{what} {short(job)} of {name(run)}" if run and job else what


def drain_lines(screen: Screen, machine: str, found: api.Drained) -> list[str]:
    """What the mark stops and for whom, what goes on under it, and the way back."""
    going, waiting = counted(found.going, "job goes on", "jobs go on"), counted(found.waiting, "waits", "wait")
    mark = found.drain
    if mark is None:
        stand = f" {counted(found.waiting, 'run')} in line may start now." if found.waiting else ""
        return [f"{machine} starts runs again.{stand}"]
    whose = "any account" if mark.everybody else name(mark.account)
    shown = [cut(f"{machine} is {drained(mark)}.", screen.width, screen.mark)]
    shown.append(f"No new run of {whose} starts there. {going}, {waiting} in line.")
    if not mark.everybody:
        shown.append("Runs of other accounts start as before: only root drains a machine for all.")
    shown.append("A restart of the machine may lift it; down: true in machines.yaml lasts.")
    return [*shown, "", *next_lines((Way("lift it", f"aicrun machines drain {machine} --off"),))]


def left_lines(screen: Screen, machine: str, left: api.Left, by_hand: str) -> list[str]:
    """What lies on a machine, and the commands that would end or remove it; none of them is run.

    `by_hand` is what a command over there is typed behind: `ssh TARGET `, or nothing on this machine.
    """
    shown = [f"On {machine}:"]
    shown += [f"  run {name(run)} has not ended" for run in left.running]
    shown += [
        cut(f"  {size(kib * 1024):>10}  {harmless(path)}", screen.width, screen.mark) for path, kib in left.folders
    ]
    if not left.running and not left.folders:
        return [f"Nothing of aicrun is left on {machine}.", ""]
    ways = [Way(f"end {run}", f"aicrun stop {run}") for run in left.running[:3]]
    own = " ".join(path for path, _ in left.folders if "aic-jobs" not in path)
    # Under a run that goes on its records are not to be taken away.
    if own and not left.running:
        ways.append(Way("remove what is ours there", f"{by_hand}'rm -rf {own}'" if by_hand else f"rm -rf {own}"))
    return [*shown, "", *next_lines(tuple(ways)), ""]
