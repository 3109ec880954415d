"""The composition root: the only place that wires the rooms together, for the command line and for people's own code.

    with api.open_session() as session:
        loaded = api.load(["run.yaml"])
        planned = api.plan(session, loaded.specs)
        outcomes = api.apply(session, planned)

It prints nothing and asks nothing; what happens on the way is told through a `Tell`.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from aicrun import __version__
from aicrun.errors import AicrunError as AicrunError
from aicrun.errors import Exit as Exit
from aicrun.errors import HostRefused, UsageError, Way
from aicrun.hosts.backend import LogSlice as LogSlice
from aicrun.hosts.backend import Said as Said
from aicrun.hosts.backend import ShortCommand as ShortCommand
from aicrun.hosts.connect import connect
from aicrun.hosts.fetch_back import fetch_back
from aicrun.hosts.ssh_names import aliases as aliases
from aicrun.hosts.supply import supply_uv
from aicrun.lifecycle import apply as _apply
from aicrun.lifecycle import drain as _drain
from aicrun.lifecycle import ending as _ending
from aicrun.lifecycle import execute as _execute
from aicrun.lifecycle import find as _find
from aicrun.lifecycle import follow as _follow
from aicrun.lifecycle import notes as _notes
from aicrun.lifecycle import snapshot as _snapshot
from aicrun.lifecycle import stop as _stop
from aicrun.lifecycle import survey as _survey
from aicrun.lifecycle import transfer as transfer
from aicrun.lifecycle import upload as _upload
from aicrun.lifecycle import uploaded as uploaded
from aicrun.lifecycle.apply import Outcome as Outcome
from aicrun.lifecycle.changed_files import with_files
from aicrun.lifecycle.checkpoints import checkpoints as checkpoints
from aicrun.lifecycle.deleting import Doomed as Doomed
from aicrun.lifecycle.deleting import delete as delete
from aicrun.lifecycle.deleting import delete_checkpoints as delete_checkpoints
from aicrun.lifecycle.deleting import doomed as doomed
from aicrun.lifecycle.ending import Ending as Ending
from aicrun.lifecycle.events import Happening, Tell
from aicrun.lifecycle.fetch import Chosen as Chosen
from aicrun.lifecycle.fetch import fetch as fetch
from aicrun.lifecycle.fetch import meant_checkpoint as meant_checkpoint
from aicrun.lifecycle.find import Found as Found
from aicrun.lifecycle.find import Listing as Listing
from aicrun.lifecycle.git_sources import resolved
from aicrun.lifecycle.ledger import Ledger
from aicrun.lifecycle.logs import log as log
from aicrun.lifecycle.logs import log_slice as log_slice
from aicrun.lifecycle.machines import Left as Left
from aicrun.lifecycle.machines import doctor as doctor
from aicrun.lifecycle.machines import left_on as left_on
from aicrun.lifecycle.machines import tried as tried
from aicrun.lifecycle.machines import tried_all as tried_all
from aicrun.lifecycle.saved import Stale as Stale
from aicrun.lifecycle.saved import check_moved
from aicrun.lifecycle.saved import write as write_plan
from aicrun.lifecycle.secret_values import SecretValues
from aicrun.lifecycle.session import Session as Session
from aicrun.lifecycle.start import settle_leftovers
from aicrun.lifecycle.supply import supply
from aicrun.lifecycle.wanted import gathered
from aicrun.plan.decide import plan as _decide
from aicrun.plan.inputs import brought_to_ask
from aicrun.plan.model import Fleet as Fleet
from aicrun.plan.model import MachineView as MachineView
from aicrun.plan.model import Options as Options
from aicrun.plan.model import Plan as Plan
from aicrun.plan.model import RunPlan as RunPlan
from aicrun.plan.model import Sign as Sign
from aicrun.plan.model import Wanted
from aicrun.plan.saved import from_document, to_document
from aicrun.spec.diagnostics import Diagnostic
from aicrun.spec.folders import cache_folder, config_folder, state_folder
from aicrun.spec.load import Loaded as Loaded
from aicrun.spec.load import find_inventory, find_specs, load_inventory, load_run, local_inventory
from aicrun.spec.model import Reached as Reached
from aicrun.spec.model import RunSpec
from aicrun.wire.checkpoint import Checkpoint as Checkpoint
from aicrun.wire.checkpoint import Checkpointed as Checkpointed
from aicrun.wire.codec import to_json
from aicrun.wire.facts import Card as Card
from aicrun.wire.jobs import Client
from aicrun.wire.jobs import JobReport as JobReport
from aicrun.wire.names import GATE_S, LIST_DEFAULT, LIST_MOST
from aicrun.wire.status import Standing as Standing
from aicrun.wire.status import Status as Status
from aicrun.wire.status import silence_words as silence_words
from aicrun.wire.status import status_of as status_of

STATUSES = tuple(status.value for status in Status)


def silently(_: Happening) -> None:
    """A `Tell` for callers who do not watch."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, what it was made from, and the sources it would send."""

    plan: Plan
    wanted: tuple[Wanted, ...]
    snapshots: Mapping[str, _snapshot.Snapshot] = field(default_factory=dict)
    excepted: tuple[str, ...] = ()


