"""The tables of `list` and `machines`, in 80 columns. Only the status is coloured; a silent machine changes none."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from aicrun import api
from aicrun.cli.screen import PROSE_COLUMNS, Screen, styled
from aicrun.cli.views.endings import step_progress
from aicrun.cli.views.keeping import sweep_lines
from aicrun.plan.kept_cards import gone, gone_words, keeps
from aicrun.plan.records import attempt_words
from aicrun.plan.words import (
    ago,
    card_model,
    carried_by,
    cells,
    count,
    counted,
    cut,
    drained,
    duration,
    gib,
    harmless,
    key_lines,
    models,
    name,
    no_answer,
    ordinal,
    short,
    size,
    some,
)

_COLOURS = {
    api.Status.SUCCEEDED: "green",
    api.Status.IN_PROGRESS: "green",
    api.Status.FAILED: "red",
    api.Status.REJECTED: "red",
    api.Status.STOP_FAILED: "red",
    api.Status.UNKNOWN: "yellow",
    api.Status.BUILDING: "yellow",
    api.Status.ENQUEUED: "yellow",
    api.Status.SCHEDULING: "yellow",
    api.Status.STOP_IN_PROGRESS: "yellow",
}
_HEADS = ("run", "status", "card", "progress", "for", "detail")
_RIGHT = (False, False, False, True, True, False)
_WIDE_HEADS = ("run id", "loss", "peak", "labels")
_WIDE_RIGHT = (False, True, True, False)
_WIDE = 120
_CARD_HEADS = ("card", "model", "free of size", "util", "temp")
_NAME_LEAST = 12
_DETAIL_LEAST = 18
# So many machines with their cards are still on one screen.
_IN_SIGHT = 8


@dataclass(frozen=True, slots=True)
class _CardRow:
    """One card of `machines`: its columns, and who holds it in forms from the longest to the shortest."""

    columns: tuple[str, ...]
    words: tuple[str, ...]
    is_free: bool


def list_lines(screen: Screen, listing: api.Listing, everything: bool, statuses: tuple[str, ...] = ()) -> list[str]:
    """One row a job, newest first; then what is missing from the table. `statuses` are those that were asked for."""
    wide = screen.width >= _WIDE
    heads, right = (_HEADS + _WIDE_HEADS, _RIGHT + _WIDE_RIGHT) if wide else (_HEADS, _RIGHT)
    rows = [(*_row(found), *(_more(found) if wide else ())) for found in listing.jobs]
    widths = [max(map(cells, column)) for column in zip(heads, *rows, strict=True)]
    # A long name gives way before the detail does.
    others = sum(widths[1:-1]) + min(widths[-1], _DETAIL_LEAST) + 2 * (len(widths) - 1) + 1
    widths[0] = max(_NAME_LEAST, min(widths[0], screen.width - others))
    table = _Table(screen, widths, right)
    shown = table.lines(heads, "") if rows else [_none(listing, statuses)]
    for row, found in zip(rows, listing.jobs, strict=True):
        shown += table.lines(row, _COLOURS.get(found.standing.status, ""))
    shown += [""] if listing.silent or listing.omitted else []
    for machine, why in listing.silent:
        told = f"{machine} does not answer: its runs are not shown ({harmless(why)})."
        shown += [styled("yellow", line) for line in screen.prose(told)]
    shown += [f"  see why: aicrun doctor {listing.silent[0][0]}"] if listing.silent else []
    if listing.omitted:
        more = "" if everything else f"  more: {' '.join(['aicrun list --all', *_asked(statuses)])}"
        shown.append(f"{count(len(rows))} of {count(len(rows) + listing.omitted)} runs.{more}")
    soon = sweep_lines(listing.jobs)
    return [*shown, "", *soon] if soon else shown


def _asked(statuses: tuple[str, ...]) -> list[str]:
    return [f"--status {shlex.quote(status)}" for status in statuses]


def _none(listing: api.Listing, statuses: tuple[str, ...]) -> str:
    if statuses:
        where = " of the machines that answer" if listing.silent else ""
        return f"No run{where} is {' or '.join(statuses)}. See all: aicrun list"
    if listing.silent:
        return "No run is known of the machines that answer."
    return "No runs here yet. Start one: aicrun apply run.yaml"


def _row(found: api.Found) -> tuple[str, ...]:
    report, standing = found.report, found.standing
    lasted = next((s.exit.duration_s if s.exit else s.age_s for s in report.steps if s.step == "command"), None)
    lasted = lasted if lasted is not None else (report.age_s if not standing.status.terminal else None)
    return (
        name(report.run),
        standing.status.value,
        found.place,
        step_progress(report),
        "-" if lasted is None else duration(lasted),
        _detail(found),
    )


def _detail(found: api.Found) -> str:
    report, standing = found.report, found.standing
    if report.forgotten:
        return "forgotten"
    if standing.status is api.Status.ENQUEUED and report.next_attempt is not None:
        # After what it comes stands in `inspect`: here is room for the countdown alone.
        return harmless(standing.why.partition(",")[0].replace(" of ", "/"))
    if standing.status is api.Status.ENQUEUED and report.line is not None and report.line.position:
        place = ordinal(report.line.position)
        return f"drained, {place}" if report.line.reason == "drained" else f"{place} in line"
    if standing.status is api.Status.SUCCEEDED:
        return ago(report.ended_age_s) if report.ended_age_s is not None else ""
    if standing.status is api.Status.STOPPED and report.stop is not None:
        return f"by {name(report.stop.by)}"
    if standing.reason == "exit_code" and standing.code is not None:
        return f"exit_code {standing.code}"
    if standing.reason == "signal" and standing.signal is not None:
        return f"signal {standing.signal}"
    if standing.status is api.Status.IN_PROGRESS and not report.supervised:
        # More than any figure: whatever it ends with, nobody will know the code.
        return "keeper gone"
    if standing.status is api.Status.IN_PROGRESS and report.stalled_s is not None:
        return f"no output {duration(report.stalled_s)}"
    told = harmless(standing.reason or standing.phase or standing.why)
    again = standing.phase == "training" and report.attempt > 1
    return attempt_words(report).replace(" of ", "/") if again else told


def _more(found: api.Found) -> tuple[str, ...]:
    """What a wide table tells beside: the id to type, since a name is that of its newest job, and the last figures."""
    report = found.report
    peaks = report.sample.get("peaks")
    peak = {**report.facts, **(peaks if isinstance(peaks, dict) else {})}.get("vram_peak_mib")
    labels = report.supervision.get("labels")
    told = [f"{key}={value}" for key, value in labels.items()] if isinstance(labels, dict) else []
    return (
        short(report.run_id),
        harmless(report.progress.get("loss", "")) or "-",
        gib(peak) if isinstance(peak, int) else "-",
        harmless(" ".join(told)) or "-",
    )


class _Table:
    """The rows of `list`: on less than 80 columns a row goes on below itself, elsewhere its last column is cut."""

    def __init__(self, screen: Screen, widths: list[int], right: tuple[bool, ...]) -> None:
        self._screen, self._widths, self._right = screen, widths, right
        # The first column of each further line of a row.
        self._breaks: list[int] = []
        used = 0
        for at, width in enumerate(widths):
            least = min(width, _DETAIL_LEAST) if at == len(widths) - 1 else width
            if at and screen.width < PROSE_COLUMNS and used + least > screen.width:
                self._breaks.append(at)
                used = 2
            used += width + 2

    def lines(self, row: tuple[str, ...], colour: str) -> list[str]:
        """One row; its second column is the status."""
        parts: list[list[str]] = [[]]
        used = 0
        for at, (text, width) in enumerate(zip(row, self._widths, strict=True)):
            if at in self._breaks:
                parts.append([])
                used = 2
            last = at == len(row) - 1
            # One column is left free, as a terminal may break a line that fills it.
            shown = cut(text, max(6, self._screen.width - used - 1) if last else width, self._screen.mark)
            pad = " " * max(0, width - cells(shown))
            used += width + 2
            filled = shown if last else (pad + shown if self._right[at] and at not in self._breaks else shown + pad)
            parts[-1].append(styled(colour, filled) if at == 1 else filled)
        lines = ["  ".join(part).rstrip() for part in parts]
        return [lines[0], *(f"  {line}" for line in lines[1:] if line)]


def machines_lines(screen: Screen, fleet: api.Fleet, took_s: float, closely: bool = False) -> list[str]:
    """Each machine with its cards below it, then the counts; `closely`: with the way there and its host key."""
    rows = {view.machine.name: [_card_row(card, view) for card in _cards(view)] for view in fleet.machines}
    every = [row for found in rows.values() for row in found]
    widths = [max(map(cells, column)) for column in zip(_CARD_HEADS, *(row.columns for row in every), strict=True)]
    shown = [_card_line(_CARD_HEADS, widths) + "  held by"] if every else []
    for view in fleet.machines:
        head, *more = _machine_lines(screen, view)
        shown += [head, *(_way_lines(screen, view) if closely else ()), *more]
        shown += [f"{'':<12}see why: aicrun doctor {view.machine.name}"] if view.state == "silent" else []
        for row in rows[view.machine.name]:
            line = _with_holder(_card_line(row.columns, widths), row.words, screen)
            shown.append(styled("green", line) if row.is_free else line)
    cards, free = len(every), sum(row.is_free for row in every)
    machines = len([view for view in fleet.machines if view.state != "twin"])
    counts = f"{counted(machines, 'machine')}, {counted(cards, 'card')}, {free} free."
    which = f" machines.yaml: {short(fleet.inventory_digest)}." if fleet.inventory_digest else ""
    silent = [view.machine.name for view in fleet.machines if view.state in ("silent", "unsupported")]
    # Their lines may have left the screen by now.
    told = len(fleet.machines) > _IN_SIGHT and silent
    missing = [styled("yellow", f"No answer from {some(silent)}.")] if told else []
    return [*shown, "", *missing, f"{counts} Measured now, in {took_s:.1f}s.{which}"]


def _way_lines(screen: Screen, view: api.MachineView) -> list[str]:
    """How an ssh entry was reached, and the key to compare with the machine's own."""
    if view.reached is None:
        return []
    # Where it is stands in the line above.
    way = harmless(carried_by(view.reached))
    keys = key_lines(view.reached) if view.reading is not None else ()
    rows = [("by", way), *zip(("key", *[""] * len(keys)), keys, strict=False)]
    return [cut(f"  {label:<{_NAME_LEAST - 2}}{text}", screen.width, screen.mark) for label, text in rows]


