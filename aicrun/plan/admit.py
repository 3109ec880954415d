"""Why a machine as a whole cannot take a run: one check for each reason, all run, so that every reason is told.

It must not know about cards (see `fit.py`) and never measures: it compares the spec with the survey's reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from aicrun.plan import twins, words
from aicrun.plan.environment import chosen_python, has_environment
from aicrun.plan.inputs import deciding, fetched_key, inputs_at, key_of_fetched, own_path, upload_tools
from aicrun.plan.model import MachineView, Rejection, Wanted
from aicrun.plan.needed_room import disk_of, volumes_needed
from aicrun.plan.placeholders import names_in
from aicrun.plan.places import absolute, as_asked, volume_here, volumes, workspace_volume
from aicrun.spec.model import Machine, RunSpec
from aicrun.wire.facts import HostReading
from aicrun.wire.tools import FETCHERS


@dataclass(frozen=True, slots=True)
class Need:
    """What one run needs of a place.

    `own_jobs` are jobs that this start replaces: what they hold is free for it. `only_on` names the machine where an
    earlier checkpoint of the run lies that it resumes from (empty: any).
    """

    wish: Wanted
    use_kept: bool = False
    own_jobs: tuple[str, ...] = ()
    only_on: str = ""

    @property
    def spec(self) -> RunSpec:
        """What the run's author wrote."""
        return self.wish.spec

    @property
    def group(self) -> str:
        """Runs of equal group have equal verdicts everywhere (a sweep is one group)."""
        spec, source = self.spec, self.wish.source
        setup = spec.setup
        python = replace(setup, run=(), timeout_s=0) if setup and (has_environment(setup) or setup.venv) else None
        # What an environment is built from, and so how much room it takes.
        built = (tuple(self.wish.files.values()), spec.env) if python else None
        places = (workspace_volume(spec), spec.checkpoints.path, spec.checkpoints.upload)
        parts = (
            (spec.source.git, spec.source.revision) if spec.source is not None else None,
            spec.machine,
            python,
            built,
            tuple((one.tree, one.bytes, one.files) for one in self.wish.sent.values()),
            places,
            (source.tree, source.bytes, source.files) if source is not None else None,
            tuple(spec.inputs.values()),
            _fetched(spec),
            uses_data(spec),
            self.use_kept,
            self.own_jobs,
            self.only_on,
        )
        return repr(parts)


def _fetched(spec: RunSpec) -> tuple[tuple[str, str, str], ...]:
    """What the machines fetch: tool, key without what a machine adds to it, and whose name is in that."""
    found = []
    for name, one in spec.brought.items():
        if not one.tool:
            continue
        env = deciding(spec, one)
        named = spec.name if any("run.name" in value for value in env.values()) else ""
        found.append((one.tool, key_of_fetched(name, one, env), named))
    return tuple(found)


def unasked(view: MachineView, need: Need) -> tuple[Rejection, ...]:
    """Reasons against a machine that gave no reading."""
    return (*_not_admitted(view.machine, need), *_no_answer(view))


def machine_rejections(view: MachineView, reading: HostReading, need: Need) -> tuple[Rejection, ...]:
    """Every reason why this machine cannot take the run, apart from its cards."""
    found = list(_not_admitted(view.machine, need))
    for check in CHECKS:
        found.extend(check(view.machine, reading, need))
    return tuple(found)


def machine_unknown(view: MachineView, reading: HostReading, need: Need) -> str:
    """What had to be known about the machine and could not be read, in words; empty when nothing is missing."""
    wanted = need.spec.machine.disk
    if wanted is not None:
        path = volume_here(wanted.path, need.spec, view.machine, reading.home)
        if path and disk_of(reading, path) is None:
            return f"the free space of {words.harmless(path)} could not be read"
    return ""


def uses_data(spec: RunSpec) -> bool:
    """Whether any text of the spec holds `${machine.data}`."""
    typed = (spec.workspace, spec.command, spec.env, spec.checkpoints.path, volumes(spec))
    return any("machine.data" in names_in(text) for text in _texts((typed, spec.execution, spec.supervision)))


