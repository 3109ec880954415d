"""The last screen of a run: how it ended, by which evidence, what is kept, and where the checkpoint lies.

The very last line always says where the checkpoint is, how big, and the command that fetches it. Nothing here is read
from a log's words.
"""

from __future__ import annotations

import os
import shlex
from textwrap import TextWrapper, wrap
from typing import Any

from aicrun import api
from aicrun.cli.safe_text import line
from aicrun.cli.screen import PROSE_COLUMNS, Screen, plain, styled
from aicrun.cli.views.keeping import sweep_lines
from aicrun.cli.views.steps import quoted
from aicrun.cli.views.trouble import next_lines
from aicrun.errors import Way
from aicrun.lifecycle.events import WARNINGS
from aicrun.plan.commands import typed_again
from aicrun.plan.reconcile import lost_cause, not_uploaded
from aicrun.plan.records import attempt_words
from aicrun.plan.words import cells, count, counted, cut, gib, harmless, name, ordinal, size, took
from aicrun.spec.model import RETRY_WHEN

_WHY_CELLS = 68
_LABEL = 12
_NOTHING = "No checkpoint"

_COLOURS = {
    api.Status.SUCCEEDED: "green",
    api.Status.FAILED: "red",
    api.Status.STOPPED: "yellow",
    api.Status.UNKNOWN: "yellow",
    api.Status.STOP_FAILED: "red",
    api.Status.REJECTED: "red",
}


def ending_lines(screen: Screen, ending: api.Ending) -> list[str]:
    """The whole screen of an ended run."""
    found, standing = ending.found, ending.found.standing
    shown = [headline(found)]
    if standing.status is api.Status.UNKNOWN:
        shown += ["", *_known(found)]
    if standing.status is not api.Status.SUCCEEDED:
        shown += _evidence(screen, ending)
    shown += _rows(found)
    ways = ways_after(found)
    if ways:
        shown += ["", *next_lines(ways)]
    shown = [part for line in shown for part in folded(line)]
    # The very last line holds where, how big and the command, however long that is.
    last = last_line(found, ending.saved)
    return [*shown, *sweep_lines([found]), *(folded(last) if last.startswith(_NOTHING) else [last])]


def folded(line: str) -> list[str]:
    """A line of at most 80 columns as it is, a longer one in several; a command in it stays whole, at its end."""
    if cells(plain(line)) <= PROSE_COLUMNS:
        return [line]
    said, command = line.rstrip(), ""
    if ": aicrun " in line:
        said, _, command = line.rpartition(": aicrun ")
        said, command = f"{said}:", f"aicrun {command}"
    # What stands behind a label stays beside it.
    head = said[:_LABEL] if line.startswith("  ") else ""
    deep = _LABEL if head else 2
    wrapper = TextWrapper(PROSE_COLUMNS, head, " " * deep, break_long_words=False, break_on_hyphens=False)
    lines = wrapper.wrap(said[len(head) :])
    return [*lines, " " * deep + command] if command else lines


def headline(found: api.Found) -> str:
    """`sft-run succeeded on lab in 6h 48m, exit code 0, attempt 1`."""
    report, standing = found.report, found.standing
    status = standing.status.value
    named = f"{status}({standing.reason})" if standing.reason and standing.status is not api.Status.REJECTED else status
    head = f"{styled('bold', harmless(report.run))} {styled(_COLOURS.get(standing.status, ''), named)} on {found.place}"
    lasted = lasted_s(report)
    if standing.status is api.Status.REJECTED:
        return f"{head}: {harmless(standing.why)} ({harmless(standing.reason.replace('_', ' '))})"
    if standing.status is api.Status.UNKNOWN:
        return f"{head}: {harmless(standing.why) or 'nobody recorded its end'}"
    if standing.status is api.Status.STOP_FAILED:
        return f"{head}: {harmless(standing.why)}"
    time = "" if lasted is None else f" {'in' if standing.status is api.Status.SUCCEEDED else 'after'} {took(lasted)}"
    if standing.reason == "upload_failed":
        return f"{head}: training ended with exit code 0"
    by = f" by {harmless(report.stop.by)}" if standing.status is api.Status.STOPPED and report.stop is not None else ""
    parts = [f"{head}{time}{by}", how(standing), attempt_words(report)]
    if standing.status is api.Status.FAILED:
        return f"{parts[0]}: {', '.join(part for part in parts[1:] if part)}"
    return ", ".join(part for part in parts if part)


