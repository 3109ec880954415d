"""The start protocol under a scheduler: real clients, real host functions on real files, every message in hand.

Clients are the production `lifecycle.start` in threads of their own; whatever they ask waits here until a test delivers
it, loses it, loses its answer, or lets a copy arrive late. Hosts answer by the agent's own functions. Stand-ins are
only the keeper's process (here a held lock), a client's clock, and the order of parallel looks (in turn, any order).
"""

from __future__ import annotations

import importlib
import os
import random
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import REPOSITORY

from aicrun.agent import decide, handles, keepers, serve
from aicrun.agent.home import Home, open_home
from aicrun.agent.process import boot_identity, start_ticks
from aicrun.agent.records import make_private, write_record
from aicrun.agent.refused import Refused
from aicrun.errors import AicrunError, HostRefused, HostUnreachable
from aicrun.hosts.agent_backend import AgentBackend
from aicrun.hosts.local import LocalTransport
from aicrun.lifecycle import patience as patience_file
from aicrun.lifecycle import start as start_file
from aicrun.lifecycle.ledger import Ledger
from aicrun.lifecycle.session import Session
from aicrun.lifecycle.survey import Heard
from aicrun.plan.model import HostOn, RunPlan, Sign
from aicrun.spec.model import Inventory, LocalReach, Machine, RunSpec
from aicrun.wire import names
from aicrun.wire.jobs import Client as Who
from aicrun.wire.jobs import End, JobRequest, StepExit, StepStart

RUN = "sft-run"
QUIET_S = 60.0


class Crash(BaseException):
    """The client is gone: whatever it was about to do is not done."""


@dataclass
class Message:
    """One question on its way, and its answer once there is one."""

    client: Client
    machine: str
    call: str
    body: dict[str, Any]
    answer: dict[str, Any] | None = None
    fault: BaseException | None = None


@dataclass
class Host:
    """A machine: its state, and the keepers that live on it by job id."""

    name: str
    home: Home
    keepers: dict[str, int] = field(default_factory=dict)


class Clock:
    """The time of each client's thread; it passes when the client waits."""

    def __init__(self) -> None:
        self._local = threading.local()

    def monotonic(self) -> float:
        return float(getattr(self._local, "now", 0.0))

    def sleep(self, seconds: float) -> None:
        self._local.now = self.monotonic() + seconds


