"""A program that writes as fast as it can: under a keeper, with and without secrets to hide, beside `cat`.

All run in one alternating series, so that a busy machine slows them alike; compare the ratios, not the speeds. `cat`
into a file does what a keeper without a cap would do: it writes everything down. `head` into a file and `cat` into
/dev/null behind it keep as much as a keeper does, but the first bytes alone. `cat` into /dev/null throws everything
away, which is no log. It must not be a test: a shared machine is no judge. The aim is 0.9 of the speed of `cat` into a
file, with three secrets to hide, and a log within its cap.

    python benchmarks/log_throughput.py [MIB [ROUNDS [FOLDER]]]
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent.parent / "tests")]

from agent_rig import Rig  # noqa: E402
from support import until  # noqa: E402

from aicrun.wire import names  # noqa: E402

MIB = 1024 * 1024
AIM = 0.9
SECRETS = {
    "HF_TOKEN": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567",
    "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
}
# Lines as a training prints them, in writes of 64 KiB: a writer in Python then costs as little as one in C.
WRITER = """
import os, sys
line = b"step %07d loss=%.4f lr=3.0e-4 grad_norm=%.3f tokens/s=%d\\n"
lines = b"".join(line % (n, 3 - n / 4000, n % 7 / 3, 81234 + n) for n in range(2000))
left = int(sys.argv[1])
while left > 0:
    left -= os.write(1, lines[: min(left, 65536)])
"""


class Cat:
    """The writer in front of a `cat` (or of `reader`), whose output goes to `target`."""

    def __init__(self, writer: tuple[str, ...], target: Path, reader: tuple[str, ...] = ("cat",)) -> None:
        self.writer = writer
        self.target = target
        self.reader = reader

    def seconds(self) -> float:
        """From the start of the writer to its end."""
        with self.target.open("wb") as sink:
            began = time.perf_counter()
            writer = subprocess.Popen(self.writer, stdout=subprocess.PIPE)
            assert writer.stdout
            cat = subprocess.Popen(self.reader, stdin=writer.stdout, stdout=sink)
            writer.stdout.close()
            writer.wait()
            took = time.perf_counter() - began
            cat.wait()
        if self.target.is_file():
            self.target.unlink()
        return took


class Kept:
    """The writer as the command of a job."""

    def __init__(self, rig: Rig, writer: tuple[str, ...], secrets: dict[str, str]) -> None:
        self.rig = rig
        self.writer = writer
        self.secrets = secrets
        self.log_bytes = 0
        self.total = 0

    def seconds(self) -> float:
        """From the start of the writer to its end, as its exit record says."""
        job = self.rig.start("writer-run", self.writer, secrets=self.secrets)
        folder = self.rig.step(job)
        # Not asked for all the time: whoever measures takes as little as may be of what is measured.
        until((folder / names.STEP_EXIT).exists, 600, 0.2)
        report = self.rig.ended(job, 60)
        self.log_bytes = max(
            self.log_bytes, sum((folder / name).stat().st_size for name in (names.LOG, names.LOG_TAIL))
        )
        self.total = next(step.log_bytes for step in report.steps if step.step == "command")
        took = float(json.loads((folder / names.STEP_EXIT).read_text())["duration_s"])
        self.rig.call("delete", job_id=job, by="benchmark")
        return took


def measure(rounds: int, series: dict[str, Cat | Kept]) -> dict[str, float]:
    """The median seconds of each over `rounds` alternating rounds, after one that only warms up."""
    taken: dict[str, list[float]] = {name: [] for name in series}
    for number in range(rounds + 1):
        for name, one in series.items():
            took = one.seconds()
            if number:
                taken[name].append(took)
    return {name: statistics.median(values) for name, values in taken.items()}


def main() -> None:
    """Measure and print a table of ratios."""
    size = int(sys.argv[1] if len(sys.argv) > 1 else 2048) * MIB
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    folder = Path(tempfile.mkdtemp(dir=sys.argv[3] if len(sys.argv) > 3 else None, prefix="aicrun-bench-"))
    rig = Rig(folder)
    writer = (sys.executable, "-I", "-S", "-c", WRITER, str(size))
    kept = {"kept, three secrets": Kept(rig, writer, SECRETS), "kept, no secrets": Kept(rig, writer, {})}
    try:
        capped = ("sh", "-c", f"head -c {names.LOG_CAP_BYTES}; exec cat > /dev/null")
        cats = {
            "cat > file": Cat(writer, folder / "cat"),
            "head > file, then cat": Cat(writer, folder / "cat", capped),
            "cat > /dev/null": Cat(writer, Path("/dev/null")),
        }
        medians = measure(rounds, {**cats, **kept})
    finally:
        rig.close()
        shutil.rmtree(folder)
    beside = medians["cat > file"]
    print(f"median of {rounds} alternating rounds, {size // MIB} MiB each, until the writer has ended")
    for name, median in medians.items():
        print(f"  {name:22}{size / median / 1e6:8.0f} MB/s{beside / median:8.2f} x the speed of cat > file")
    for name, one in kept.items():
        within = one.log_bytes <= names.LOG_CAP_BYTES and one.total == size
        print(f"  {name}: log of {one.log_bytes} bytes, {one.total} told: {'within its cap' if within else 'WRONG'}")
    ratio = beside / medians["kept, three secrets"]
    print(f"aim: {AIM} x cat > file with three secrets; here {ratio:.2f}: {'met' if ratio >= AIM else 'NOT met'}")


if __name__ == "__main__":
    main()