def how(standing: api.Standing) -> str:
    """The kernel's word on the deciding step, never made up."""
    where = "" if standing.step in ("", "command") else f"{standing.step} "
    if standing.code is not None:
        return f"{where}exit code {standing.code}"
    if standing.signal is not None:
        return f"{where}signal {standing.signal}"
    return harmless(standing.why)


def lasted_s(report: api.JobReport) -> float | None:
    """How long the command ran, by its host's clock; None when it never did or nobody knows."""
    for step in report.steps:
        if step.step == "command":
            return step.exit.duration_s if step.exit is not None else None
    return None


def _known(found: api.Found) -> list[str]:
    shown = []
    seen = [step for step in found.report.steps if step.state != "waiting"]
    if seen:
        shown.append(f"  known     its {seen[-1].step} had started; {attempt_words(found.report)}")
    return [*shown, "            no exit code was recorded; this is neither success nor failure"]


def _evidence(screen: Screen, ending: api.Ending) -> list[str]:
    if not ending.evidence:
        return []
    lines = [line(text) for text in ending.evidence]
    many = "last line" if len(lines) == 1 else "last lines"
    head = f"  evidence, {many} of the {ending.step}'s log, text from the host:"
    return ["", head, *["  " + text for text in quoted(screen, lines, screen.err_terminal)]]


def _rows(found: api.Found) -> list[str]:
    shown = []
    report = found.report
    if report.next_attempt is not None and found.standing.why:
        shown.append(f"  retry     {harmless(found.standing.why)}")
    measured = _measured(report.facts)
    if measured:
        shown.append(f"  measured  {measured}")
    if report.progress:
        shown.append(
            "  progress  " + ", ".join(f"{harmless(key)} {harmless(value)}" for key, value in report.progress.items())
        )
    if report.upload is None and report.early is not None and report.early.verified:
        early = report.early
        newest = f", the newest of them {harmless(early.newest)}" if early.newest else ""
        shown.append(f"  uploaded  {counted(early.verified, 'checkpoint')} while it ran, verified{newest}")
    if report.upload is not None:
        shown.append(uploaded_row(report))
        shown += _left_out(report.upload.skipped)
    shown += [f"  warning   {styled('yellow', words)}" for words in warnings_of(report)]
    dropped = sum(step.log_dropped_bytes for step in report.steps)
    if dropped:
        shown.append(f"  lost      {size(dropped)} of the log")
    kept = _kept(found)
    if kept and found.standing.status is not api.Status.SUCCEEDED:
        shown.append(f"  kept      {kept}")
    return shown


def warnings_of(report: api.JobReport) -> list[str]:
    """What its steps and its history hold that a person should know, in words; the detail is the host's."""
    told = [(WARNINGS[event.event], harmless(event.detail)) for event in report.events if event.event in WARNINGS]
    suspected = [step.exit for step in report.steps if step.exit is not None and step.exit.oom_suspected]
    if suspected:
        own, shared = "of the run was killed for memory", "of the run or beside it was killed for memory"
        told.append((f"a process {shared if suspected[0].oom_shared else own}", ""))
    return [f"{words} ({detail})" if detail else words for words, detail in told]


def _measured(facts: dict[str, Any]) -> str:
    parts = []
    peak, utilization = facts.get("vram_peak_mib"), facts.get("utilization_mean_percent")
    memory = facts.get("memory_peak_mib")
    if isinstance(peak, int):
        parts.append(f"peak {gib(peak)} on the card")
    if isinstance(memory, int):
        parts.append(f"peak {gib(memory)} of memory")
    if isinstance(utilization, (int, float)):
        parts.append(f"mean utilization {utilization:.0f}%")
    rate = facts.get("steps_per_s")
    if isinstance(rate, (int, float)):
        parts.append(f"{rate:.2f} steps/s")
    return ", ".join(parts)


def uploaded_row(report: api.JobReport) -> str:
    """Where the checkpoints were uploaded to, and whether that was verified; empty when they were not to be."""
    upload = report.upload
    if upload is None:
        return ""
    where = harmless(upload.destination)
    if upload.verified:
        return f"  uploaded  {where}, {counted(upload.files, 'file')}, verified"
    return f"  uploaded  {styled('red', 'no')}: {harmless(upload.error) or 'it was not verified'} ({where})"


