"""Every refusal of a plan: its code, its exit code, the clause of the headline, the facts and the ways out.

It must not decide when to refuse. Exit codes are those of the design's table: 4 for what must be edited in a file,
5 nothing fits, 6 a silent machine may hold the run, 8 every other refusal.
"""

from __future__ import annotations

import shlex

from aicrun.plan import words
from aicrun.plan.admit import silence
from aicrun.plan.commands import of_run, typed
from aicrun.plan.known import NOT_ASKED, Found
from aicrun.plan.model import Fleet, MachineView, Refusal, Wanted, Way
from aicrun.plan.reconcile import Outcome, Row, admitted
from aicrun.plan.records import attempt_words, cause, running_rows, since, status_words, where
from aicrun.plan.rooms import nearly_full
from aicrun.spec.model import LocalReach, Machine, RunSpec

NOTHING_FITS = "AIC-E670"
SILENT = "AIC-E671"
ANOTHER_SPEC = "AIC-E672"
ENDED_BADLY = "AIC-E673"
UNKNOWN = "AIC-E674"
STOP_FAILED = "AIC-E675"
NOT_UPLOADED = "AIC-E676"
UNREADABLE = "AIC-E677"
NO_DATA = "AIC-E678"
UNSAFE_VALUE = "AIC-E680"
NO_REVISION = "AIC-E685"


def of_record(wanted: Wanted, outcome: Outcome, found: Found) -> Refusal:
    """The refusal that the table asks for, by the row the record stands in."""
    make = {
        Row.LIVE: _another_spec,
        Row.WAITING: _another_spec,
        Row.STOP_FAILED: _stop_failed,
        Row.ENDED_BADLY: _ended_badly,
        Row.NOT_UPLOADED: _not_uploaded,
        Row.UNKNOWN: _unknown,
        Row.NEWER: _newer,
    }[outcome.row]
    return make(wanted.spec, found)


def silent(wanted: Wanted, blocked: tuple[MachineView, ...], fleet: Fleet, would: str) -> Refusal:
    """A machine that gave no answer may hold the run; `would` says what would happen without it."""
    spec, first = wanted.spec, blocked[0]
    names = words.some([view.machine.name for view in blocked])
    many = len(blocked) > 1
    if fleet.offline:
        return _never_seen(spec, [view.machine.name for view in blocked])
    facts = [(view.machine.name, silence(view)) for view in blocked]
    answered = [view.machine.name for view in fleet.machines if view.state == "answered"]
    if answered:
        neither = {1: "it has no copy", 2: "neither has a copy"}.get(len(answered), "none has a copy")
        facts.append(("others", f"{words.some(answered)} answered, {neither}; {would}"))
    facts += _sleeping(wanted, blocked)
    ways = []
    if first.state != "unsupported":
        ways.append(Way("try that machine", of_run("doctor", first.machine.name)))
        if _may_sleep(first):
            ways.append(Way(f"{first.machine.name} is off for long", of_run("machines down", first.machine.name)))
    if _others_could_take_it(wanted, blocked, fleet):
        excepted = [part for view in blocked for part in ("--except", view.machine.name)]
        ways.append(Way("this once without " + ("them" if many else "it"), typed("apply", spec, *excepted)))
    if _told_only_by_records(wanted, first):
        ways.append(Way("the record of it is wrong", typed("apply", spec, "--forget")))
    words_ = f"refused, {names} {'do' if many else 'does'} not answer and may hold a copy"
    if first.state == "unsupported":
        words_ = f"refused, {names} cannot be asked yet and may hold a copy"
    elif all(view.refuses for view in blocked):
        words_ = f"refused, {names} cannot be looked at and may hold a copy"
    return Refusal(SILENT, 6, words_, tuple(facts), tuple(ways))


def _never_seen(spec: RunSpec, names: list[str]) -> Refusal:
    """Nobody was asked, and nothing is known of some machines: that says nothing of whether they answer."""
    excepted = [part for name in names for part in ("--except", name)]
    ways = (
        Way("ask now", typed("plan", spec)),
        Way("read it without " + ("them" if len(names) > 1 else "it"), typed("plan", spec, "--offline", *excepted)),
    )
    facts = (("offline", f"{words.some(names)}: never seen by this client, and nobody is asked"),)
    return Refusal(SILENT, 6, f"refused, {words.some(names)} was never seen and may hold a copy", facts, ways)


def _others_could_take_it(wanted: Wanted, blocked: tuple[MachineView, ...], fleet: Fleet) -> bool:
    """Whether a machine is left that the spec admits; leaving out the only one it names gets nobody further."""
    left = [view for view in fleet.machines if view not in blocked and view.state not in NOT_ASKED]
    return any(admitted(wanted, view) for view in left)


def _sleeping(wanted: Wanted, blocked: tuple[MachineView, ...]) -> list[tuple[str, str]]:
    """What the owner of a machine that is often off can write, once; nothing where a name or a record keeps the run."""
    told = {*wanted.known_on, *wanted.spec.machine.names}
    often = [view.machine.name for view in blocked if _may_sleep(view) and view.machine.name not in told]
    if not often or any(view.machine.sleeps for view in blocked):
        return []
    return [("sleeps", f"is {often[0]} often off? sleeps: true in machines.yaml: it stops only runs known there")]


def _may_sleep(view: MachineView) -> bool:
    # What was reached, and the machine that the person sits at, do not sleep.
    return view.state != "unsupported" and not view.refuses and not isinstance(view.machine.reach, LocalReach)


def unreadable(records: tuple[tuple[str, str], ...]) -> Refusal:
    """A record is there and cannot be read: it may be this run."""
    facts = tuple((machine, f"record {words.name(record)} cannot be read") for machine, record in records[:3])
    ways = (Way("look at that machine", of_run("doctor", records[0][0])),)
    return Refusal(
        UNREADABLE, 8, f"refused, a record on {records[0][0]} cannot be read and may be this run", facts, ways
    )


