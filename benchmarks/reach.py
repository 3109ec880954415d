"""Reaching a machine: warm commands, agent requests, round trips, a job's start, a large file, each beside a peer.

Everything goes over loopback to a daemon of its own, both sides of a comparison in one alternating series, so that what
counts is the ratio. It must not be a test. asyncssh is compared with where it is installed.

    python benchmarks/reach.py [MIB [ROUNDS [FOLDER]]]
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent.parent / "tests")]

from far import Far  # noqa: E402
from reach_jobs import Jobs, follow_table, split_table, until  # noqa: E402
from ssh_rig import Sshd  # noqa: E402  the rig of the tests

from aicrun.hosts.agent_backend import AgentBackend  # noqa: E402
from aicrun.hosts.local import LocalTransport  # noqa: E402
from aicrun.hosts.openssh import OpenSshTransport  # noqa: E402
from aicrun.hosts.ssh import FabricTransport  # noqa: E402
from aicrun.hosts.ssh_route import VARIABLE, Target, ask  # noqa: E402
from aicrun.hosts.transport import Transport  # noqa: E402
from aicrun.wire.jobs import Client  # noqa: E402

Deed = Callable[[], object]
REQUESTS = 2000


def series(deeds: dict[str, Deed], rounds: int) -> dict[str, float]:
    """The median seconds of each deed over alternating rounds, after one that only warms up."""
    taken: dict[str, list[float]] = {name: [] for name in deeds}
    for number in range(rounds + 1):
        for name, deed in deeds.items():
            began = time.perf_counter()
            deed()
            if number:
                taken[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in taken.items()}


def shown(title: str, medians: dict[str, float], beside: str, aim: str) -> None:
    """Print a table of ratios."""
    print(f"\n{title} (aim: {aim})")
    for name, median in medians.items():
        print(f"  {name:34}{median * 1000:10.2f} ms{median / medians[beside]:8.2f} x {beside}")


class Bench:
    """A daemon, a home behind it, and the transports to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(mode=0o700)
        self.daemon = Sshd(folder / "sshd", env={"HOME": str(self.home), "PATH": "/usr/bin:/bin"}).start()
        os.environ[VARIABLE] = self.config = str(self.daemon.write_client())
        route = ask(Target("box"))
        self.fabric: Transport = FabricTransport("box", route)
        self.openssh: Transport = OpenSshTransport("box", route)
        self.local: Transport = LocalTransport("here", {"HOME": str(self.home), "PATH": "/usr/bin:/bin"})

    def close(self) -> None:
        """End everything."""
        self.fabric.close()
        self.openssh.close()
        self.daemon.close()

    def commands(self, rounds: int) -> None:
        """A warm command on a connection that stands."""
        deeds: dict[str, Deed] = {
            "fabric": lambda: self.fabric.run(("/bin/true",), b"", 30),
            "OpenSSH, shared": lambda: self.openssh.run(("/bin/true",), b"", 30),
        }
        beside = "OpenSSH, shared"
        peer = Asyncssh(self.daemon) if importlib.util.find_spec("asyncssh") else None
        if peer is not None:
            deeds["asyncssh"], beside = peer.run, "asyncssh"
        shown("warm command", series(deeds, rounds * 3), beside, "fabric at most 1.5 x asyncssh")
        if peer is not None:
            peer.close()

    def requests(self, rounds: int) -> None:
        """Calls on a connection to the agent that stands."""
        backends = {
            "local pipe": AgentBackend(self.local),
            "agent over fabric": AgentBackend(self.fabric),
            "agent over OpenSSH": AgentBackend(self.openssh),
        }

        def many(backend: AgentBackend) -> None:
            for _ in range(REQUESTS):
                backend.missing("", b"", ())

        deeds = {name: (lambda backend=backend: many(backend)) for name, backend in backends.items()}
        shown(f"{REQUESTS} agent requests", series(deeds, min(rounds, 5)), "local pipe", "at most 2.86 x local pipe")
        for backend in backends.values():
            backend.close()

    def start(self, rounds: int) -> None:
        """The agent's start and first answer, and a job from its request to its first line."""
        bare = ("python3", "-S", "-E", "-c", "pass")

        def agent() -> None:
            backend = AgentBackend(self.local)
            backend.missing("", b"", ())
            backend.close()

        deeds: dict[str, Deed] = {"python3 -S -E -c pass": lambda: self.local.run(bare, b"", 30), "agent": agent}
        shown("agent start, its answer and its end", series(deeds, rounds), "python3 -S -E -c pass", "at most 3.5 x")

    def submit(self, rounds: int) -> None:
        """A job from its request to its first line, and its log as it grows."""
        backend, numbers = AgentBackend(self.fabric), iter(range(1, 10_000))
        backend.missing("", b"", ())
        jobs = Jobs(backend, self.home)
        master = OpenSshTransport("box", ask(Target("box")))
        master.run(("/bin/true",), b"", 30)

        def submitted() -> None:
            mark = self.home / f"begun-{next(numbers)}"
            jobs.start(f"touch {mark}")
            until(mark.exists)

        def nohup() -> None:
            mark = self.home / f"nohup-{next(numbers)}"
            script = f"setsid nohup sh -c 'touch {mark}' >/dev/null 2>&1 </dev/null &"
            master.run(("/bin/sh", "-c", script), b"", 30)
            until(mark.exists)

        both: dict[str, Deed] = {"reserve to first line of a job": submitted, "ssh + setsid nohup, shared": nohup}
        medians = series(both, rounds)
        shown("submit to running, warm", medians, "ssh + setsid nohup, shared", "at most 6 x and 120 ms")
        split_table(jobs, rounds)
        follow_table(jobs, ("ssh", "-F", self.config, "box"), self.home, 190, min(rounds, 5))
        backend.close()
        master.close()

    def round_trips(self) -> None:
        """Slopes over two delays: what a connection and a request cost in round trips."""
        found: dict[str, list[float]] = {"connect and first answer": [], "request": []}
        for delay_s in (0.05, 0.10):
            relay = Far(self.daemon.port, delay_s)
            text = Path(self.config).read_text().replace(f"Port {self.daemon.port}", f"Port {relay.port}")
            Path(self.config).with_name("slow").write_text(text)
            known = self.daemon.folder / "known_hosts"
            known.write_text(
                self.daemon.known() + self.daemon.known().replace(f":{self.daemon.port}", f":{relay.port}")
            )
            os.environ[VARIABLE] = str(Path(self.config).with_name("slow"))
            backend = AgentBackend(FabricTransport("box", ask(Target("box"))))
            began = time.perf_counter()
            backend.look("nobody")
            found["connect and first answer"].append(time.perf_counter() - began)
            began = time.perf_counter()
            backend.look("nobody")
            found["request"].append(time.perf_counter() - began)
            backend.close()
            relay.close()
            os.environ[VARIABLE] = self.config
        print("\nround trips over fabric, by the slope of two delays (aim: connect 5 + channel and agent 3; request 1)")
        for name, (short, long) in found.items():
            print(f"  {name:34}{(long - short) / 0.10:8.1f}")

    def file(self, mib: int, rounds: int) -> None:
        """A large file brought here and sent there; ours is on the disk at the end, that of the others in memory."""
        from aicrun.lifecycle import transfer
        from aicrun.lifecycle.session import Session
        from aicrun.spec.model import Inventory, Machine, SshReach

        source, to = self.home / "big", self.folder / "to"
        with source.open("wb") as stream:
            for _ in range(mib):
                stream.write(os.urandom(1024 * 1024))
        from aicrun.hosts.connect import connect
        from aicrun.lifecycle.ledger import Ledger

        inventory = Inventory((Machine("box", SshReach("box")),))
        session = Session(inventory, connect, Ledger(str(self.folder / "ledger.db")), Client("a", "b", "0"))
        ssh = ("ssh", "-F", self.config, "box")

        sent = self.home / "sent"

        def cat() -> None:
            with to.open("wb") as stream:
                subprocess.run([*ssh, f"cat {source}"], stdout=stream, check=True)

        def cat_there() -> None:
            with to.open("rb") as stream:
                subprocess.run([*ssh, f"cat > {sent}"], stdin=stream, check=True)

        def pulled() -> None:
            to.unlink(missing_ok=True)
            transfer.pull(session, "box", str(source), str(to), False, lambda _: None)

        def pushed() -> None:
            sent.unlink(missing_ok=True)
            transfer.push(session, str(to), "box", str(sent), False, lambda _: None)

        copied = ["scp", "-q", "-F", self.config]
        rsync = ["rsync", "--inplace", "--whole-file", "-e", f"ssh -F {self.config}"]
        fetches: dict[str, Deed] = {
            "aicrun pull, checked": pulled,
            "scp": lambda: subprocess.run([*copied, f"box:{source}", str(to)], check=True),
            "ssh cat": cat,
        }
        pushes: dict[str, Deed] = {
            "aicrun push, checked": pushed,
            "scp": lambda: subprocess.run([*copied, str(to), f"box:{sent}"], check=True),
            "ssh cat": cat_there,
        }
        if shutil.which("rsync"):
            fetches["rsync"] = lambda: subprocess.run([*rsync, "-I", f"box:{source}", str(to)], check=True)
            pushes["rsync"] = lambda: subprocess.run([*rsync, "-I", str(to), f"box:{sent}"], check=True)
        shown(f"a file of {mib} MiB brought here", series(fetches, rounds), "scp", "at most 1.25 x scp")
        shown(f"a file of {mib} MiB sent there", series(pushes, rounds), "scp", "at most 1.25 x scp")
        session.close()