def _left_out(skipped: tuple[str, ...]) -> list[str]:
    more = f", and {len(skipped) - 1} more" if len(skipped) > 1 else ""
    return [f"  left out  {harmless(skipped[0])}{more}"] if skipped else []


def _kept(found: api.Found) -> str:
    report = found.report
    parts = []
    if report.checkpoints is not None and report.checkpoints.newest:
        newest = report.checkpoints
        parts.append(f"{harmless(newest.newest)}, {size(newest.newest_bytes)} on {found.machine}")
    logged = sum(step.log_bytes for step in report.steps)
    if logged:
        parts.append(f"log, {size(logged)}")
    return "; ".join(parts)


def last_line(found: api.Found, saved: api.Checkpointed | None = None) -> str:
    """Where the newest checkpoint that is whole lies, its size, and the command that brings it here.

    Without `saved` nobody looked which of them are whole: then it is the newest of all.
    """
    kept = found.report.checkpoints
    other = f"for other files: aicrun pull {found.machine}:PATH"
    if kept is None or not kept.path:
        return f"{_NOTHING} folder was recorded for it; {other}"
    if not kept.newest:
        return f"{_NOTHING} was written below {harmless(kept.path)}; {other}"
    newest = next((one for one in saved.checkpoints if one.complete in ("yes", "settled")), None) if saved else None
    if saved is not None and newest is None:
        return f"{_where(found, kept.newest, kept.newest_bytes)}, not whole: {_pull(found)}"
    upload = found.report.upload
    uploaded = upload is not None and upload.verified if newest is None else newest.uploaded_age_s is not None
    name, size_bytes = (kept.newest, kept.newest_bytes) if newest is None else (newest.name, newest.bytes)
    is_older = newest is not None and newest.name not in (kept.newest, ".")
    half = f" ({harmless(kept.newest)} is not whole)" if is_older and _is_half(kept.newest, saved) else ""
    how_kept = " and uploaded" if uploaded else " only"
    return f"{_where(found, name, size_bytes)}{how_kept}{half}: aicrun fetch {found.called}"


def kept_line(found: api.Found) -> str:
    """Where the newest checkpoint lies and its size, once no record of the run tells; empty without one."""
    kept = found.report.checkpoints
    return f"{_where(found, kept.newest, kept.newest_bytes)}: {_pull(found)}" if kept and kept.newest else ""


def _where(found: api.Found, name: str, size_bytes: int) -> str:
    return f"{'the top folder' if name == '.' else harmless(name)}, {size(size_bytes)}, on {found.machine}"


def _pull(found: api.Found) -> str:
    kept = found.report.checkpoints
    path = harmless(f"{kept.path.rstrip('/')}/{kept.newest}") if kept is not None else ""
    return f"aicrun pull {found.machine}:{shlex.quote(path)} ."


def _is_half(name: str, saved: api.Checkpointed | None) -> bool:
    return any(one.name == name and one.complete in ("no", "writing") for one in saved.checkpoints) if saved else False


def ways_after(found: api.Found) -> tuple[Way, ...]:
    """What one would type next after this ending."""
    run, standing = found.called, found.standing
    read_on = Way("read on", f"aicrun logs {run} --tail 200")
    again = Way("run it again", _applied(found.report, "--again"))
    if standing.status is api.Status.SUCCEEDED:
        return ()
    # The same rules as the plan's, whose rows for these upload again, or make the attempt that is left.
    if not_uploaded(standing):
        return (Way("upload again, nothing is trained twice", _applied(found.report)),)
    if _has_attempt(found):
        return (read_on, Way("make the next attempt", _applied(found.report)))
    if standing.status is api.Status.UNKNOWN:
        forget = Way("as if it never was", _applied(found.report, "--forget"))
        return (Way("look first", f"aicrun logs {run} --tail 50"), Way("run it again", again.command), forget)
    if standing.status is api.Status.REJECTED:
        return (Way("try again", _applied(found.report)),)
    if standing.status is api.Status.STOP_FAILED:
        return (Way("look at it", f"aicrun inspect {run}"), Way("ask once more", f"aicrun stop {run}"))
    if standing.step in ("setup", "preflight"):
        return (Way("read on", f"aicrun logs {run} --step {standing.step}"), again)
    return (read_on, again)