def _not_admitted(machine: Machine, need: Need) -> Iterator[Rejection]:
    wanted = need.spec.machine
    if wanted.names and machine.name not in wanted.names:
        asked = words.joined(wanted.names, "or")
        yield Rejection("not_named", asked, machine.name, True, f"machine.name asks {asked}")
    for key, value in wanted.labels.items():
        has = machine.labels.get(key)
        if has != value:
            offered = f"{key}={has}" if has is not None else f"no {key}"
            yield Rejection("label", f"{key}={value}", offered, True, f"label {key}={value} asked, has {offered}")
    if need.only_on and machine.name != need.only_on:
        place = f"its checkpoint lies on {need.only_on}"
        yield Rejection("checkpoint_elsewhere", need.only_on, machine.name, True, place)


def _no_answer(view: MachineView) -> Iterator[Rejection]:
    if view.state == "down":
        yield Rejection("down", "an answer", "not asked", True, "down: true in machines.yaml")
    elif view.state == "excepted":
        yield Rejection("excepted", "an answer", "not asked", True, "left out by --except")
    elif view.state == twins.STATE:
        yield Rejection("twin", "a machine of its own", "no", True, f"is {words.harmless(view.why)}")
    elif view.state == "unsupported":
        why = words.harmless(view.why) or "this way to reach a machine is not supported yet"
        yield Rejection("unsupported", "an answer", "not asked", True, why)
    else:
        yield Rejection("silent", "an answer", "none", False, silence(view))


def silence(view: MachineView) -> str:
    """Why a machine gave no answer, and how it looked when it gave its last."""
    told = words.no_answer(view.why, view.reached)
    if view.seen is None or view.seen_age_s is None:
        return told
    return f"{told}; last seen {words.ago(view.seen_age_s)} with {words.models(view.seen.cards)}"


def _drained(_machine: Machine, reading: HostReading, _need: Need) -> Iterator[Rejection]:
    if reading.drain is not None:
        told = words.drained(reading.drain)
        yield Rejection("drained", "a machine that starts runs", words.name(reading.drain.account), False, told)


def _data(machine: Machine, _reading: HostReading, need: Need) -> Iterator[Rejection]:
    if not machine.data and uses_data(need.spec):
        yield Rejection("no_data", "data: in machines.yaml", "none", True, "machines.yaml names no data: for it")


def _jobs(machine: Machine, reading: HostReading, need: Need) -> Iterator[Rejection]:
    active = reading.active_jobs - len([job for job in reading.jobs if job.job_id in need.own_jobs])
    if active >= machine.max_jobs:
        told = f"{words.counted(active, 'job')} of this account, max_jobs is {machine.max_jobs}"
        yield Rejection("too_many_jobs", f"under {machine.max_jobs}", str(active), False, told)


def _cpus(_machine: Machine, reading: HostReading, need: Need) -> Iterator[Rejection]:
    asked = need.spec.machine.cpus
    if asked is not None and reading.cpus < asked:
        told = f"asks {words.counted(asked, 'core')}, has {reading.cpus}"
        yield Rejection("cpus", words.counted(asked, "core"), words.counted(reading.cpus, "core"), True, told)


def _memory(_machine: Machine, reading: HostReading, need: Need) -> Iterator[Rejection]:
    asked = need.spec.machine.memory_mib
    if asked is None:
        return
    if reading.memory_mib < asked:
        first, second = words.apart(asked, reading.memory_mib)
        yield Rejection("memory", first, second, True, f"asks {first} memory, has {second}")
    elif reading.memory_free_mib is not None and reading.memory_free_mib < asked:
        first, second = words.apart(asked, reading.memory_free_mib)
        yield Rejection("memory_free", first, second, False, f"asks {first} memory, {second} is free")


def _writable(machine: Machine, reading: HostReading, need: Need) -> Iterator[Rejection]:
    path = volume_here(workspace_volume(need.spec), need.spec, machine, reading.home)
    disk = disk_of(reading, path)
    if disk is not None and not disk.writable:
        told = f"{words.harmless(path)} cannot be written"
        yield Rejection("not_writable", "a writable workspace", "read only", True, told)


def _room(machine: Machine, reading: HostReading, need: Need) -> Iterator[Rejection]:
    for volume in volumes_needed(need.wish, machine, reading):
        yield from volume.rejections