def _machine_lines(screen: Screen, view: api.MachineView) -> list[str]:
    head = f"{view.machine.name:<{_NAME_LEAST - 1}} "
    reading = view.reading
    if reading is None:
        words = view.why if view.state in ("down", "excepted") else f"no answer: {no_answer(view.why, view.reached)}"
        words = f"is {harmless(view.why)}, counted once" if view.state == "twin" else words
        text = cut(f"{head}{words}", screen.width, screen.mark)
        shown = [text if view.state == "down" else styled("yellow", text)]
        if view.seen is not None and view.seen_age_s is not None:
            last = f"last seen {ago(view.seen_age_s)} with {models(view.seen.cards)}"
            shown.append(cut(f"{'':<12}{last}", screen.width, screen.mark))
        return shown
    here = f"{name(reading.account)}@{name(reading.hostname)}"
    parts = [harmless(view.reached.address) if view.reached is not None else here]
    if reading.cards.driver:
        parts.append(f"driver {harmless(reading.cards.driver)}")
    parts += [counted(reading.cpus, "core"), gib(reading.memory_mib)]
    parts += [f"{size(disk.free_bytes)} on {harmless(disk.path)}" for disk in reading.disks[:1]]
    shown = [cut(head + ", ".join(parts), screen.width, screen.mark)]
    if reading.drain is not None:
        shown.append(styled("yellow", cut(f"  {drained(reading.drain)}", screen.width, screen.mark)))
    if reading.cards.state != "devices":
        word = "no card" if reading.cards.state == "none" else "cards unknown"
        why = harmless(reading.cards.detail or reading.cards.reason)
        shown.append(cut(f"  {word}: {why}", screen.width, screen.mark))
    lost = gone(view.machine, reading)
    if lost:
        shown.append(styled("yellow", cut(f"  {gone_words(lost)}", screen.width, screen.mark)))
    return shown


