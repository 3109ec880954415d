"""Planning for a large fleet: seconds and memory as machines, runs and kinds of demand grow.

The fleet is made up (three kinds of machines with eight cards each, of which some are held or nearly full). It must not
be a test, and asks no machine.

    python benchmarks/fleet_plan.py [MACHINES RUNS]
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent.parent / "tests")]

from unit.plan.worlds import answered, card, fleet, gpu_spec, held, wish  # noqa: E402  the worlds of the tests

from aicrun.plan.decide import plan  # noqa: E402
from aicrun.plan.model import Fleet, Options  # noqa: E402

KINDS = (("RTX A6000", 48.0), ("RTX 3090", 24.0), ("RTX 2080 Ti", 11.0))
CARDS = 8


def made_up(machines: int) -> Fleet:
    """A fleet in which every fourth machine has a card that is held and one that is nearly full."""
    views = []
    for number in range(machines):
        model, total = KINDS[number % 3]
        busy = number % 4 == 0
        cards = []
        for index in range(CARDS):
            holder = held("other", "bo", 60.0) if busy and index == 0 else None
            free = 2.0 if busy and index < 2 else None
            cards.append(card(index, model, total, free, uuid=f"GPU-{number}-{index}", holder=holder))
        views.append(answered(f"m{number}", tuple(cards)))
    return fleet(*views)


def measured(machines: int, runs: int, demands: int) -> str:
    """One row of the table."""
    view = made_up(machines)
    wanted = tuple(wish(gpu_spec(2 + number % demands * 40 / demands, f"run-{number}")) for number in range(runs))
    began = time.perf_counter()
    made = plan(wanted, view, Options())
    took_s = time.perf_counter() - began
    placed = len({one for item in made.runs for one in item.chosen})
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return f"{machines:9,}{machines * CARDS:9,}{runs:7,}{demands:9,}{placed:8,}{took_s:9.2f} s{peak_mib:8,} MiB"


def main() -> None:
    """Print a table in which each row doubles the one above it."""
    machines, runs = (int(word) for word in sys.argv[1:3]) if len(sys.argv) > 2 else (10_000, 1_000)
    # As the program sets it.
    gc.set_threshold(100_000, 20, 100)
    print(f"{'machines':>9}{'cards':>9}{'runs':>7}{'demands':>9}{'placed':>8}{'took':>11}{'peak':>12}")
    for part in (8, 4, 2, 1):
        print(measured(machines // part, runs // part, 10), flush=True)
    for demands in (1, 10, 100):
        print(measured(machines // 10, runs, demands), flush=True)


if __name__ == "__main__":
    main()
