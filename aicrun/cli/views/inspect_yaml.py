"""`inspect` as YAML that can be read, grepped and pasted: keys in a fixed order, ages and words as comments.

Every string of a host is quoted, so that it can never be read as another value.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping
from typing import Any

from aicrun import api
from aicrun.cli.screen import styled
from aicrun.cli.views.endings import warnings_of, ways_after
from aicrun.cli.views.keeping import SOON_S, keeping
from aicrun.cli.views.sampled import sample_words
from aicrun.plan.secret_sources import secret_sources
from aicrun.plan.words import ago, card_model, duration, harmless, size, took

_KEY = 12
_EVENTS_MOST = 40
# The year 9999: a host's clock is text of the host, too.
_LAST_S = 253_000_000_000
_UPLOADED = {True: "verified", False: "failed"}
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_NO_TEXT = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")
_MEASURED = (
    *("wall_s", "vram_peak_mib", "utilization_mean_percent", "memory_peak_mib", "steps_per_s"),
    *("temperature_peak_c", "power_mean_w", "energy_wh", "output_free_least_bytes", "samples"),
    *("python", "torch", "driver", "env_key"),
)


def inspect_lines(
    found: api.Found, env: Mapping[str, str] | None = None, reached: api.Reached | None = None
) -> list[str]:
    """Everything about one job; with `env` also the environment of its command; `reached` is the way to its machine."""
    report, standing = found.report, found.standing
    shown = [
        f"run: {styled('bold', harmless(report.run))}",
        f"run_id: {report.run_id}",
        _commented(f"status: {standing.status.value}", _why(standing, report)),
        f"owner: {{machine: {found.machine}, applied_by: {_text(report.client.user + '@' + report.client.host)}}}",
        f"spec: {{digest: {report.digest[:8]}, file: {_text(report.spec_file)}}}",
    ]
    if reached is not None:
        shown += ["reached:", f"  address: {_text(reached.address)}", f"  by: {reached.carrier}"]
        shown += ["  host_keys:", *(f"    - {_text(key)}" for key in reached.host_keys)] if reached.host_keys else []
    shown += [*_cards(found), "job:", f"  id: {report.job_id}"]
    most = f"of {report.attempts_most}" if report.attempts_most > 1 else ""
    shown.append(_commented(f"  attempt: {report.attempt}", most))
    shown.append(_commented(f"  age: {duration(report.age_s)}", f"by the clock of {found.machine}"))
    shown += _times(report)
    shown += _steps(report)
    if found.logs_go_in_s is not None:
        left = found.logs_go_in_s
        soon = f"copy them: {keeping(found)}" if left <= SOON_S else ""
        shown.append(_commented(f"  logs_kept_for: {duration(max(0.0, left))}", soon))
    shown += _source(report) + _inputs(report) + _results(report, standing.status)
    warnings = _silence(report) + warnings_of(report)
    shown += ["warnings:", *(f"  - {_text(words)}" for words in warnings)] if warnings else []
    shown.append(f"workspace: {_text(report.workspace)}")
    shown += _survival(report)
    if report.stop is not None:
        shown.append(f"stop: {{by: {_text(report.stop.by)}, grace: {report.stop.grace_s}s}}")
    shown += _history(found)
    if env is not None:
        shown += _env(report, env)
    commands = [way.command for way in ways_after(found)] if standing.status.terminal else []
    commands = commands or [f"aicrun logs -f {found.called}", f"aicrun stop {found.called}"]
    if standing.status is not api.Status.SUCCEEDED:
        shown.append("next: [" + ", ".join(_text(command) for command in commands) + "]")
    return shown


def _times(report: api.JobReport) -> list[str]:
    """When its newest attempt's command started and when the job ended, as its host wrote them down."""
    starts = [one for one in report.events if (one.event, one.detail) == ("step_started", "command")]
    ends = [one for one in report.events if one.event == "ended"]
    last = [("started_at", starts[-1:]), ("ended_at", ends[-1:] if report.ended_age_s is not None else [])]
    told = [(key, _utc(one.at), ago(one.age_s)) for key, found in last for one in found]
    return [_commented(f"  {key}: {at}", age) for key, at, age in told if at]


