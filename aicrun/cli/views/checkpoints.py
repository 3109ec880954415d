"""The table of `checkpoints`: what nobody wrote down has no column, and what does not fit gives way."""

from __future__ import annotations

import shlex

from aicrun import api
from aicrun.cli.screen import Screen, styled
from aicrun.plan.words import cells, counted, cut, duration, harmless, size, some

_NAME_LEAST = 12
_COLOURS = {"yes": "green", "settled": "green", "no": "red", "writing": "yellow", "other": "yellow"}
_REASONS_MOST = 3
# A trainer that keeps few writes the next one before it removes one.
_ROOM_LEAST = 2
_WIDE = 120
# What gives way first where a table would be wider than the screen; a name mostly tells the step too.
_GIVE_WAY = ("to", "model", "inference", "id", "files", "step", "eval", "loss")
# Its head, whether it holds figures, and a text for each row.
_Column = tuple[str, bool, list[str]]


def checkpoint_lines(screen: Screen, found: api.Found, seen: api.Checkpointed) -> list[str]:
    """One row a checkpoint, newest first; then the totals, what is not whole, and the commands to go on with."""
    rows = tuple(sorted((*seen.checkpoints, *seen.elsewhere), key=lambda one: one.age_s))
    if not rows:
        where = f": {harmless(seen.path)} on {found.machine} is empty or not there" if seen.path else ""
        return [f"{harmless(found.report.run)} has saved no checkpoint{where}."]
    shown = _table(screen, _columns(screen, found, seen, rows), rows)
    shown += ["", *_totals(screen, found, seen)]
    shown += _room(found, seen)
    shown += [f"{counted(seen.omitted, 'older one')} not shown."] if seen.omitted else []
    shown += _models(screen, found.machine, seen.checkpoints)
    kept = found.report.checkpoints
    # One that is being written, or was seen to be half, is nothing to promise.
    sure = [one.name for one in rows if one.complete in ("yes", "settled")]
    if kept is not None and kept.start in sure and found.standing.status is not api.Status.SUCCEEDED:
        shown.append(f"The next start resumes from {harmless(kept.start)}.")
    bad = [one for one in seen.checkpoints if one.complete in ("no", "other")]
    for one in bad[:_REASONS_MOST]:
        what = "is not whole" if one.complete == "no" else "is none of this run's"
        words = f"{_name(one)} {what}: {harmless(one.why)}"
        shown.append(styled("yellow", cut(words, screen.width, screen.mark)))
    if len(bad) > _REASONS_MOST:
        shown.append(styled("yellow", f"and {len(bad) - _REASONS_MOST} more that are no whole ones of this run"))
    return shown + _ways(found, seen)


def _totals(screen: Screen, found: api.Found, seen: api.Checkpointed) -> list[str]:
    total = sum(one.bytes for one in seen.checkpoints)
    free = f"; {size(seen.free_bytes)} free there" if seen.free_bytes is not None else ""
    keep = f"; keep: {seen.keep}" if seen.keep else ""
    shown = [f"{counted(len(seen.checkpoints), 'checkpoint')} on {found.machine}, {size(total)}{free}{keep}."]
    if seen.elsewhere:
        words = f"{counted(len(seen.elsewhere), 'more', 'more')} verified at {harmless(seen.destination)}"
        shown.append(cut(f"{words}.", screen.width, screen.mark))
    return shown


def _room(found: api.Found, seen: api.Checkpointed) -> list[str]:
    """That the run will soon have no room for what it saves next; nothing of it is known before one is whole."""
    whole = [one for one in seen.checkpoints if one.complete in ("yes", "settled") and one.bytes]
    if found.standing.status.terminal or seen.free_bytes is None or not whole:
        return []
    times = seen.free_bytes // whole[0].bytes
    if times >= _ROOM_LEAST:
        return []
    room = "one more" if times else "no more"
    return [
        styled("yellow", f"There is room for {room} of {size(whole[0].bytes)}; a full disk cuts the next one short.")
    ]


def _ways(found: api.Found, seen: api.Checkpointed) -> list[str]:
    run, whole = found.called, [one for one in seen.checkpoints if one.complete in ("yes", "settled")]
    shown = [f"  fetch the newest  aicrun fetch {run}"] if whole else []
    missing = [one for one in whole if one.uploaded_age_s is None]
    if seen.destination and missing and found.standing.status.terminal:
        name = "latest" if missing[0].name == "." else shlex.quote(harmless(missing[0].name))
        shown.append(f"  upload one        aicrun upload {run} {name}")
    return shown