@contextlib.contextmanager
def open_session(
    machines: str = "", folder: str = ".", env: Mapping[str, str] | None = None
) -> Iterator[tuple[Session, tuple[Diagnostic, ...]]]:
    """A session over the inventory that is found from `machines` or `folder`, with the inventory's warnings.

    Raises `DocumentInvalid` for an inventory with faults.
    """
    env = os.environ if env is None else env
    path = find_inventory(machines, env, os.path.abspath(folder), config_folder(env))
    inventory, warnings = load_inventory(path) if path else (local_inventory(), ())
    ledger = Ledger(os.path.join(state_folder(env), "ledger.db"))
    session = Session(inventory, connect, ledger, _client(), SecretValues(env), cache=cache_folder(env))
    session.fetch_back = fetch_back
    try:
        yield session, warnings
    finally:
        session.close()


def _client() -> Client:
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return Client(user, os.uname().nodename, __version__)


def load(paths: Sequence[str], overrides: Sequence[str] = (), strict: bool = False) -> Loaded:
    """All specs of several files; a folder stands for the run files in it. Raises `DocumentInvalid`, `UsageError`."""
    specs: list[RunSpec] = []
    warnings: list[Diagnostic] = []
    for path in (found for named in paths for found in find_specs(named)):
        loaded = load_run(path, overrides=tuple(overrides), strict=strict)
        specs += loaded.specs
        warnings += loaded.warnings
    seen: dict[str, str] = {}
    for spec in specs:
        if spec.name in seen:
            raise UsageError("AIC-E004", f"{spec.file} and {seen[spec.name]} both are the run {spec.name}")
        seen[spec.name] = spec.file
    return Loaded(tuple(specs), tuple(warnings))


def plan(
    session: Session,
    specs: tuple[RunSpec, ...],
    options: Options | None = None,
    excepted: tuple[str, ...] = (),
    offline: bool = False,
) -> Planned:
    """What would happen to `specs` now, or as the machines were last seen (`offline`, for reading). Changes nothing."""
    # What is brought is asked for by what was gathered; else machines answer while this one reads its files.
    looking = None if offline or any(spec.brought for spec in specs) else _survey.Looking(session, specs, excepted)
    try:
        wanted, snapshots = gathered(session, specs)
    except BaseException:
        if looking is not None:
            looking.leave()
        raise
    known = looking.fleet() if looking is not None else _survey.offline(session, excepted) if offline else None
    return _planned(session, wanted, snapshots, options or Options(), excepted, known)


def _planned(
    session: Session,
    wanted: tuple[Wanted, ...],
    snapshots: Mapping[str, _snapshot.Snapshot],
    options: Options,
    excepted: tuple[str, ...],
    known: Fleet | None = None,
) -> Planned:
    specs = tuple(item.spec for item in wanted)
    fleet = known or _survey.survey(session, specs, excepted, brought=partial(brought_to_ask, wanted))
    wanted, fleet = resolved(session, wanted, fleet)
    return Planned(with_files(session, _decide(wanted, fleet, options), snapshots), wanted, snapshots, excepted)


