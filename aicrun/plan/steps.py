"""What will happen, in order, and what the run asks and is told: the rows of a plan that come from the spec.

It must not decide: it words a draft that is complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from aicrun.plan import words
from aicrun.plan.changes import source_words
from aicrun.plan.draft import JOB_ID, RUN_ID
from aicrun.plan.environment import has_environment, lock_of, why_built
from aicrun.plan.inputs import bringing, input_words
from aicrun.plan.known import Known
from aicrun.plan.locks import packages
from aicrun.plan.model import Wanted
from aicrun.plan.placeholders import fill
from aicrun.plan.secret_sources import secret_sources, secret_words
from aicrun.spec.model import RETRY_WHEN, RetrySpec, RunSpec, SetupSpec
from aicrun.wire.facts import HostReading
from aicrun.wire.jobs import JobRequest, Retry, Setup

# The name that an index may carry before its address.
_NAMED = re.compile(r"^\w+=")
Rows = tuple[tuple[str, str], ...]


def shown(text: str) -> str:
    """A text of the draft as people read it: what the start draws stands as `<run id>`."""
    return words.harmless(text.replace(RUN_ID, "<run id>").replace(JOB_ID, "<job id>").replace("$${", "${"))


def _value(text: str) -> str:
    # Its line ends reach the job, so that they are shown, not dropped.
    return shown(text.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r"))


def asks(spec: RunSpec, data: str) -> tuple[str, ...]:
    """What the run asks of a place, one line for cards and one for the rest; `data` names the data folder."""
    lines = []
    gpu = spec.machine.gpu
    if gpu is not None:
        need = gpu.vram_mib + gpu.headroom_mib
        each = " each" if gpu.count > 1 else ""
        headroom = f"{words.asked(gpu.vram_mib)}, {words.asked(gpu.headroom_mib)} headroom"
        lines.append(f"{words.counted(gpu.count, 'card')} with {words.gib(need)} free{each} ({headroom})")
        lines += [f"model {words.joined(gpu.models, 'or')}"] if gpu.models else []
    rest = ", ".join(_floors(spec, data))
    if gpu is None:
        rest = f"no card; {rest}" if rest else "no card"
    return tuple([*lines, rest] if rest else lines)


def steps(wanted: Wanted, draft: JobRequest, reading: HostReading, waits_for: str = "") -> Rows:
    """(step, words) in the order they will happen."""
    return tuple(_steps(wanted, draft, reading, waits_for))


def environment_rows(wanted: Wanted, draft: JobRequest) -> Rows:
    """The job's variables worth showing: the two cache folders, then what the spec sets."""
    keys = dict.fromkeys(("HF_HOME", "TORCH_HOME", *wanted.spec.env))
    return tuple((key, _value(draft.env[key])) for key in keys if key in draft.env)


def input_rows(draft: JobRequest) -> Rows:
    """Where the run's inputs lie."""
    return (("inputs", input_words(draft.inputs)),) if draft.inputs else ()


def terms(wanted: Wanted) -> Rows:
    """Secrets by name, limits and retries, as rows."""
    rows, spec = [], wanted.spec
    secrets = secret_words(secret_sources(spec.execution, spec.supervision), wanted.unset)
    if secrets:
        rows.append(("secrets", words.harmless(secrets)))
    limit = _limits(spec)
    if limit:
        rows.append(("limits", limit))
    if spec.retry is not None:
        rows.append(("retry", _retry(spec.retry)))
    return tuple(rows)


def measured(wanted: Wanted, known: Known) -> str:
    """What an earlier run of this name needed, the newest first found: the peak, where, and beside the demand."""
    name = wanted.spec.name
    facts = sorted(known.facts.get(name, ()), key=lambda item: _number(item, "age_s") or 0)
    gpu = wanted.spec.machine.gpu
    for item in facts:
        peak = _number(item, "vram_peak_mib")
        since = f", {words.ago(age)}" if (age := _number(item, "age_s")) is not None else ""
        if gpu is not None and peak is not None:
            where = words.card_model(str(item.get("card_model", ""))) or "a card"
            told = f"peak {words.gib(int(peak))} by {name} on {where}{since}"
            return f"{told}; {_beside(int(peak), gpu.vram_mib)}"
        wall = _number(item, "wall_s")
        if gpu is None and wall is not None:
            return f"took {words.duration(wall)} the last time{since}"
    return ""


def _steps(wanted: Wanted, draft: JobRequest, reading: HostReading, waits_for: str) -> Iterator[tuple[str, str]]:
    if draft.source is not None and draft.source.git:
        yield "source", f"{source_words(draft.source)}, fetched by {draft.machine}"
    elif draft.source is not None:
        what = source_words(draft.source).rpartition(", ")[0] if draft.source.commit else "all files of the folder"
        yield "push", f"{words.counted(draft.source.files, 'file')}, {words.size(draft.source.bytes)}: {what}"
    yield from bringing(draft, reading)
    setup = wanted.spec.setup
    if setup is not None:
        yield "setup", _setup(wanted, draft, reading, bool(waits_for))
    if waits_for:
        yield "wait", f"for {waits_for}, then measure it again"
    if draft.preflight:
        yield "preflight", _preflight(wanted, draft)
    yield "command", " ".join(shown(" ".join(draft.command)).split())
    upload, spec_upload = draft.upload, wanted.spec.checkpoints.upload
    if upload is not None and spec_upload is not None:
        what = wanted.spec.checkpoints.path or "checkpoints"
        tail = _moments(upload.when, upload.every_s) + _kept(draft) + ("; must be verified" if upload.required else "")
        tail += "" if upload.probe else "; nothing is tried there before (probe: false)"
        # Until somebody has tried it against the service.
        with_ = f"{spec_upload.tool} (not verified against the service)" if upload.scheme == "hf" else spec_upload.tool
        yield "upload", f"{words.harmless(what)} to {shown(upload.destination)} with {with_}{tail}"