def _utc(at: float) -> str:
    """A host's clock as text; empty for what is no time."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)) if 0 < at < _LAST_S else ""


def _history(found: api.Found) -> list[str]:
    """What happened, oldest first: the newest lines, as all of them are in the document."""
    events = found.report.events
    if not events:
        return []
    older = len(events) - _EVENTS_MOST
    shown = [_commented("history:", f"{older} older: aicrun inspect {found.called} --json" if older > 0 else "")]
    for one in events[-_EVENTS_MOST:]:
        values = [f"at: {_utc(one.at)}"] if _utc(one.at) else []
        values.append(f"event: {_key(one.event)}")
        values += [f"{key}: {_text(text)}" for key, text in (("by", one.by), ("detail", one.detail)) if text]
        shown.append(f"  - {{{', '.join(values)}}}")
    return shown


def _cards(found: api.Found) -> list[str]:
    """The cards that the job was given; their model is known once one of them was measured."""
    report = found.report
    peaks = report.sample.get("peaks")
    measured = {**report.facts, **(peaks if isinstance(peaks, dict) else {})}
    model = str(measured.get("card_model") or "")
    shown = ["card:"] if report.cards else []
    for place, uuid in enumerate(report.cards):
        index = f", index: {report.card_indexes[place]}" if place < len(report.card_indexes) else ""
        told = f", model: {_text(card_model(model))}" if model else ""
        shown.append(f"  - {{machine: {found.machine}{index}{told}, uuid: {_text(uuid)}}}")
    return shown


def _why(standing: api.Standing, report: api.JobReport) -> str:
    # A silence stands among the warnings, where there is room for it.
    parts = [part for part in standing.why.split("; ") if part not in _silence(report)]
    words = [standing.reason, standing.phase, harmless("; ".join(parts))]
    return ", ".join(word for word in words if word)


def _silence(report: api.JobReport) -> list[str]:
    return [api.silence_words(report.stalled_s, report.stall_limit_s)] if report.stalled_s is not None else []


def _steps(report: api.JobReport) -> list[str]:
    shown = ["  steps:"]
    for step in report.steps:
        if step.exit is not None:
            how = f"signal {step.exit.signal}" if step.exit.signal is not None else f"code {step.exit.code}"
            how = f"could not start: {harmless(step.exit.spawn_error)}" if step.exit.spawn_error else how
            values = f"ended: {_text(how)}, took: {took(step.exit.duration_s)}"
        elif step.state == "running":
            age = duration(step.age_s) if step.age_s is not None else "unknown"
            values = f"running: {age}, pid: {step.pid}"
        else:
            values = f"{step.state}: true"
        log = f", log: {size(step.log_bytes)}" if step.log_bytes else ""
        log += f", not_kept: {size(step.log_dropped_bytes)}" if step.log_dropped_bytes else ""
        shown.append(f"    {step.step + ':':<{_KEY - 1}}{{{values}{log}}}")
    return shown if len(shown) > 1 else []


def _source(report: api.JobReport) -> list[str]:
    source = report.source
    if source is None:
        return []
    if source.git:
        values = [f"git: {_text(source.git)}", f"revision: {_text(source.revision or source.branch)}"]
    else:
        values = [f"tree: {source.tree[:8]}", f"files: {source.files}"]
    if source.commit:
        values.append(f"commit: {_text(source.commit[:12])}")
    if source.dirty:
        values.append(f"changed_files: {len(source.dirty)}")
    return [f"source: {{{', '.join(values)}}}"]


def _inputs(report: api.JobReport) -> list[str]:
    """What the run read, as it was when the run was set up; where it came from, for what was brought."""
    setup = report.facts.get("setup")
    found = (setup if isinstance(setup, dict) else report.facts).get("inputs")
    shown = []
    for name, one in found.items() if isinstance(found, dict) else ():
        if not isinstance(one, dict):
            continue
        values = [f"path: {_text(str(one.get('path', '')))}", f"files: {int(one.get('files') or 0)}"]
        values.append(f"size: {size(int(one.get('bytes') or 0))}")
        values += [f"{key}: {_text(str(one[key]))}" for key in ("from", "revision") if one.get(key)]
        # Of an input that lies there nothing is hashed, and some places tell no hashes.
        values += [f"hashed: {one['hashed']}"] if isinstance(one.get("hashed"), int) and one["hashed"] else []
        shown.append(f"  {_key(str(name))}: {{{', '.join(values)}}}")
    return ["inputs:", *shown] if shown else []


def _early(report: api.JobReport) -> list[str]:
    """How many checkpoints are verified one by one, and what is in the way of the next."""
    early = report.early
    if early is None:
        return []
    newest = f", newest: {_text(early.newest)}" if early.newest else ""
    age = "" if early.newest_age_s is None else f", verified: {_text(duration(early.newest_age_s) + ' ago')}"
    pruned = f", pruned: {early.pruned}" if early.pruned else ""
    shown = [f"uploaded: {{checkpoints: {early.verified}{newest}{age}{pruned}}}"]
    if early.trouble:
        again = f"tried again in {duration(early.again_s)}" if early.again_s else ""
        shown.append(_commented(f"uploads_fail: {_text(early.trouble)}", again))
    return shown


def _figure(value: object) -> str:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return str(value) if is_number else _text(str(value))


def _results(report: api.JobReport, status: api.Status) -> list[str]:
    shown = []
    if report.progress:
        shown.append(
            "progress: {" + ", ".join(f"{_text(key)}: {_text(text)}" for key, text in report.progress.items()) + "}"
        )
    shown += _sampled(report.sample)
    measured = {key: report.facts[key] for key in _MEASURED if key in report.facts}
    if measured:
        shown.append("measured: {" + ", ".join(f"{key}: {_figure(item)}" for key, item in measured.items()) + "}")
    kept = report.checkpoints
    if kept is not None:
        shown += [
            "checkpoints:",
            f"  path: {_text(kept.path)}",
            f"  count: {kept.count}",
            f"  size: {size(kept.bytes)}",
        ]
        if kept.newest:
            age = "" if kept.newest_age_s is None else ago(kept.newest_age_s)
            values = f"name: {_text(kept.newest)}, size: {size(kept.newest_bytes)}"
            shown.append(_commented(f"  newest: {{{values}}}", age))
        # After a success the next start begins from nothing.
        if kept.start and status is not api.Status.SUCCEEDED:
            shown.append(_commented(f"  next_start: {_text(kept.start)}", harmless(kept.skipped)))
    if report.upload_request is not None:
        done = report.upload
        verified = ("not made" if status.terminal else "waits") if done is None else _UPLOADED[done.verified]
        shown.append(f"upload: {{to: {_text(report.upload_request.destination)}, state: {verified}}}")
        shown += _early(report)
    return shown


def _survival(report: api.JobReport) -> list[str]:
    """What its start promised, as it was recorded then."""
    kept = report.launched
    if kept is None:
        return []
    values = {"promise": kept.promise, "why_no_better": kept.why, "warning": kept.warning, "unit": kept.unit}
    told = [f"mode: {_text(kept.mode)}", *(f"{key}: {_text(value)}" for key, value in values.items() if value)]
    return [f"survival: {{{', '.join(told)}}}"]


def _sampled(sample: Mapping[str, Any]) -> list[str]:
    """What a running command takes now, and its peaks so far: every figure that could be measured."""
    values = [f"{label}: {_text(told)}" for label, told in sample_words(sample)]
    if not values:
        return []
    age = sample.get("age_s")
    when = f"sampled {ago(age)}" if isinstance(age, (int, float)) else "sampled, nobody knows when"
    return [_commented(f"now: {{{', '.join(values)}}}", when)]


def _env(report: api.JobReport, env: Mapping[str, str]) -> list[str]:
    names = [one.name for one in secret_sources(report.execution, report.supervision) if one.step in ("", "command")]
    shown = [f"  {_key(key)}: {_text(value)}" for key, value in sorted(env.items()) if key not in names]
    shown += [f"  {_key(name)}: (set, not shown)" for name in names]
    return ["env:", *shown] if shown else ["env: {}"]


def _key(name: str) -> str:
    """A name as a key: quoted where YAML would read another, or no text at all."""
    return name if _PLAIN_KEY.match(name) and name.lower() not in _NO_TEXT else _text(name)


def _text(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    # What a terminal must not see is escaped, not dropped: a value is shown as it is.
    return quoted if harmless(quoted) == quoted else json.dumps(text)


def _commented(line: str, words: str) -> str:
    return f"{line:<32}  # {words}" if words else line
