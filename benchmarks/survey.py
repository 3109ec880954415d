"""A cold survey of 1, 8, 32 and 64 machines as a whole process, beside what ansible and pyinfra take for `true` there.

Every machine is an sshd of its own on loopback, with its own host key, home, agent and simulated cards; client and
machines share this machine's processors. Cold: a new client process and new connections, while the agent has been
pushed before, and known_hosts knows every machine. It must not be a test.

    python benchmarks/survey.py [ROUNDS [SIZE …]]

ansible and pyinfra come from the environment in `$AICRUN_PEERS`, else from one in `benchmarks/.peers`, made with pip.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent.parent / "tests")]

from fake_nvml.driver import TWO_CARDS, FakeDriver, can_be_built  # noqa: E402  the rig of the tests
from ssh_rig import Sshd, below  # noqa: E402
from support import Person, end_processes_with, until  # noqa: E402

from aicrun.hosts.ssh_route import VARIABLE  # noqa: E402

SIZES = (1, 8, 32, 64)
PEERS = Path(__file__).with_name(".peers")
AICRUN, RAW, PING, PYINFRA = "aicrun machines", "ansible -m raw -a true", "ansible -m ping", "pyinfra exec -- true"
RAW_ALONE, PING_ALONE = f"{RAW}, not shared", f"{PING}, not shared"
AIMS = {RAW: 0.35, RAW_ALONE: 0.35, PING: 0.15, PING_ALONE: 0.15, PYINFRA: 1.3}
# As ansible has it by itself, but for the connections, which it would share and keep for a minute.
NOT_SHARED = "-C -o ControlMaster=no -o ControlPersist=no"
MEMORY_AIM = 1.5
LOOK_EACH_S = 0.002
LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class Taken:
    """One whole process: its wall time, the processor's time of the client, and that of the machines."""

    wall_s: float
    client_s: float
    machines_s: float


