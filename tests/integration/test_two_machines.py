"""The start protocol over two real agents with homes of their own: at most one start, whoever else is starting it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Person, processes_with, until

from aicrun.errors import HostRefused, HostUnreachable
from aicrun.hosts.agent_backend import AgentBackend
from aicrun.hosts.backend import Backend
from aicrun.hosts.local import LocalTransport
from aicrun.lifecycle import start as start_file
from aicrun.lifecycle.ledger import Ledger
from aicrun.lifecycle.session import Session
from aicrun.lifecycle.start import Start, Started, start
from aicrun.plan.model import HostOn, RunPlan, Sign
from aicrun.spec.model import Inventory, LocalReach, Machine, RunSpec
from aicrun.wire.jobs import Client, JobReport, JobRequest

CLIENT = Client("ana", "laptop", "0.1.0")
NAMES = ("lab", "attic")


class World:
    """Two machines, each an agent with a home of its own; a silent one cannot be connected to."""

    def __init__(self, person: Person) -> None:
        self.person = person
        self.silent: set[str] = set()
        self._sessions: list[Session] = []

    def home(self, name: str) -> Path:
        return self.person.home / name

    def connect(self, machine: Machine) -> Backend:
        if machine.name in self.silent:
            raise HostUnreachable("AIC-E591", f"{machine.name} gave no answer")
        home = self.home(machine.name)
        home.mkdir(exist_ok=True)
        env = {**self.person.env, "HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
        return AgentBackend(LocalTransport(machine.name, env))

    def session(self) -> Session:
        """A client with a ledger of its own."""
        inventory = Inventory(tuple(Machine(name, LocalReach()) for name in NAMES))
        ledger = Ledger(str(self.person.home / f"client-{len(self._sessions)}/ledger.db"))
        self._sessions.append(Session(inventory, self.connect, ledger, CLIENT))
        return self._sessions[-1]

    def close(self) -> None:
        """Stop what runs, and every client's connections."""
        session = self.session()
        for name in NAMES:
            for report in session.backend(name).look("sft-run")[0]:
                session.backend(name).stop(report.job_id, "test", 0)
        for one in self._sessions:
            one.close()

    def item(self, machine: str) -> RunPlan:
        spec = RunSpec("sft-run", "run.yaml", str(self.person.home), ("sleep 60",), {}, {}, {})
        draft = JobRequest(
            job_id="", run="sft-run", run_id="", rank="", digest="d", client=CLIENT, execution={"command": "sleep 60"},
            workspace=str(self.home(machine) / "work"), command=("sleep 60",), machine=machine,
        )  # fmt: skip
        return RunPlan(Sign.START, "sft-run", "start", spec, "d", (HostOn(machine),), machine, draft=draft)

    def start(self, machine: str, rank: str, session: Session | None = None) -> Started:
        others = tuple(name for name in NAMES if name != machine)
        return start(Start(session or self.session(), self.item(machine), rank, others, lambda _: None))

    def going(self) -> list[JobReport]:
        session = self.session()
        return [report for name in NAMES for report in session.backend(name).look("sft-run")[0]]

    def reserved(self, machine: str, rank: str) -> tuple[Backend, str]:
        """A rival that has reserved and was killed before it confirmed."""
        backend = self.session().backend(machine)
        draft = self.item(machine).draft
        assert draft is not None
        job_id = rank[:8] + "00000000"
        request = JobRequest(**{**draft.__dict__, "job_id": job_id, "run_id": "a" * 16, "rank": rank})
        assert backend.reserve(request, confirm=False).answer == "ok"
        return backend, job_id


@pytest.fixture
def world(person: Person) -> Iterator[World]:
    two = World(person)
    yield two
    two.close()
    until(lambda: not [pid for name in NAMES for pid in processes_with(f"HOME={two.home(name)}\0")])


def test_a_start_is_confirmed_after_all_machines_said_that_they_hold_none(world: World) -> None:
    started = world.start("lab", "5" * 16)
    assert not started.adopted
    assert [report.decision for report in world.going()] == ["go"]


def test_a_machine_that_is_silent_at_the_look_stops_the_start(world: World) -> None:
    world.silent.add("attic")
    with pytest.raises(HostUnreachable, match="attic may hold sft-run; nothing was started"):
        world.start("lab", "5" * 16)
    world.silent.clear()
    assert world.going() == []


def test_a_run_that_goes_on_elsewhere_is_adopted(world: World) -> None:
    first = world.start("attic", "5" * 16)
    second = world.start("lab", "3" * 16)
    assert second.adopted
    assert (second.machine, second.report.job_id) == ("attic", first.report.job_id)
    assert len(world.going()) == 1


def test_a_higher_rival_that_died_is_withdrawn_at_once(world: World) -> None:
    rival, job_id = world.reserved("attic", "9" * 16)
    assert not world.start("lab", "5" * 16).adopted
    assert rival.confirm(job_id)[0] == "no"
    assert len(world.going()) == 1


def test_a_lower_rival_goes_first_and_is_adopted_when_it_confirms(world: World) -> None:
    rival, job_id = world.reserved("attic", "1" * 16)
    got: list[Started] = []
    client = threading.Thread(target=lambda: got.append(world.start("lab", "5" * 16)))
    client.start()
    until(lambda: any(report.machine == "lab" for report in world.going()))
    assert rival.confirm(job_id)[0] == "go"
    client.join(30)
    assert got[0].adopted
    assert got[0].report.job_id == job_id
    assert [report.job_id for report in world.going()] == [job_id]


def test_a_lower_rival_that_stays_undecided_is_never_taken_for_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its client lives and touches it, while it waits for the end of the job that it replaces.
    monkeypatch.setattr(start_file, "_AWAIT_S", 0.2)
    rival, job_id = world.reserved("attic", "1" * 16)
    with pytest.raises(HostRefused, match="could not be settled"):
        world.start("lab", "5" * 16)
    assert [report.job_id for report in world.going()] == [job_id]
    assert rival.confirm(job_id)[0] == "go"


@pytest.mark.parametrize("turn", range(3))
def test_two_clients_on_two_machines_start_one_job(world: World, turn: int) -> None:
    got: list[Started] = []
    ranks = (f"{turn + 1:x}" * 16, "8" * 16)
    clients = [
        threading.Thread(target=lambda name=name, rank=rank: got.append(world.start(name, rank)))
        for name, rank in zip(NAMES, ranks, strict=True)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join(60)
    assert len(got) == 2
    assert len({started.report.job_id for started in got}) == 1
    assert [report.decision for report in world.going()] == ["go"]
