"""The tables of `list` and `machines`, in 80 columns. Only the status is coloured; a silent machine changes none."""

from __future__ import annotations

from aicrun import api
from aicrun.cli.screen import Screen, styled
from aicrun.cli.views.endings import step_progress
from aicrun.plan.words import ago, card_model, cells, count, counted, cut, duration, gib, harmless, name, ordinal, size

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
_LEAST = (10, 11, 8, 8, 6, 6)
_NAME_LEAST = 12
_DETAIL_LEAST = 18


def list_lines(screen: Screen, listing: api.Listing, everything: bool) -> list[str]:
    """One row a job, newest first; then what is missing from the table."""
    rows = [_row(found) for found in listing.jobs]
    widths = [max([least, *(cells(row[at]) for row in rows)]) for at, least in enumerate(_LEAST)]
    # A long name gives way before the detail does.
    widths[0] = max(_NAME_LEAST, min(widths[0], screen.width - sum(widths[1:-1]) - min(widths[-1], _DETAIL_LEAST) - 11))
    none = "No runs here yet. Start one: aicrun apply run.yaml"
    if listing.silent:
        none = "No run is known of the machines that answer."
    shown = [_line(screen, _HEADS, widths, "")] if rows else [none]
    for row, found in zip(rows, listing.jobs, strict=True):
        shown.append(_line(screen, row, widths, _COLOURS.get(found.standing.status, "")))
    shown += [""] if listing.silent or listing.omitted else []
    shown += [
        styled("yellow", f"{machine} does not answer: its runs are not shown ({harmless(why)}).")
        for machine, why in listing.silent
    ]
    if listing.omitted:
        more = "" if everything else "  more: aicrun list --all"
        shown.append(f"{count(len(rows))} of {count(len(rows) + listing.omitted)} runs.{more}")
    return shown


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
    if standing.status is api.Status.ENQUEUED and report.line is not None and report.line.position:
        return f"{ordinal(report.line.position)} in line"
    if standing.status is api.Status.SUCCEEDED:
        return ago(report.ended_age_s) if report.ended_age_s is not None else ""
    if standing.status is api.Status.STOPPED and report.stop is not None:
        return f"by {name(report.stop.by)}"
    if standing.reason == "exit_code" and standing.code is not None:
        return f"exit_code {standing.code}"
    if standing.reason == "signal" and standing.signal is not None:
        return f"signal {standing.signal}"
    return harmless(standing.reason or standing.phase or standing.why)


def _line(screen: Screen, row: tuple[str, ...], widths: list[int], colour: str) -> str:
    parts, used = [], 0
    for at, (text, width) in enumerate(zip(row, widths, strict=True)):
        last = at == len(row) - 1
        room = max(6, screen.width - used - 1) if last else width
        shown = cut(text, room, screen.mark)
        pad = " " * max(0, width - cells(shown))
        used += width + 2
        filled = shown if last else (pad + shown if _RIGHT[at] else shown + pad)
        parts.append(styled(colour, filled) if at == 1 else filled)
    return "  ".join(parts).rstrip()


def machines_lines(screen: Screen, fleet: api.Fleet, took_s: float) -> list[str]:
    """Each machine with its cards below it, then the counts."""
    shown = [f"{'card':<10}  {'model':<12} {'free of size':<17} {'util':>4}  {'temp':>4}  held by"]
    cards = free = 0
    for view in fleet.machines:
        shown += _machine_lines(screen, view)
        for row, is_free in _card_rows(screen, view):
            cards, free = cards + 1, free + is_free
            shown.append(row)
    counts = f"{counted(len(fleet.machines), 'machine')}, {counted(cards, 'card')}, {free} free."
    return [*shown, "", f"{counts} Measured now, in {took_s:.1f}s."]


def _machine_lines(screen: Screen, view: api.MachineView) -> list[str]:
    head = f"{view.machine.name:<12}"
    reading = view.reading
    if reading is None:
        words = view.why if view.state in ("down", "excepted") else f"no answer: {harmless(view.why)}"
        text = cut(f"{head}{words}", screen.width, screen.mark)
        return [text if view.state == "down" else styled("yellow", text)]
    parts = [f"{name(reading.account)}@{name(reading.hostname)}"]
    if reading.cards.driver:
        parts.append(f"driver {harmless(reading.cards.driver)}")
    parts += [counted(reading.cpus, "core"), gib(reading.memory_mib)]
    parts += [f"{size(disk.free_bytes)} on {harmless(disk.path)}" for disk in reading.disks[:1]]
    shown = [cut(head + ", ".join(parts), screen.width, screen.mark)]
    if reading.cards.state != "devices":
        word = "no card" if reading.cards.state == "none" else "cards unknown"
        why = harmless(reading.cards.detail or reading.cards.reason)
        shown.append(cut(f"  {word}: {why}", screen.width, screen.mark))
    return shown


def _card_rows(screen: Screen, view: api.MachineView) -> list[tuple[str, bool]]:
    rows = []
    for card in view.reading.cards.cards if view.reading is not None else ():
        holder = _holder(card)
        known = card.vram_free_mib is not None and card.processes_listed
        words = holder or ("free" if known else "unknown: nobody can say who is on it")
        memory = "-"
        if card.vram_free_mib is not None and card.vram_total_mib is not None:
            memory = f"{card.vram_free_mib / 1024:.1f} of {gib(card.vram_total_mib)}"
        util = "-" if card.utilization_percent is None else f"{card.utilization_percent}%"
        heat = "-" if card.temperature_c is None else f"{card.temperature_c} C"
        index, model = f"[{card.index}]", card_model(card.model)
        text = f"  {index:<8}  {model:<12} {memory:<17} {util:>4}  {heat:>4}  {words}"
        line, is_free = cut(text, screen.width, screen.mark), known and not holder
        rows.append((styled("green", line) if is_free else line, is_free))
    return rows


def _holder(card: object) -> str:
    holder = getattr(card, "holder", None)
    if holder is not None:
        who = "you" if holder.yours else name(holder.account)
        return f"run {name(holder.run)} of {who}, {duration(holder.age_s)}"
    processes = [process for process in getattr(card, "processes", ()) if process.kind == "compute"]
    if processes:
        first = processes[0]
        return f"pid {first.pid} {name(first.name)} of {name(first.user)}"
    return ""
