"""A source of 20,000 small files to a machine: a whole `aicrun apply` beside a whole `rsync -a` over the same sshd.

The machine is an sshd on loopback, so that both sides share this machine's processors. Each round has a new source of
1,000 folders and about 80 MiB of random bytes, and takes turns: everything for the first time, then again with nothing
changed, then with ten files changed. `apply` ends when the job's command has started, so its time includes the plan,
the job's own fresh working tree, and the start. That tree is what `rsync --copy-dest` makes, a full copy of what the
machine has already; plain `rsync -a` into the same folder only looks. It must not be a test.

    python benchmarks/sync.py [ROUNDS [FILES]]
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent.parent / "tests")]

from ssh_rig import Sshd  # noqa: E402  the rig of the tests
from support import Person, end_processes_with  # noqa: E402

from aicrun.hosts.ssh_route import VARIABLE  # noqa: E402

FILE_BYTES = 4096
PER_FOLDER = 20
SETTLED_S = 2.5
FIRST, SAME, FEW = "first time", "nothing changed", "ten files changed"
APPLY, PLAN, RSYNC, FRESH = "aicrun apply", "aicrun plan", "rsync -a", "rsync -a --copy-dest (a fresh tree)"


class Site:
    """A person, their project, and a machine over ssh."""

    def __init__(self, folder: Path, files: int) -> None:
        self.home, self.there, self.files = folder / "client", folder / "home", files
        for path in (self.home, self.there):
            path.mkdir(mode=0o700)
        self.person = Person(self.home)
        self.daemon = Sshd(folder / "sshd", env={"HOME": str(self.there), "PATH": "/usr/bin:/bin"}).start()
        self.config = self.daemon.write_client()
        self.person.env[VARIABLE] = str(self.config)
        self.person.env["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent)
        self.project = self.home / "project"
        (self.home / "machines.yaml").write_text("version: 1\nmachines: [{name: box, ssh: box}]\n")
        (self.home / "run.yaml").write_text(
            "version: 1\nname: sync-run\nsource: {path: project}\ncommand: test -f f0/0.py\n"
        )

    def write(self, number: int, paths: range) -> None:
        """New contents of these files."""
        chance = random.Random(number)
        for at in paths:
            path = self.project / f"f{at // PER_FOLDER}" / f"{at % PER_FOLDER}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(chance.randbytes(FILE_BYTES + at % 100))

    def new(self, number: int) -> None:
        """Another source, and nothing of an earlier one on either side but the agent."""
        shutil.rmtree(self.project, ignore_errors=True)
        self.write(number, range(self.files))
        for path in (
            *self.there.glob("rsync-*"),
            *self.there.glob("aic-jobs"),
            *self.there.glob(".local/state/aicrun/*/store"),
        ):
            shutil.rmtree(path)
        shutil.rmtree(self.home / ".cache", ignore_errors=True)
        os.sync()

    def aicrun(self, *words: str) -> float:
        """Seconds of a whole command."""
        return self.timed((sys.executable, "-m", "aicrun", *words))

    def rsync(self, to: str, *words: str) -> float:
        """Seconds of a whole rsync into the folder `to` of the machine's home."""
        way = f"ssh -F {self.config}"
        return self.timed(("rsync", "-a", "-e", way, *words, f"{self.project}/", f"box:{self.there}/{to}/"))

    def timed(self, argv: tuple[str, ...]) -> float:
        """Seconds of `argv` to its end; one that fails is no measurement."""
        began = time.perf_counter()
        done = subprocess.run(
            argv, cwd=self.home, env=self.person.env, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        took = time.perf_counter() - began
        if done.returncode:
            raise SystemExit(f"{' '.join(argv)}\n{done.stdout.decode()}{done.stderr.decode()}")
        return took

    def ended(self) -> None:
        """Wait for the run's end, so that nothing of it works on while others are measured."""
        self.timed((sys.executable, "-m", "aicrun", "wait", "sync-run"))

    def close(self) -> None:
        """End everything."""
        end_processes_with(f"HOME={self.home}\0")
        self.daemon.close()


Times = dict[tuple[str, str], list[float]]


def a_round(site: Site, number: int, taken: Times) -> None:
    """One source through all three phases; who goes first alternates."""
    site.new(number)
    time.sleep(SETTLED_S)
    for phase in (FIRST, SAME, FEW):
        if phase == FEW:
            site.write(-number - 1, range(0, site.files, max(1, site.files // 10)))
            time.sleep(SETTLED_S)
        fresh = f"rsync-{phase.replace(' ', '-')}"
        turns: list[tuple[str, Callable[[], float]]] = [
            (APPLY, partial(site.aicrun, "apply", "run.yaml", "--yes", "--again")),
            (RSYNC, partial(site.rsync, "rsync-same")),
        ]
        if phase != FIRST:
            turns.append((FRESH, partial(site.rsync, fresh, "--copy-dest=../rsync-same")))
            turns.append((PLAN, partial(site.aicrun, "plan", "run.yaml", "--again")))
        for name, act in turns if number % 2 else [*reversed(turns[1:]), turns[0]]:
            took = act()
            if name == APPLY:
                site.ended()
            if number:
                taken.setdefault((phase, name), []).append(took)


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    files = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000
    if shutil.which("rsync") is None:
        raise SystemExit("SKIPPED: there is no rsync here to compare with")
    folder = Path(tempfile.mkdtemp(prefix="aicrun-sync-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    site, taken = Site(folder, files), Times()
    try:
        for number in range(rounds + 1):
            a_round(site, number, taken)
    finally:
        site.close()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{files:,} files of about {FILE_BYTES} bytes, {rounds} rounds, medians of whole processes")
    for (phase, name), times in taken.items():
        ours = taken[(phase, APPLY)]
        line = f"  {phase:18}{name:38}{statistics.median(times):8.2f} s"
        if name in (RSYNC, FRESH):
            ratios = sorted(one / other for one, other in zip(ours, times, strict=True))
            line += f"   apply {statistics.median(ours) / statistics.median(times):5.2f} x"
            line += f" ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(line, flush=True)


if __name__ == "__main__":
    main()