def save(planned: Planned, path: str) -> None:
    """Write the plan to `path`, whole or not at all; it holds no secret's value. Errors: `lifecycle.saved.write`."""
    text = json.dumps(to_document(planned.plan), ensure_ascii=True, indent=1) + "\n"
    write_plan(text, path)


def is_saved_plan(path: str) -> bool:
    """True when `path` names a saved plan rather than a spec."""
    return path.endswith(".json")


def read_saved(path: str) -> Plan:
    """The plan in `path`; raises `UsageError` when there is none, or it is of a newer version."""
    try:
        with open(path, encoding="utf-8") as stream:
            return from_document(json.load(stream))
    except (OSError, ValueError, KeyError, TypeError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        ways = (Way("make one", f"aicrun plan run.yaml -o {path}"),)
        raise UsageError("AIC-E015", f"{path} is no plan that can be read: {words}", ways=ways) from error


def recheck(session: Session, saved: Plan, path: str) -> Planned:
    """The saved plan, ready to apply; raises `Stale` with every fact that moved. run.yaml is not read again."""
    specs = tuple(item.spec for item in saved.runs)
    wanted, snapshots = gathered(session, specs)
    excepted = tuple(view.machine.name for view in saved.fleet.machines if view.state == "excepted")
    fleet = _survey.survey(session, specs, excepted, brought=partial(brought_to_ask, wanted))
    wanted, fleet = resolved(session, wanted, fleet)
    check_moved(saved, fleet, wanted, path)
    # Who answers now is asked once more before the start: also a machine that was silent when the plan was made.
    current = saved if saved.fleet.offline else replace(saved, fleet=fleet)
    return Planned(current, wanted, snapshots, excepted)


def apply(
    session: Session,
    planned: Planned,
    approve: Callable[[Planned], bool] = lambda _: True,
    tell: Tell = silently,
    again: bool = True,
) -> tuple[Outcome, ...]:
    """Carry the plan out. When the world moved in between, look and plan once more and `approve` that plan.

    Raises `PlanRefused`, `NothingFits` … as the plan says; an empty answer means that the second plan was not approved.
    """
    try:
        return _carried_out(session, planned, tell)
    except HostRefused as error:
        if not again or error.token not in ("busy", "gpu_busy", "drained"):
            raise
        second = _planned(session, planned.wanted, planned.snapshots, planned.plan.options, planned.excepted)
        if not approve(second):
            return ()
        return _carried_out(session, second, tell)


def _carried_out(session: Session, planned: Planned, tell: Tell) -> tuple[Outcome, ...]:
    if not _apply.refused(planned.plan):
        supply(session, planned.plan, supply_uv, tell)
    return _apply.carry_out(session, planned.plan, planned.snapshots, tell)


def decided(session: Session, planned: Planned, tell: Tell = silently) -> Planned:
    """The plan once no other client is starting one of its runs: awaits those decisions, then looks again."""
    undecided = [item for item in planned.plan.runs if item.job is not None and item.job.decision == "undecided"]
    if not undecided:
        return planned
    for item in undecided:
        if item.job is not None:
            at_most_s = float(GATE_S + 10)
            _follow.until_decided(_follow.Watch(session, item.machine, item.run, tell, 60.0), item.job, at_most_s)
    return _planned(session, planned.wanted, planned.snapshots, planned.plan.options, planned.excepted)


def settle(session: Session, specs: Sequence[RunSpec]) -> None:
    """Withdraw what a killed apply of these runs, by this client, left reserved."""
    for spec in specs:
        settle_leftovers(session, spec.name)


def watch(session: Session, found: Found, tell: Tell = silently, give_up_s: float | None = None) -> _follow.Watch:
    """How `until_started`, `to_the_end` and `follow_log` look at a job."""
    return _follow.Watch(session, found.machine, found.report.run, tell, give_up_s)


def until_started(session: Session, found: Found, tell: Tell = silently) -> Found:
    """The job once it started, waits in line, or ended."""
    return found.as_it_is(_follow.until_started(watch(session, found, tell, 60.0), found.report))


def follow(session: Session, found: Found, tell: Tell = silently, offset: int | None = 0) -> Found:
    """The ended job, its log told on the way from `offset` on (None: from its last lines)."""
    return found.as_it_is(_follow.to_the_end(watch(session, found, tell), found.report, offset))


def follow_log(session: Session, found: Found, part: LogSlice, tell: Tell, onward: bool = False) -> None:
    """Tell a step's log behind `part` until the step ended; `onward`: also what follows, through attempts to come."""
    seen = watch(session, found, tell)
    if onward:
        _follow.follow_onward(seen, found.report, part.step or "setup", part.next_offset, part.attempt)
    else:
        _follow.follow_log(seen, found.report, part.step, part.next_offset, part.attempt)


def wait(session: Session, found: Found, timeout_s: float | None = None) -> Found:
    """The job once its status stays, or as it is when `timeout_s` passed."""
    return found.as_it_is(_follow.wait(watch(session, found), found.report, timeout_s))


def ending(session: Session, found: Found) -> Ending:
    """The end of a job with its evidence."""
    return _ending.ending(session, found)


def exit_of(found: Found) -> Exit:
    """The exit code that says how a job ended."""
    return _ending.exit_of(found.standing)


find = _find.find
stop = _stop.stop
upload = _upload.upload
notes = _notes.read
add_note = _notes.add
document_of = _ending.document_of
drain = _drain.drain
Drained = _drain.Drained
refused = _apply.refused
check_secrets = _apply.check_secrets


def jobs(session: Session, statuses: tuple[str, ...] = (), everything: bool = False) -> Listing:
    """The 20 newest jobs of all machines, or at most 200 with `everything`; `statuses` narrows them."""
    return _find.jobs(session, statuses, LIST_MOST if everything else LIST_DEFAULT)


def environment(session: Session, found: Found) -> dict[str, str]:
    """What the job's command found in its environment, by name; empty when it never started."""
    return session.backend(found.machine).environment(found.report.job_id)


def source_diff(session: Session, found: Found) -> bytes | None:
    """What the job's source differed in from its commit, as `git apply` takes it; None where nothing was kept."""
    return session.backend(found.machine).source_diff(found.report.job_id)


def reached(session: Session, found: Found) -> Reached | None:
    """Where the way to a job's machine led; None for this machine."""
    return session.backend(found.machine).reached()


def settled(found: Found) -> bool:
    """True when waiting for the job has an end: its status stays, or only a person can go on."""
    return _follow.settled(found.standing)


def forget(session: Session, found: Found) -> Found:
    """A person says that an unknown job does not count any more."""
    return found.as_it_is(session.backend(found.machine).forget(found.report.job_id, session.by))


def machines(session: Session, only: str = "") -> Fleet:
    """Every machine of the inventory as it is now, or one of them."""
    if only:
        session.inventory = replace(session.inventory, machines=(session.machine(only),))
    return _survey.survey(session, ())


def shell(session: Session, found: Found, secrets: bool = False, ports: tuple[int, ...] = ()) -> tuple[str, ...]:
    """The local command that is a shell where a job works, for this terminal."""
    return session.backend(found.machine).attended(found.report.job_id, secrets, ports)


def execute(session: Session, machine: str, wanted: ShortCommand) -> Iterator[Said]:
    """Run a short command on one machine, its output slice by slice, in that machine's environment.

    Raises `UsageError` (AIC-E018) for what belongs into a run.
    """
    entry = session.machine(machine)
    wanted = replace(wanted, env={**entry.env, **wanted.env}, path=entry.path)
    return _execute.execute(session, entry.name, wanted)


def gc(session: Session, machine: str, dry_run: bool, older_than_s: int) -> tuple[dict[str, Any], ...]:
    """What the sweep of one machine removes, or would."""
    return session.backend(session.machine(machine).name).gc(dry_run, older_than_s)


def as_json(value: object) -> Any:
    """Plain JSON values for any record of this interface."""
    return to_json(value)


def needs_work(plan: Plan) -> bool:
    """True when applying the plan would change anything."""
    return any(item.sign is not Sign.KEEP for item in plan.runs)