def _cards(view: api.MachineView) -> tuple[api.Card, ...]:
    return view.reading.cards.cards if view.reading is not None else ()


def _card_row(card: api.Card, view: api.MachineView) -> _CardRow:
    holder, kept = _holder(card), keeps(view.machine, card)
    known = card.vram_free_mib is not None and card.processes_listed
    grants = view.reading is not None and view.reading.drain is None
    memory = "-"
    if card.vram_free_mib is not None and card.vram_total_mib is not None:
        memory = f"{card.vram_free_mib / 1024:.1f} of {gib(card.vram_total_mib)}"
    util = "-" if card.utilization_percent is None else f"{card.utilization_percent}%"
    heat = "-" if card.temperature_c is None else f"{card.temperature_c} C"
    columns = (f"  [{card.index}]", card_model(card.model), memory, util, heat)
    free = "kept by owner" if kept else "free" if grants else "nobody, drained"
    if card.display:
        free = f"display; {free}" if kept else f"{free}; display"
    words = holder or ((free,) if known or kept else ("unknown: nobody can say who is on it", "unknown who is on it"))
    return _CardRow(columns, words, known and grants and not holder and not kept)


def _card_line(columns: tuple[str, ...], widths: list[int]) -> str:
    """The columns before the holder; the first is as wide as the names of machines above it."""
    head = columns[0] + " " * (_NAME_LEAST - cells(columns[0]))
    parts = []
    for at, (text, width) in enumerate(zip(columns[1:], widths[1:], strict=True)):
        pad = " " * (width - cells(text))
        parts.append(text + pad if at == 0 else pad + text)
    return head + "  ".join(parts)


def _with_holder(before: str, forms: tuple[str, ...], screen: Screen) -> str:
    """The longest form that has room, the last one cut."""
    room = screen.width - cells(before) - 2
    fitting = next((form for form in forms if cells(form) <= room), cut(forms[-1], max(room, 6), screen.mark))
    return f"{before}  {fitting}"


def _holder(card: api.Card) -> tuple[str, ...]:
    """Who is on the card, in forms from the longest to the shortest; empty when nobody is."""
    holder = card.holder
    if holder is not None:
        whose = f"{name(holder.run)} of {'you' if holder.yours else name(holder.account)}"
        age = duration(holder.age_s)
        return (f"run {whose}, {age}", f"{whose}, {age}", f"{whose}, {age.split(' ')[0]}")
    first = next((process for process in card.processes if process.kind == "compute"), None)
    return (f"pid {first.pid} {name(first.name)} of {name(first.user)}",) if first is not None else ()
