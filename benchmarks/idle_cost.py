"""What an idle job costs its machine: private memory and processor time of keeper, pump and sampler, for a minute.

One job without a card and one with a (simulated) card, one after the other, each `sleep`ing. Memory is what no other
process shares (`smaps_rollup`); time is that of the three processes with all their children, from the moment when the
first samples are over. It must not be a test. The aims are 25 MB together and 0.1 % of a core.

    python benchmarks/idle_cost.py [SECONDS]
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent.parent / "tests")]

import pynvml  # noqa: E402
from agent_rig import Rig  # noqa: E402
from fake_nvml.driver import FakeDriver, can_be_built  # noqa: E402

from aicrun.agent.telemetry import FIRST_S  # noqa: E402

AIM_BYTES = 25_000_000
AIM_SHARE = 0.001
SETTLED_S = FIRST_S[-1] + 3
_TICKS = os.sysconf("SC_CLK_TCK")


def private_bytes(pid: int) -> int:
    """The memory that this process alone has."""
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(row.split()[1]) for row in rows if row.startswith("Private_"))


def processor_s(pid: int) -> float:
    """The time a process and its ended children have run, in seconds; its own to the nanosecond."""
    own = sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return own / 1e9 + (int(words[13]) + int(words[14])) / _TICKS


def measure(rig: Rig, seconds: float, cards: tuple[str, ...]) -> dict[str, tuple[int, float]]:
    """(private bytes, share of a core) of each process of an idle job."""
    job = rig.start("idle-run", ("/bin/sleep", "1000"), cards=cards)
    main = rig.running(job)
    pids = {"keeper": rig.keeper(job), "pump": rig.pump(job, main), "sampler": rig.sampler(job)}
    time.sleep(SETTLED_S)
    before = {name: processor_s(pid) for name, pid in pids.items()}
    time.sleep(seconds)
    found = {name: (private_bytes(pid), (processor_s(pid) - before[name]) / seconds) for name, pid in pids.items()}
    rig.call("stop", job_id=job, by="benchmark", grace_s=0)
    rig.ended(job)
    return found


def told(kind: str, found: dict[str, tuple[int, float]]) -> None:
    """Print one job's table."""
    print(kind)
    for name, (size, share) in found.items():
        print(f"  {name:10}{size / 1e6:8.1f} MB{share * 100:9.3f} % of a core")
    size, share = sum(one for one, _ in found.values()), sum(one for _, one in found.values())
    print(f"  {'together':10}{size / 1e6:8.1f} MB{share * 100:9.3f} % of a core")
    good = size <= AIM_BYTES, share <= AIM_SHARE
    words = ["met" if one else "NOT met" for one in good]
    print(f"  aim: {AIM_BYTES / 1e6:.0f} MB: {words[0]}; {AIM_SHARE * 100:.1f} % of a core: {words[1]}")


def main() -> None:
    """Measure both jobs and print their tables."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    print(
        f"an idle job over {seconds:.0f} s; {len([one for one in os.listdir('/proc') if one.isdigit()])} processes here"
    )
    for kind in ("without a card", "with a card"):
        folder, locks = Path(tempfile.mkdtemp(prefix="aicrun-bench-")), Path(tempfile.mkdtemp(prefix="aicrun-bench-"))
        locks.chmod(0o1777)
        rig = Rig(folder)
        rig.env["AICRUN_TEST_LOCKS"] = str(locks)
        try:
            if kind == "with a card":
                if not can_be_built():
                    print("with a card: skipped, there is no C compiler for the simulated driver")
                    continue
                shutil.copy(pynvml.__file__, rig.agent / "pynvml.py")
                rig.env.update(FakeDriver(folder / "driver").env)
            told(kind, measure(rig, seconds, ("GPU-aaaa",) if kind == "with a card" else ()))
        finally:
            rig.close()
            shutil.rmtree(folder)
            shutil.rmtree(locks)


if __name__ == "__main__":
    main()