def _applied(report: api.JobReport, *extra: str) -> str:
    """The `aicrun apply` that makes this very run: its file, where that lies from here, and what it was asked with."""
    file, told = report.spec_file or "run.yaml", report.asked
    whole = os.path.join(report.spec_folder, os.path.basename(file))
    # Another client's folder may not be here: then the file is named as it was typed there.
    if report.spec_folder and os.path.abspath(file) != whole and os.path.exists(whole):
        told = tuple(_from_there(report, before, part) for before, part in zip(("", *told), told, strict=False))
        file = whole
    return harmless(typed_again("apply", file, told, *extra))


def _from_there(report: api.JobReport, before: str, part: str) -> str:
    """The value of `--machines`, as seen from the folder in which it was typed; any other part as it is."""
    if before != "--machines":
        return part
    inner = os.path.dirname(os.path.normpath(report.spec_file))
    folder = report.spec_folder
    # A name in the folder itself is typed with no folder before it; what began with `..` or `/` tells no more.
    there = folder if not inner else folder[: -len(inner)] if folder.endswith(f"/{inner}") else ""
    return os.path.join(there, part) if there else part


def _has_attempt(found: api.Found) -> bool:
    """Whether the next apply makes another attempt of a run that was lost, by the rule that its record holds."""
    report = found.report
    rule = report.supervision.get("retry")
    named = rule.get("when", RETRY_WHEN) if isinstance(rule, dict) else ()
    return report.attempt < report.attempts_most and lost_cause(report, found.standing) in named


# What its own start found out about the end of the login that started it; `yes` needs no word.
_WITH_THE_LOGIN = {"no": "It ends with your login there.", "unknown": "It may end with your login there."}


def going_lines(found: api.Found) -> list[str]:
    """After an apply that started a run: it goes on, and how to come back."""
    report, standing = found.report, found.standing
    run = styled("bold", harmless(report.run))
    verb = "is enqueued on" if standing.status is api.Status.ENQUEUED else f"is {standing.status.value} on"
    ways = (
        Way("run id", report.run_id),
        Way("follow", f"aicrun logs -f {found.called}"),
        Way("stop", f"aicrun stop {found.called}"),
    )
    shown = [f"{run} {verb} {found.place}. {_afterwards(found)}"]
    if report.line is not None and report.line.reason == "drained" and standing.status is api.Status.ENQUEUED:
        shown.append(f"  {'waits':<10}{cut(harmless(report.line.why), _WHY_CELLS)}")
    if found.report.next_attempt is not None and standing.why:
        shown.append(f"  retry     {harmless(standing.why)}")
    if report.launched is not None and report.launched.warning:
        told = wrap(harmless(report.launched.warning), _WHY_CELLS)
        shown += [f"  {'' if place else 'warning':<10}{line}" for place, line in enumerate(told)]
    return [*shown, *(f"  {way.what:<10}{styled('bold', way.command)}" for way in ways)]


def _afterwards(found: api.Found) -> str:
    line, launched = found.report.line, found.report.launched
    if launched is not None and launched.outlives_logout in _WITH_THE_LOGIN:
        return _WITH_THE_LOGIN[launched.outlives_logout]
    if found.standing.status is api.Status.ENQUEUED and found.report.next_attempt is not None:
        return "It goes on by itself."
    if found.standing.status is not api.Status.ENQUEUED or line is None:
        return "It goes on when this terminal closes."
    if line.reason == "drained":
        return "It starts by itself once its drain is lifted."
    if line.position > 1 or not line.holder_run:
        return f"It is {ordinal(max(1, line.position))} in line and starts by itself."
    whose = f" of {name(line.holder_account)}" if line.holder_account else ""
    return f"It starts by itself when {name(line.holder_run)}{whose} ends."


def left_lines(found: api.Found) -> tuple[str, ...]:
    """After Ctrl-C: the run goes on, how to come back and how to stop it."""
    run = found.called
    ways = (Way("come back", f"aicrun logs -f {run}"), Way("stop it", f"aicrun stop {run}"))
    return (f"{harmless(found.report.run)} goes on on {found.place}. Nothing was stopped.", *next_lines(ways))


def step_progress(report: api.JobReport) -> str:
    """`4,120/9,000  46%` when the run reports its step, `-` else."""
    step = harmless(str(report.progress.get("step", "")))
    done, _, whole = step.partition("/")
    if done.isdigit() and whole.isdigit() and int(whole) > 0:
        return f"{count(int(done))}/{count(int(whole))} {int(done) * 100 // int(whole):>3}%"
    return step or "-"
