"""What an environment costs: a run whose environment stands already, beside its first build, and beside no environment.

The machine is an sshd on loopback; 40 packages of 50 files each come from an index of this machine. A round starts the
same small run without `setup`, with `requirements` for the first time, and again; each a whole `aicrun apply` until the
command has started, and the setup step as the machine measured it. Beside them what others do before every start:
`uv pip install -r` and `pip install -r` where everything is installed already. It must not be a test.

    python benchmarks/environments.py [ROUNDS]
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent.parent / "tests")]

import packages  # noqa: E402  the rig of the tests
from ssh_rig import Sshd  # noqa: E402
from support import Person, end_processes_with  # noqa: E402

from aicrun.hosts.ssh_route import VARIABLE  # noqa: E402

PACKAGES, FILES = 40, 50
NONE, FIRST, AGAIN = "no setup", "first build", "again, it stands"
UV, PIP = "uv pip install -r, all there", "pip install -r, all there"
AIM = 1.15


class Site:
    """A person, a machine over ssh with a uv, and an index."""

    def __init__(self, folder: Path) -> None:
        self.home, self.there = folder / "client", folder / "home"
        for path in (self.home, self.there / ".local/bin"):
            path.mkdir(parents=True, mode=0o700)
        (self.there / ".local/bin/uv").symlink_to(packages.pinned_uv())
        self.index = packages.Index(folder / "wheels")
        self.names = [f"bench{number}" for number in range(PACKAGES)]
        for name in self.names:
            with zipfile.ZipFile(packages.wheel(folder / "wheels", name), "a") as wheel:
                for number in range(FILES):
                    wheel.writestr(f"{name}_parts/{number}.py", f"VALUE = {number}\n" * 50)
        self.person = Person(self.home)
        self.daemon = Sshd(folder / "sshd", env={"HOME": str(self.there), "PATH": "/usr/bin:/bin"}).start()
        self.person.env |= {VARIABLE: str(self.daemon.write_client()), "PYTHONPATH": sys.path[0]}
        (self.home / "machines.yaml").write_text("version: 1\nmachines: [{name: box, ssh: box}]\n")

    def apply(self, setup: str) -> tuple[float, float]:
        """(seconds of a whole apply, seconds of its setup on the machine)."""
        text = f"version: 1\nname: env-run\nsource: {{path: project}}\n{setup}command: python3 -c 'print(1)'\n"
        (self.home / "run.yaml").write_text(text)
        took = self.timed((sys.executable, "-m", "aicrun", "apply", "run.yaml", "--yes", "--again"))
        self.timed((sys.executable, "-m", "aicrun", "wait", "env-run"))
        told = self.output((sys.executable, "-m", "aicrun", "inspect", "env-run", "--json"))
        return took, float(json.loads(told)["job"]["steps"][0]["exit"]["duration_s"])

    def timed(self, argv: tuple[str, ...]) -> float:
        """Seconds of `argv` to its end; one that fails is no measurement."""
        began = time.perf_counter()
        self.output(argv)
        return time.perf_counter() - began

    def output(self, argv: tuple[str, ...]) -> str:
        """What `argv` prints."""
        done = subprocess.run(
            argv, cwd=self.home, env=self.person.env, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(argv)}\n{done.stdout.decode()}{done.stderr.decode()}")
        return done.stdout.decode()

    def close(self) -> None:
        """End everything."""
        end_processes_with(f"HOME={self.there}\0")
        self.daemon.close()
        self.index.close()


def rounds_of(site: Site, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """The seconds of each, round by round, after one that only warms up."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in (NONE, FIRST, AGAIN, UV, PIP)}
    project = site.home / "project"
    project.mkdir()
    setup = f"setup: {{requirements: requirements.txt, index: '{site.index.address}'}}\n"
    for number in range(rounds + 1):
        # A comment of its own makes it another environment.
        (project / "requirements.txt").write_text("\n".join([*site.names, f"# {number}", ""]))
        made = {NONE: site.apply(""), FIRST: site.apply(setup), AGAIN: site.apply(setup)}
        newest = max((site.there / ".local/share/aicrun/envs").glob("*/complete"), key=os.path.getmtime).parent
        python, wanted = str(newest / "bin/python"), str(project / "requirements.txt")
        at = ("--index-url", site.index.address, "-r", wanted)
        uv = site.timed((str(packages.pinned_uv()), "pip", "install", "-q", "--python", python, *at))
        pip = site.timed((sys.executable, "-m", "pip", "-q", "--python", python, "install", *at))
        if number:
            for name, row in {**made, UV: (uv, uv), PIP: (pip, pip)}.items():
                taken[name].append(row)
        shutil.rmtree(newest)
    return taken


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    folder = Path(tempfile.mkdtemp(prefix="aicrun-env-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    site = Site(folder)
    try:
        taken = rounds_of(site, rounds)
    finally:
        site.close()
        shutil.rmtree(folder, ignore_errors=True)
    whole = {name: statistics.median(row[0] for row in rows) for name, rows in taken.items()}
    step = {name: statistics.median(row[1] for row in rows) for name, rows in taken.items()}
    print(f"{PACKAGES} packages of {FILES} files, {rounds} rounds, medians of whole processes; the step on the machine")
    for name in taken:
        alone = name in (UV, PIP)
        print(f"  {name:30}{whole[name] * 1000:8.0f} ms" + ("" if alone else f"   step {step[name] * 1000:7.1f} ms"))
    ratio = whole[AGAIN] / whole[NONE]
    print(f"aim: again at most {AIM} x no setup; here {ratio:.2f}: {'met' if ratio <= AIM else 'NOT met'}")


if __name__ == "__main__":
    main()