def no_data(wanted: Wanted, machines: tuple[Machine, ...], inventory: str) -> Refusal:
    """The spec names `${machine.data}` and no machine that could take the run has one."""
    facts = []
    for machine in machines[:3]:
        place = f"{inventory}:{machine.line}" if inventory and machine.line else inventory
        line = "data: /path/of/its/data/volume"
        facts.append(
            (machine.name, f"add to its entry in {place}: {line}" if place else f"needs a machines.yaml: {line}")
        )
    if not inventory:
        facts.append(
            ("write", "machines: [{name: here, local: true, data: /path}] into machines.yaml, after version: 1")
        )
    named = words.joined([machine.name for machine in machines[:3]])
    ways = (Way("then look again", typed("plan", wanted.spec)),)
    told = "refused, ${machine.data} is used and machines.yaml names no data: for " + named
    return Refusal(NO_DATA, 4, told, tuple(facts), ways)


def no_revision(spec: RunSpec, answers: list[tuple[str, str]]) -> Refusal:
    """The repository of `source.git` has no such revision; `answers` are (machine, what git said there)."""
    git, revision = (spec.source.git, spec.source.revision) if spec.source is not None else ("", "")
    facts = (("source", words.harmless(git)), *((name, words.harmless(why)) for name, why in answers[:3]))
    ways = (
        Way("what it has", f"git ls-remote {words.harmless(shlex.quote(git))}"),
        Way("then look again", typed("plan", spec)),
    )
    told = f"refused, source.revision {words.harmless(revision) or 'HEAD'} is not in the repository"
    return Refusal(NO_REVISION, 4, told, facts, ways)


def unsafe_value(spec: RunSpec, placeholder: str, value: str, variable: str) -> Refusal:
    """A placeholder's value has characters that a shell would read as its own."""
    facts = (
        ("value", words.harmless(value)),
        ("instead", f'write "${variable}" in the command: the shell keeps it whole'),
    )
    told = f"refused, the value of ${{{placeholder}}} has characters that the shell would read"
    return Refusal(UNSAFE_VALUE, 4, told, facts, (Way("then look again", typed("plan", spec)),))


def _another_spec(spec: RunSpec, found: Found) -> Refusal:
    ways = (
        Way("stop it and start the new one", typed("plan", spec, "--replace")),
        Way("let it be, start a second one", typed("plan", spec, "--set", f"name={spec.name}-2")),
        Way("see the whole difference", typed("plan", spec, "-v")),
    )
    told = f"refused, it is {found.standing.status.value} with another spec"
    return Refusal(ANOTHER_SPEC, 8, told, running_rows(found), ways)


def _ended_badly(spec: RunSpec, found: Found) -> Refusal:
    ways = [
        Way("look first", of_run("logs", spec.name, "--tail", "50")),
        Way("run it again", typed("apply", spec, "--again")),
    ]
    if "resume" in spec.execution:
        ways.append(Way("again, from nothing", typed("apply", spec, "--fresh")))
    told = f"refused, {status_words(found)} {words.ago(since(found))}"
    facts = [("ended", f"on {where(found)}, {attempt_words(found.job)}")]
    reason = cause(found)
    facts += [("cause", reason)] if reason else []
    # A disk that is full now may be why, and would be met again; what the log says proves neither.
    reading = found.view.reading
    facts += [
        ("disk", f"only {low} now") for low in (nearly_full(spec, found.view.machine, reading) if reading else ())
    ]
    return Refusal(ENDED_BADLY, 8, told, tuple(facts), tuple(ways))


def _not_uploaded(spec: RunSpec, found: Found) -> Refusal:
    facts = (("ended", f"on {where(found)}, the training itself ended; only its upload is missing"),)
    ways = (
        Way("upload it again", of_run("upload", spec.name)),
        Way("train the new spec", typed("apply", spec, "--again")),
    )
    return Refusal(
        NOT_UPLOADED, 8, f"refused, {status_words(found)} {words.ago(since(found))} with another spec", facts, ways
    )


def _unknown(spec: RunSpec, found: Found) -> Refusal:
    why = words.harmless(found.standing.why) or "nobody recorded how it ended"
    facts = (("known", f"on {where(found)}: {words.cut(why, 200)}"), ("", "this is neither success nor failure"))
    ways = (
        Way("look first", of_run("logs", spec.name, "--tail", "50")),
        Way("run it again", typed("apply", spec, "--again")),
        Way("as if it never was", typed("apply", spec, "--forget")),
    )
    return Refusal(UNKNOWN, 8, f"refused, {status_words(found)}: its end is not known", facts, ways)


def _stop_failed(spec: RunSpec, found: Found) -> Refusal:
    pids = ", ".join(str(pid) for pid in found.job.leftover_pids)
    facts = (("alive", f"pid {pids} on {found.view.machine.name}, which a stop could not end"),)
    ways = (Way("try to stop it again", of_run("stop", spec.name)),)
    return Refusal(STOP_FAILED, 8, "refused, its stop failed and its processes still live", facts, ways)


def _newer(spec: RunSpec, found: Found) -> Refusal:
    facts = (("record", f"job {found.job.job_id} on {found.view.machine.name}"),)
    ways = (Way("update aicrun, then look again", typed("plan", spec)),)
    return Refusal(
        UNREADABLE, 8, "refused, a newer aicrun wrote its record and this one does not touch it", facts, ways
    )


def _told_only_by_records(wanted: Wanted, view: MachineView) -> bool:
    sleeps = view.machine.sleeps and view.machine.name not in wanted.spec.machine.names
    return sleeps or not admitted(wanted, view)