class Network:
    """Hosts, clients, and what is on its way between them."""

    def __init__(self, folder: Path, hosts: tuple[str, ...], choice: random.Random | None = None) -> None:
        self.choice = choice
        self.folder = folder
        self.clock = Clock()
        self.hosts: dict[str, Host] = {}
        for name in hosts:
            (folder / name).mkdir(mode=0o700)
            env = {"HOME": str(folder / name), "XDG_STATE_HOME": str(folder / name / "state")}
            self.hosts[name] = Host(name, open_home(env))
        self.clients: list[Client] = []
        self.late: list[Message] = []
        self.started: list[str] = []
        self.cut: set[tuple[str, str]] = set()
        self.changed = threading.Condition()

    # The clients' side.

    def ask(self, client: Client, machine: str, call: str, body: dict[str, Any]) -> dict[str, Any]:
        """Wait until the test has decided what becomes of this question; raises as a broken connection does."""
        message = Message(client, machine, call, body)
        with self.changed:
            client.message = message
            self.changed.notify_all()
            while message.answer is None and message.fault is None:
                self.changed.wait()
        if message.fault is not None:
            raise message.fault
        if call == "wait":
            self.clock.sleep(float(body["timeout_s"]))
        return message.answer or {}

    # The test's side.

    def quiet(self) -> None:
        """Wait until every client has asked something or is done."""
        with self.changed:
            assert self.changed.wait_for(lambda: all(one.message or one.done for one in self.clients), QUIET_S)

    def deliver(self, message: Message) -> None:
        """The host answers, and the client hears it."""
        try:
            answer, fault = self.answered(message), None
        except Refused as error:
            code = "AIC-E604" if error.token == "busy" else "AIC-E610"
            answer, fault = None, HostRefused(code, error.message, token=error.token)
        self._resume(message, answer, fault)

    def lose_answer(self, message: Message) -> None:
        """The host has answered, and nobody hears it."""
        self._arrives(message)
        self.lose(message)

    def lose(self, message: Message, late: bool = False) -> None:
        """The client hears nothing; with `late` the question may still `arrive`."""
        if late:
            self.late.append(message)
        self._resume(message, None, HostUnreachable("AIC-E591", f"{message.machine} gave no answer"))

    def arrive(self, message: Message) -> None:
        """A question that its client has given up comes through after all."""
        self.late.remove(message)
        self._arrives(message)

    def crash(self, client: Client) -> None:
        """The client's process is killed at its next word."""
        if client.message is not None:
            self._resume(client.message, None, Crash())
        self.quiet()
        client.ledger_of_the_dead()

    def answered(self, message: Message) -> dict[str, Any]:
        body = {**message.body, **({"timeout_s": 0.0} if message.call == "wait" else {})}
        return serve.handler(message.call)(self.hosts[message.machine].home, body, b"")[0]

    def _arrives(self, message: Message) -> None:
        try:
            self.answered(message)
        except Refused:
            return

    def _resume(self, message: Message, answer: dict[str, Any] | None, fault: BaseException | None) -> None:
        with self.changed:
            message.client.message = None
            message.answer, message.fault = answer, fault
            self.changed.notify_all()
        self.quiet()

    # What happens on a host by itself.

    def records(self) -> list[tuple[Host, str]]:
        return [(host, job_id) for host in self.hosts.values() for job_id in host.home.job_ids(RUN)]

    def expire(self, host: Host, job_id: str) -> None:
        """A minute passes without a touch, and the keeper's timer fires."""
        path = Path(host.home.job_dir(job_id), names.TOUCH)
        path.write_text("0.0")
        if job_id in host.keepers:
            decide.expire(host.home, RUN, job_id)

    def lose_keeper(self, host: Host, job_id: str) -> None:
        os.close(host.keepers.pop(job_id))

    def begin(self, host: Host, job_id: str) -> bool:
        """A living keeper that reads `go` starts its command; True when it did so now."""
        standing = decide.standing(host.home, RUN, job_id)
        if job_id not in host.keepers or standing is None or standing.decision != "go" or job_id in self.started:
            return False
        folder = host.home.step_dir(job_id, 1, "command")
        make_private(folder)
        boot, pid = boot_identity(), os.getpid()
        identity = (boot.boot_id, boot.pid_namespace, boot.init_ticks)
        start = StepStart("command", 1, pid, start_ticks(pid) or 0, os.getsid(0), *identity, 1.0)
        write_record(os.path.join(folder, names.STEP_START), start)
        self.started.append(job_id)
        return True

    def end(self, host: Host, job_id: str) -> None:
        """The started job ends well."""
        exits = (StepExit("command", 1, 1.0, 2.0, code=0),)
        write_record(os.path.join(host.home.record_dir(RUN, job_id), names.END), End(1, 2.0, exits))
        self.lose_keeper(host, job_id)

    def settle_all(self) -> list[str]:
        """Whatever may start starts: the ids of all that ever did."""
        for host, job_id in self.records():
            self.begin(host, job_id)
        return self.started

    def close(self) -> None:
        for client in self.clients:
            while not client.done:
                self.crash(client)
        for host in self.hosts.values():
            for job_id in list(host.keepers):
                self.lose_keeper(host, job_id)

    def keeper(self, role: str, job_dir: str, grace_s: int) -> None:
        """In the place of `keepers.start`: the lock that tells of a living keeper, without its process."""
        host = next(one for one in self.hosts.values() if job_dir.startswith(one.home.jobs_root))
        handle = handles.hold(os.path.join(job_dir, names.KEEPER_LOCK), 1.0)
        assert handle is not None
        host.keepers[os.path.basename(job_dir)] = handle


class _Door:
    """In the place of a connection: each call of one client to one machine is a message of the network."""

    def __init__(self, network: Network, client: Client, machine: str) -> None:
        self._network, self._client, self.machine = network, client, machine

    def call(
        self, name: str, body: dict[str, Any], payload: bytes = b"", deadline_s: float = 0.0
    ) -> tuple[dict[str, Any], bytes]:
        if (self._client.name, self.machine) in self._network.cut:
            raise HostUnreachable("AIC-E591", f"{self.machine} gave no answer")
        return self._network.ask(self._client, self.machine, name, body), b""

    def close(self) -> None:
        return