class Asyncssh:
    """asyncssh with a connection that stands, in a loop of its own."""

    def __init__(self, daemon: Sshd) -> None:
        import asyncssh

        self._loop = asyncio.new_event_loop()
        self._connection = self._loop.run_until_complete(
            asyncssh.connect(
                "127.0.0.1",
                daemon.port,
                username=daemon.user,
                client_keys=[str(daemon.user_key)],
                known_hosts=str(daemon.folder / "known_hosts"),
                config=None,
            )
        )

    def run(self) -> None:
        """One command."""
        self._loop.run_until_complete(self._connection.run("/bin/true"))

    def close(self) -> None:
        """End the connection."""
        self._connection.close()
        self._loop.run_until_complete(self._connection.wait_closed())
        self._loop.close()


def main() -> None:
    """Measure and print."""
    # As the command has it (`aicrun/cli/main.py`).
    gc.set_threshold(100_000, 20, 100)
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 2048
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 9
    folder = Path(tempfile.mkdtemp(prefix="aicrun-ssh-", dir=sys.argv[3] if len(sys.argv) > 3 else None))
    bench = Bench(folder)
    try:
        bench.commands(rounds)
        bench.requests(rounds)
        bench.start(rounds)
        bench.submit(rounds)
        bench.round_trips()
        bench.file(mib, min(rounds, 5))
    finally:
        bench.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