class Fleet:
    """Many machines, and a person whose ssh configuration, inventories and known_hosts name them m1, m2, …"""

    def __init__(self, folder: Path, size: int) -> None:
        home = folder / "client"
        home.mkdir(mode=0o700)
        self.person = Person(home)
        self.daemons = [self._machine(folder / f"m{number}") for number in range(1, size + 1)]
        self.names = [f"m{number}" for number in range(1, size + 1)]
        known = home / "known_hosts"
        known.write_text("".join(daemon.known() for daemon in self.daemons))
        shared = self.daemons[0].user_key
        entries = []
        for name, daemon in zip(self.names, self.daemons, strict=True):
            shutil.copy(f"{shared}.pub", daemon.authorized)
            entries.append(
                f"Host {name}\n  HostName 127.0.0.1\n  Port {daemon.port}\n  User {daemon.user}\n"
                f"  IdentityFile {shared}\n  UserKnownHostsFile {known}\n"
            )
        self.config = home / "ssh_config"
        self.config.write_text("\n".join(entries))
        self.person.env[VARIABLE] = str(self.config)
        self.person.env["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent)

    def _machine(self, folder: Path) -> Sshd:
        home = folder / "home"
        home.mkdir(parents=True, mode=0o700)
        env = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
        if can_be_built():
            cards = TWO_CARDS.replace("GPU-", f"GPU-{folder.name}-{os.getpid()}-")
            env |= FakeDriver(folder / "driver", cards).env
        return Sshd(folder / "sshd", env=env).start()

    def commands(self, size: int, peers: Path | None) -> dict[str, tuple[str, ...]]:
        """The command of each program that asks the first `size` machines."""
        home, names = self.person.home, self.names[:size]
        inventory = home / f"machines-{size}.yaml"
        inventory.write_text("version: 1\nmachines:\n" + "".join(f"  - {{name: {n}, ssh: {n}}}\n" for n in names))
        found: dict[str, tuple[str, ...]] = {
            AICRUN: (sys.executable, "-m", "aicrun", "machines", "--machines", str(inventory))
        }
        if peers is None:
            return found
        hosts = home / f"hosts-{size}.ini"
        hosts.write_text("".join(f"{name}\n" for name in names))
        common = (str(peers / "bin/ansible"), "all", "-i", str(hosts), "-f", "64", "--ssh-common-args")
        args = f"-F {self.config}"
        data = {"ssh_config_file": str(self.config), "ssh_known_hosts_file": str(home / "known_hosts")}
        deploy = home / f"hosts_{size}.py"
        deploy.write_text(f"hosts = {[(name, data) for name in names]!r}\n")
        for raw, ping, more in ((RAW, PING, ()), (RAW_ALONE, PING_ALONE, ("-e", f"ansible_ssh_args='{NOT_SHARED}'"))):
            found[raw] = (*common, args, *more, "-m", "raw", "-a", "true")
            found[ping] = (*common, args, *more, "-m", "ping")
        words = ("-y", "--parallel", "64", str(deploy), "exec", "--", "true")
        found[PYINFRA] = (str(peers / "bin/pyinfra"), *words)
        return found

    def clean(self) -> None:
        """End what a command left behind for a next one, as ansible's shared connections: the next is cold too."""
        end_processes_with(f"HOME={self.person.home}\0")
        # A connection that is shared writes its name over its environment.
        for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
            with contextlib.suppress(OSError):
                if f"{self.person.home}/.ansible/cp".encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
        pids = [daemon.process.pid for daemon in self.daemons if daemon.process is not None]
        until(lambda: not any(below(pid) for pid in pids), 60)

    def used_s(self) -> float:
        """The processor's time of all sessions that have ended on all machines."""
        pids = [daemon.process.pid for daemon in self.daemons if daemon.process is not None]
        rows = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15] for pid in pids)
        return sum(int(ticks) for row in rows for ticks in row) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End everything."""
        self.clean()
        for daemon in self.daemons:
            daemon.close()


def run(fleet: Fleet, argv: tuple[str, ...]) -> Taken:
    """One whole process to its end; one that fails is no measurement."""
    before_s = fleet.used_s()
    with (fleet.person.home / "out").open("w+b") as out:
        began = time.perf_counter()
        process = subprocess.Popen(
            argv, cwd=fleet.person.home, env=fleet.person.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            out.seek(0)
            raise SystemExit(f"{' '.join(argv)}\n{out.read().decode('utf-8', 'replace')}")
    fleet.clean()
    return Taken(wall_s, used.ru_utime + used.ru_stime, fleet.used_s() - before_s)


def peaks_mib(fleet: Fleet, argv: tuple[str, ...]) -> tuple[float, float]:
    """The most that the process and all below it held in memory at one moment.

    Pages that several of them share counted once, and for each of them.
    """
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(
        argv, cwd=fleet.person.home, env=fleet.person.env, stdin=subprocess.DEVNULL, stdout=nowhere, stderr=nowhere
    )
    ended, once, each = threading.Event(), 0.0, 0.0

    def look() -> None:
        nonlocal once, each
        while not ended.wait(LOOK_EACH_S):
            held = [_held_mib(pid) for pid in _with_children(process.pid) if not _is_same(pid, process.pid)]
            held.append(_held_mib(process.pid))
            once = max(once, sum(pss for pss, _ in held))
            each = max(each, sum(rss for _, rss in held))

    watching = threading.Thread(target=look)
    watching.start()
    process.wait()
    ended.set()
    watching.join()
    fleet.clean()
    return once, each


def _with_children(root: int) -> Iterator[int]:
    yield root
    # It may end at any moment.
    with contextlib.suppress(OSError):
        for task in list(Path(f"/proc/{root}/task").glob("*/children")):
            with contextlib.suppress(OSError):
                for word in task.read_text().split():
                    yield from _with_children(int(word))


def _is_same(pid: int, parent: int) -> bool:
    """Whether it is that process, or one between its fork and its exec, which has no memory of its own yet."""
    # kcmp(2) on x86-64, asked for the address space; elsewhere it says that it is not there.
    return pid == parent or LIBC.syscall(312, pid, parent, 1, 0, 0) == 0


def _held_mib(pid: int) -> tuple[float, float]:
    """Its share of what it holds with others, and all of it."""
    found = {"Pss:": 0, "Rss:": 0}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
            name, kib = line.split()[:2]
            if name in found:
                found[name] = int(kib)
    return found["Pss:"] / 1024, found["Rss:"] / 1024


def table(fleet: Fleet, size: int, rounds: int, peers: Path | None) -> None:
    """All programs in turns against `size` machines, and the ratios of their medians."""
    commands = fleet.commands(size, peers)
    taken: dict[str, list[Taken]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, argv in commands.items():
            found = run(fleet, argv)
            if number:
                taken[name].append(found)
    print(
        f"\n{size} machine{'s'[: size > 1]}, {rounds} rounds, medians: wall; processor of the client, of the machines"
    )
    wall, client, both = (
        {name: statistics.median(map(what, all_of)) for name, all_of in taken.items()}
        for what in (lambda one: one.wall_s, lambda one: one.client_s, lambda one: one.client_s + one.machines_s)
    )
    for name in commands:
        line = f"  {name:36}{wall[name]:7.2f} s{client[name]:7.2f} s{both[name] - client[name]:7.2f} s"
        if name in AIMS:
            ratio, of_client, of_both = (all_of[AICRUN] / all_of[name] for all_of in (wall, client, both))
            line += f"   aicrun {ratio:.2f} x wall, {of_client:.2f} and {of_both:.2f} x processor; aim {AIMS[name]:.2f}"
            line += "" if ratio <= AIMS[name] else "  MISSED"
        print(line, flush=True)


def memory(fleet: Fleet, most: int, peers: Path | None) -> None:
    """The peak of each program's processes together with one machine and with `most`."""
    few, many = fleet.commands(1, peers), fleet.commands(most, peers)
    print("\npeak memory of all processes of the client, MiB, shared pages counted once (for each): median of 3")
    for name in few:
        (one, one_each), (all_of, each) = (
            map(statistics.median, zip(*(peaks_mib(fleet, argv[name]) for _ in range(3)), strict=True))
            for argv in (few, many)
        )
        ratio = all_of / one
        aim = f", aim {MEMORY_AIM}{'' if ratio <= MEMORY_AIM else '  MISSED'}" if name == AICRUN else ""
        line = f"1 machine {one:6.1f} ({one_each:6.1f})  {most} machines {all_of:6.1f} ({each:6.1f})"
        print(f"  {name:36}{line}   {ratio:5.2f} x ({each / one_each:.2f}){aim}", flush=True)


def peers_of(environment: str) -> Path | None:
    """The environment with ansible and pyinfra, made when it can be; None, said aloud, when there is none."""
    place = Path(environment) if environment else PEERS
    if not (place / "bin/ansible").exists() and not environment:
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, capture_output=True)
            words = ["-m", "pip", "install", "-q", "ansible-core", "pyinfra"]
            subprocess.run([str(place / "bin/python"), *words], check=True, capture_output=True)
    if all((place / "bin" / name).exists() for name in ("ansible", "pyinfra")):
        return place
    print(f"SKIPPED: no ansible and no pyinfra in {place}, and pip could not install them: aicrun is measured alone")
    return None


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    sizes = tuple(map(int, sys.argv[2:])) or SIZES
    peers = peers_of(os.environ.get("AICRUN_PEERS", ""))
    folder = Path(tempfile.mkdtemp(prefix="aicrun-survey-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    fleet = Fleet(folder, max(sizes))
    try:
        # The first contact sends the agent.
        run(fleet, fleet.commands(max(sizes), None)[AICRUN])
        for size in sizes:
            table(fleet, size, rounds, peers)
        if max(sizes) > 1:
            memory(fleet, max(sizes), peers)
    finally:
        fleet.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