def _moments(when: str, every_s: int) -> str:
    """When it is uploaded beside the end: nothing for what goes without saying."""
    each = "; each while it trains" if when == "each" else ""
    return f"; the newest every {words.typed(every_s)} while it trains" if every_s else each


def _kept(draft: JobRequest) -> str:
    """What is left on the machine of those that are verified uploaded, where it is not all."""
    newest = "the newest" if draft.keep == 1 else f"the newest {words.count(draft.keep)}"
    return f"; {newest} stay{'s' if draft.keep == 1 else ''} on {draft.machine}" if draft.keep else ""


def _setup(wanted: Wanted, draft: JobRequest, reading: HostReading, waits: bool) -> str:
    setup = wanted.spec.setup or SetupSpec()
    commands = f"then {words.counted(len(setup.run), 'command')}" if setup.run else ""
    made = draft.setup
    if setup.venv:
        return ", ".join(part for part in (f"use {words.harmless(made.path)} as it is", commands) if part)
    if not has_environment(setup) or not made.key:
        return commands.replace("then ", "") or "nothing to build"
    torch = f"torch for {made.torch_backend}" if made.torch_backend not in ("", "none", "auto") else ""
    if made.key in reading.envs_ready:
        ready = f"env {words.short(made.key)} is ready on {draft.machine}: python {made.python_version}"
        installed = [
            str(facts["torch"]) for facts in reading.measured if facts.get("env_key") == made.key and "torch" in facts
        ]
        torch = f"torch {words.name(installed[0])}" if installed else torch
        return ", ".join(part for part in (ready, torch, commands) if part)
    begin = "build while waiting" if waits else "build"
    version = ".".join(made.python_version.split(".")[:2])
    why = f"; {found}" if (found := why_built(wanted, made, reading)) else ""
    if made.project or made.lock:
        parts: tuple[str, ...] = (f"python {version}", *_locked(wanted, made), commands)
        return f"{begin}: " + ", ".join(part for part in parts if part) + why
    lines = len([line for line in made.requirements.splitlines() if line.strip() and not line.lstrip().startswith("#")])
    files = f"{made.requirements_name} ({words.counted(lines, 'line')})" if made.requirements_name else ""
    named = words.counted(len(made.packages), "package") if made.packages else ""
    parts = (f"python {version}", files, named, torch, _from(made), commands)
    return f"{begin}: " + ", ".join(part for part in parts if part) + why


def _preflight(wanted: Wanted, draft: JobRequest) -> str:
    if draft.preflight == "auto":
        return "cuda" if _has_torch(wanted, draft) else "cuda, where torch is installed"
    return shown(draft.preflight.removeprefix("run:"))


def _locked(wanted: Wanted, made: Setup) -> tuple[str, str, str]:
    project = "the project itself" if made.project else ""
    name = words.harmless(made.requirements_name)
    return f"{name} ({words.counted(packages(lock_of(wanted)), 'package')})", project, _from(made)


def _from(made: Setup) -> str:
    """Where packages come from, when the spec says it."""
    if made.wheels:
        return f"from {words.harmless(made.wheels)} only"
    places = [_NAMED.sub("", one) for one in made.index]
    return words.harmless("from " + words.joined(places, "or")) if places else ""


def _has_torch(wanted: Wanted, draft: JobRequest) -> bool:
    setup = wanted.spec.setup
    named = setup is not None and any("torch" in package for package in setup.packages)
    return named or "torch" in draft.setup.requirements or '\nname = "torch"\n' in lock_of(wanted)


def _floors(spec: RunSpec, data: str) -> Iterator[str]:
    selector = spec.machine
    if selector.cpus is not None:
        yield words.counted(selector.cpus, "core")
    if selector.memory_mib is not None:
        yield f"{words.asked(selector.memory_mib)} memory"
    if selector.disk is not None:
        path = fill(selector.disk.path, {"machine.data": data})
        yield f"{words.asked_size(selector.disk.free_bytes)} free on {words.harmless(path)}"


def _limits(spec: RunSpec) -> str:
    limits = spec.limits
    parts = []
    if limits.max_duration_s is not None:
        parts.append(f"{words.typed(limits.max_duration_s)}, then {words.typed(limits.grace_s)} grace")
    if limits.stall_s is not None:
        parts.append(f"a stall of {words.typed(limits.stall_s)} is told, not killed")
    return "; ".join(parts)


def _retry(rule: RetrySpec) -> str:
    when = "every failure and a reboot" if rule.when == RETRY_WHEN else ", ".join(rule.when)
    low, high = words.typed(rule.backoff_s), words.typed(rule.backoff_most_s)
    usual = (rule.backoff_s, rule.backoff_most_s) == (Retry().backoff_s, Retry().backoff_most_s)
    pause = "" if usual else f"; {low if low == high else f'{low} to {high}'} between"
    return f"{words.counted(rule.most, 'time')}, on {when}{pause}"


def _number(facts: Mapping[str, Any], key: str) -> float | None:
    value = facts.get(key)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _beside(peak: int, ask: int) -> str:
    if peak > ask:
        return f"{words.gib(peak - ask)} over the ask"
    return "far below the ask" if peak * 2 < ask else f"{words.gib(ask - peak)} under the ask"