class Client:
    """A client's process: one start after another, each in a thread; its ledger and its name last."""

    def __init__(self, network: Network, name: str, sees: tuple[str, ...] = ()) -> None:
        self.network, self.name = network, name
        self.sees = sees or tuple(network.hosts)
        self.message: Message | None = None
        self.done = True
        self.result: start_file.Started | None = None
        self.fault: AicrunError | None = None
        self._ledger = str(network.folder / f"client-{name}.db")
        network.clients.append(self)

    def session(self) -> Session:
        inventory = Inventory(tuple(Machine(name, LocalReach()) for name in self.sees))
        who = Who(self.name, "laptop", "0.1.0")
        return Session(inventory, self._connect, Ledger(self._ledger), who)

    def _connect(self, machine: Machine) -> AgentBackend:
        backend = AgentBackend(LocalTransport(machine.name, {}))
        backend._link = _Door(self.network, self, machine.name)  # type: ignore[assignment]  # the seam is its `call`
        return backend

    def start(self, machine: str, rank: str, code: Any = start_file, **more: Any) -> Client:
        """Begin to start the run on `machine`; `code` is the client's own file, or one without a guard."""
        session = self.session()
        before = more.pop("before", None)
        draft = JobRequest(
            job_id="", run=RUN, run_id="", rank="", digest="d", client=session.client, execution={"command": "true"},
            workspace=str(self.network.folder / "work"), command=("true",), machine=machine, **more,
        )  # fmt: skip
        spec = RunSpec(RUN, "run.yaml", "/", ("true",), {}, {}, {})
        item = RunPlan(Sign.START, RUN, "start", spec, "d", (HostOn(machine),), machine, draft=draft)
        others = tuple(name for name in self.sees if name != machine)
        wanted = code.Start(session, item, rank * 16, others, lambda _: None, before)
        self._in_thread(session, lambda: code.start(wanted))
        return self

    def settle(self) -> Client:
        """What the next command of this person does first: withdraw what a killed client left."""
        session = self.session()
        self._in_thread(session, lambda: start_file.settle_leftovers(session, RUN))
        return self

    def _in_thread(self, session: Session, work: Callable[[], Any]) -> None:
        self.done, self.result, self.fault = False, None, None

        def run() -> None:
            try:
                self.result = work()
            except AicrunError as error:
                self.fault = error
            except Crash:
                pass
            finally:
                session.close()
                with self.network.changed:
                    self.done = True
                    self.network.changed.notify_all()

        threading.Thread(target=run, daemon=True).start()
        self.network.quiet()

    def upto(self, call: str) -> Client:
        """Deliver what it asks until it is about to ask `call`."""
        while self.message is not None and self.message.call != call:
            self.network.deliver(self.message)
        assert self.message is not None, (self.name, self.result, self.fault)
        return self

    def deliver(self) -> Client:
        """Deliver its one question."""
        assert self.message is not None
        self.network.deliver(self.message)
        return self

    def run(self, most: int = 200) -> Client:
        """Deliver all it asks, to its end; one that asks for ever is cut off after `most` questions."""
        for _ in range(most):
            if self.message is None:
                return self
            self.network.deliver(self.message)
        self.network.crash(self)
        return self

    def ledger_of_the_dead(self) -> None:
        """The rows of a killed client are those of a process that is gone."""
        ledger = Ledger(self._ledger)
        ledger._run("UPDATE starts SET ticks = 1", ())
        ledger.close()


def in_turn(network: Network) -> Any:
    """In the place of `ask_all`: parallel questions are answered in some order, so ask in any order, one by one."""

    def ask_all(session: Session, machines: tuple[Machine, ...], ask: Any, deadline_s: float = 0.0) -> Any:
        heard: dict[str, Any] = {}
        for machine in network.choice.sample(machines, len(machines)) if network.choice else machines:
            try:
                heard[machine.name] = Heard(machine, ask(session.backend(machine.name), machine))
            except AicrunError as error:
                heard[machine.name] = Heard(machine, error=error)
        return tuple(heard[machine.name] for machine in machines)

    return ask_all


def without(module: str, *edits: tuple[str, str]) -> types.ModuleType:
    """The file of `module` with each text replaced, as a module of its own: the same code without one guard."""
    path = REPOSITORY / (module.replace(".", "/") + ".py")
    source = path.read_text()
    for old, new in edits:
        assert old in source, f"{path.name} holds no {old!r} any more: this guard has moved"
        source = source.replace(old, new)
    made = types.ModuleType(f"{module}_without")
    made.__file__ = str(path)
    # Dataclasses look their module up by name.
    sys.modules[made.__name__] = made
    exec(compile(source, str(path), "exec"), made.__dict__)
    return made


@contextmanager
def stand_ins(network: Network, monkeypatch: Any, *clients: Any) -> Iterator[None]:
    """Put the stand-ins in place; `clients` are files made by `without`."""
    monkeypatch.setattr(keepers, "start", network.keeper)
    monkeypatch.setattr(patience_file, "time", network.clock)
    for code in (start_file, *clients):
        monkeypatch.setattr(code, "time", network.clock)
        monkeypatch.setattr(code, "ask_all", in_turn(network))
    yield
    network.close()


def patched(monkeypatch: Any, module: str, names_: tuple[str, ...], *edits: tuple[str, str]) -> None:
    """Let a host run without one guard: the named functions of an agent's file come from the edited one."""
    real, other = importlib.import_module(module), without(module, *edits)
    for name in names_:
        monkeypatch.setattr(real, name, getattr(other, name))