def _python(_machine: Machine, reading: HostReading, need: Need) -> Iterator[Rejection]:
    setup = need.spec.setup
    if setup is None or not has_environment(setup) or chosen_python(setup, reading) is not None:
        return
    asked = f"python {setup.python}".strip()
    found = [words.harmless(python.version) for python in reading.pythons]
    offered = words.joined(found) or "none"
    yield Rejection("python", asked, offered, True, f"asks {asked}, has {offered}")


def _venv(machine: Machine, reading: HostReading, need: Need) -> Iterator[Rejection]:
    setup = need.spec.setup
    venv = as_asked(setup.venv, need.spec, machine) if setup is not None else ""
    answer = next((one for one in reading.programs if one.word == f"{venv}/bin/python" and not one.path), None)
    if venv and answer is not None and not answer.place:
        shown = words.harmless(answer.word)
        told = f"setup.venv is used as it is, and {shown} is no program there"
        yield Rejection("venv", shown, "none", True, told)


def _wheels(machine: Machine, reading: HostReading, need: Need) -> Iterator[Rejection]:
    setup = need.spec.setup
    folder = as_asked(setup.wheels, need.spec, machine) if setup is not None else ""
    answer = next((one for one in reading.wheels if one.path == folder), None)
    if folder and answer is not None and not answer.wheels:
        shown = words.harmless(folder)
        what = "is there and holds no wheel" if answer.listing else "is no folder there"
        offered = "an empty folder" if answer.listing else "none"
        yield Rejection("wheels", shown, offered, True, f"setup.wheels: {shown} {what}")


def _inputs(machine: Machine, reading: HostReading, need: Need) -> Iterator[Rejection]:
    seen = {absolute(one.path, reading.home): one.why for one in reading.inputs}
    for name, path in inputs_at(need.spec, machine, reading.home).items():
        why = seen.get(path, "")
        if why:
            told = f"input {name}, {words.harmless(path)}: {words.harmless(why)}"
            yield Rejection("input_missing", path, "none", True, told)


def _fetchers(machine: Machine, reading: HostReading, need: Need) -> Iterator[Rejection]:
    """Tools that fetch what is not there yet, and the one that uploads."""
    ready = {one.key for one in reading.inputs_ready}
    lacking: dict[str, str] = {}
    for name, origin in need.spec.brought.items():
        if origin.tool and fetched_key(need.spec, name, machine) not in ready:
            lacking.setdefault(origin.tool, name)
    path = own_path(need.spec, machine)
    for tool, name in lacking.items():
        if _lacks(reading, tool, path):
            told = f"input {name} is fetched with {tool}, which is no program there: {FETCHERS[tool].get}"
            yield Rejection("no_fetcher", tool, "none", True, told)
    for carrier in upload_tools(need.spec):
        if _lacks(reading, carrier, path):
            told = f"checkpoints are uploaded with {carrier}, which is no program there: {FETCHERS[carrier].get}"
            yield Rejection("no_carrier", carrier, "none", True, told)


def _lacks(reading: HostReading, tool: str, path: str) -> bool:
    answer = next((one for one in reading.programs if (one.word, one.path) == (tool, path)), None)
    return answer is not None and not answer.place


def _source(_machine: Machine, reading: HostReading, need: Need) -> Iterator[Rejection]:
    spec = need.spec.source
    if spec is None or not spec.git:
        return
    said = [one for one in reading.git if (one.git, one.revision) == (spec.git, spec.revision)]
    asked, why = words.harmless(spec.git), words.harmless(said[0].detail) if said else ""
    if said and said[0].word == "no_git":
        yield Rejection("no_git", "git", "none", True, f"source.git needs a git there, and {why}")
    elif said and said[0].word == "missing":
        told = f"{asked} has no {words.harmless(spec.revision) or 'default branch'}"
        yield Rejection("revision_missing", words.harmless(spec.revision) or "HEAD", "none", False, told)
    elif said and said[0].word != "ok":
        yield Rejection("source_unreachable", asked, "no answer", False, f"source.git cannot be read from there: {why}")


CHECKS: tuple[Callable[[Machine, HostReading, Need], Iterator[Rejection]], ...] = (
    _drained,
    _data,
    _cpus,
    _memory,
    _writable,
    _room,
    _python,
    _venv,
    _wheels,
    _inputs,
    _fetchers,
    _source,
    _jobs,
)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
