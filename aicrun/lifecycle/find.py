"""From what a person types for a run to the one job that is meant, wherever it lies."""

from __future__ import annotations

from dataclasses import dataclass, replace

from aicrun.errors import HostRefused, HostUnreachable, UsageError, Way
from aicrun.hosts.backend import Backend
from aicrun.lifecycle.session import Session
from aicrun.lifecycle.survey import Heard, ask_all
from aicrun.lifecycle.upload_notes import note
from aicrun.plan.nearest import index_ranges
from aicrun.plan.words import some
from aicrun.spec.model import Machine
from aicrun.wire.jobs import JobReport
from aicrun.wire.names import LOGS_KEPT_S
from aicrun.wire.status import Standing, status_of


@dataclass(frozen=True, slots=True)
class Found:
    """A job and the machine that answers for it; `key` is what a person typed for it, empty for one that was listed."""

    machine: str
    report: JobReport
    key: str = ""

    @property
    def called(self) -> str:
        """What a command to type next calls it: as the person did, since its name alone may mean a newer job."""
        return self.key or self.report.run

    def as_it_is(self, report: JobReport) -> Found:
        """The same job, as a newer report tells it."""
        return replace(self, report=report)

    @property
    def standing(self) -> Standing:
        """The job's status in the user's words."""
        return status_of(self.report)

    @property
    def place(self) -> str:
        """`lab[1]`: the machine and the job's cards there, by the numbers they had when it was planned."""
        cards = self.report.card_indexes
        return f"{self.machine}[{index_ranges(cards)}]" if cards else self.machine

    @property
    def logs_go_in_s(self) -> float | None:
        """After how long the sweep takes the job's logs (below 0: at its next chance); None while none are due."""
        report = self.report
        kept = any(step.log_bytes for step in report.steps)
        if report.ended_age_s is None or report.swept or not kept:
            return None
        return LOGS_KEPT_S - report.ended_age_s


@dataclass(frozen=True, slots=True)
class Listing:
    """Jobs newest first, how many more there are, and the machines that gave no answer as (name, why)."""

    jobs: tuple[Found, ...]
    omitted: int
    silent: tuple[tuple[str, str], ...]


def find(session: Session, key: str) -> Found:
    """The newest job of a run name, run id, job id, or four or more first digits of an id, `@machine` to narrow.

    Raises `UsageError` when no machine knows it or two know different ones that go on, `HostUnreachable` when none of
    those that answered knows it and a silent one might.
    """
    name, _, machine = key.partition("@")
    asked = (session.machine(machine),) if machine else session.asked()
    heard = ask_all(session, asked, lambda backend, _: backend.job(name))
    answers = [(item.machine.name, item.answer) for item in reversed(heard) if item.answer is not None]
    found = {report.job_id: Found(place, report, key) for place, report in answers}
    not_asked, ask = _down(session, name) if not machine else ((), ())
    for item in heard:
        if item.error is not None and not _says_unknown(item):
            if isinstance(item.error, HostRefused) and item.error.token == "invalid_request":
                raise UsageError("AIC-E004", item.error.message, ways=(Way("see all ids", "aicrun list --json"),))
            if not found and not isinstance(item.error, HostUnreachable):
                raise item.error
            if not found:
                raise HostUnreachable(
                    "AIC-E593",
                    f"no machine that answered knows {name}, and {item.machine.name} does not answer",
                    facts=((item.machine.name, item.error.message), *not_asked),
                    ways=(Way("see that machine", f"aicrun doctor {item.machine.name}"), *ask),
                )
    if not found:
        where = f" on {machine}" if machine else ""
        ways = (*ask, Way("see all runs", "aicrun list --all"))
        raise UsageError("AIC-E003", f"no run is called {name}{where}", facts=not_asked, ways=ways)
    meant = _meant(name, tuple(found.values()))
    if meant.standing.status.terminal:
        _check_newest(session, name, heard, meant)
    note(session, [(meant.machine, meant.report)])
    return meant


def _down(session: Session, name: str) -> tuple[tuple[tuple[str, str], ...], tuple[Way, ...]]:
    """The fact that machines which are down were not asked, and the way to ask one all the same; empty without any."""
    down = [item.name for item in session.inventory.machines if item.down]
    if not down:
        return (), ()
    way = Way(f"ask {down[0]} all the same", f"aicrun inspect {name}@{down[0]}")
    return (("not asked", f"{some(down)}: down: true in machines.yaml"),), (way,)


def _check_newest(session: Session, name: str, heard: tuple[Heard[JobReport], ...], meant: Found) -> None:
    """Raise when the last start of this client lies on a machine that is silent: what ended elsewhere is not meant."""
    last = next((one for one in session.ledger.starts(name) if one.step != "withdrawn"), None)
    silent = {item.machine.name: item.error for item in heard if isinstance(item.error, HostUnreachable)}
    error = silent.get(last.machine) if last is not None else None
    if last is not None and error is not None and last.job_id != meant.report.job_id:
        raise HostUnreachable(
            "AIC-E593",
            f"{last.machine} does not answer, and the last start of {name} was there",
            facts=((last.machine, error.message), ("known", f"an earlier job, on {meant.place}")),
            ways=(
                Way("see that machine", f"aicrun doctor {last.machine}"),
                Way("see the earlier one", f"aicrun inspect {name}@{meant.machine}"),
            ),
        )


def _meant(name: str, found: tuple[Found, ...]) -> Found:
    """The newest of several jobs; of runs that followed each other under one name, the one that has not ended."""
    living = tuple(item for item in found if not item.standing.status.terminal)
    is_one_name = all(item.report.run == name for item in found)
    if len({item.report.run_id for item in found}) > 1 and (not is_one_name or len(living) > 1):
        ways = tuple(Way(item.machine, f"{name}@{item.machine}") for item in found)
        raise UsageError("AIC-E004", f"{name} is more than one run: say which", ways=ways)
    return min(living or found, key=lambda item: item.report.age_s)


def _says_unknown(heard: Heard[JobReport]) -> bool:
    return isinstance(heard.error, HostRefused) and heard.error.token == "not_found"


def jobs(session: Session, statuses: tuple[str, ...], limit: int) -> Listing:
    """The newest jobs of all machines together, at most `limit`."""

    def ask(backend: Backend, _: Machine) -> tuple[tuple[JobReport, ...], int]:
        return backend.jobs(statuses=statuses, limit=limit)

    heard = ask_all(session, session.asked(), ask)
    seen: dict[str, Found] = {}
    omitted = 0
    for item in heard:
        if item.answer is not None:
            reports, more = item.answer
            # Two entries of the inventory may be one host.
            # A run whose folder cannot be read there has no job id.
            fresh = [report for report in reports if (report.job_id or report.run) not in seen]
            seen.update({report.job_id or report.run: Found(item.machine.name, report) for report in fresh})
            omitted += more if fresh or not reports else 0
    newest = sorted(seen.values(), key=lambda item: item.report.age_s)
    silent = tuple((item.machine.name, item.error.message) for item in heard if item.error is not None)
    note(session, [(item.machine, item.report) for item in newest])
    return Listing(tuple(newest[:limit]), omitted + max(0, len(newest) - limit), silent)