def _table(screen: Screen, columns: list[_Column], rows: tuple[api.Checkpoint, ...]) -> list[str]:
    widths = [max(map(cells, (head, *texts))) for head, _, texts in columns]
    for least in _GIVE_WAY:
        at = next((at for at, (head, _, _) in enumerate(columns) if head == least), None)
        if at is not None and sum(widths) + 2 * (len(widths) - 1) > screen.width:
            del columns[at], widths[at]
    # A long name gives way before a figure does.
    widths[0] = max(_NAME_LEAST, min(widths[0], screen.width - sum(widths[1:]) - 2 * (len(widths) - 1)))
    shown = [_line(screen, [(head, right) for head, right, _ in columns], widths)]
    for row, one in enumerate(rows):
        texts = [(column[row], right) for _, right, column in columns]
        shown.append(_line(screen, texts, widths, one.complete))
    return shown


def _columns(
    screen: Screen, found: api.Found, seen: api.Checkpointed, rows: tuple[api.Checkpoint, ...]
) -> list[_Column]:
    """Those that would be empty in all rows are left out."""
    columns: list[_Column] = [
        ("checkpoint", False, [_name(one) for one in rows]),
        ("step", True, [_number(one.step) for one in rows]),
        ("loss", True, [_number(one.train_loss) for one in rows]),
        ("eval", True, [_number(one.eval_loss) for one in rows]),
        ("size", True, [size(one.bytes) for one in rows]),
        ("files", True, [str(one.files) for one in rows]),
        ("age", True, [duration(one.age_s) for one in rows]),
        ("complete", False, [one.complete for one in rows]),
    ]
    if seen.destination:
        columns.append((f"on {found.machine}", False, [one.on_host for one in rows]))
    columns.append(("uploaded", False, [_uploaded(one) for one in rows]))
    if screen.width >= _WIDE:
        columns.insert(1, ("id", False, [one.id or "-" for one in rows]))
        columns.append(("inference", False, ["ready" if one.inference_ready else "-" for one in rows]))
        columns.append(("model", False, [harmless(one.model) or "-" for one in rows]))
        columns.append(("to", False, [_address(seen, one) for one in rows]))
    return [column for column in columns if column[0] == "uploaded" or set(column[2]) != {"-"}]


def _uploaded(one: api.Checkpoint) -> str:
    return "-" if one.uploaded_age_s is None else f"verified {duration(one.uploaded_age_s)} ago"


def _address(seen: api.Checkpointed, one: api.Checkpoint) -> str:
    """Where its copy lies, for one that has a copy."""
    if one.uploaded_age_s is None or not seen.destination:
        return "-"
    below = "" if one.name == "." else harmless(one.name)
    joint = "" if seen.destination.endswith(("/", ":")) else "/"
    return f"{harmless(seen.destination)}{joint}{below}"


def _line(screen: Screen, texts: list[tuple[str, bool]], widths: list[int], complete: str = "") -> str:
    parts = []
    for (text, right), width in zip(texts, widths, strict=True):
        shown = cut(text, width, screen.mark)
        pad = " " * max(0, width - cells(shown))
        filled = pad + shown if right else shown + pad
        parts.append(styled(_COLOURS[complete], filled) if complete and text == complete else filled)
    return "  ".join(parts).rstrip()


def _models(screen: Screen, machine: str, rows: tuple[api.Checkpoint, ...]) -> list[str]:
    """What model they are, and which can be loaded for inference as they are."""
    told = {f"{one.model} ({one.version})" if one.version else one.model for one in rows if one.model}
    models = sorted(map(harmless, told))
    ready = [_name(one) for one in rows if one.inference_ready]
    shown = [f"Model: {some(models, 3)}."] if models else []
    every = len(ready) == len(rows) > 1
    shown += [f"Ready for inference: {f'all on {machine}' if every else some(ready, 3)}."] if ready else []
    return [cut(line, screen.width, screen.mark) for line in shown]


def _name(one: api.Checkpoint) -> str:
    return "(top folder)" if one.name == "." else harmless(one.name)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.4g}"
