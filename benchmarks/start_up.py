"""Start-up of `aicrun --help` and `--version` beside `python -c pass`, a plain click and a click-with-rich program.

All run in one alternating series in this environment, so that a busy machine slows them alike; compare the ratios, not
the milliseconds. It must not be a test: a shared machine is no judge. The aim is --help at 1.3 times click with rich.

    python benchmarks/start_up.py [ROUNDS]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

HELLO = """
import click
@click.group(help="hello")
@click.version_option("1")
def main(): pass
@main.command(help="say it")
@click.option("--json", is_flag=True)
def say(json): pass
main(prog_name="hello")
"""
WITH_RICH = "from rich.console import Console\nfrom rich.table import Table\n" + HELLO
AIM = 1.3

# What is run, by name; the aim compares the first with the fourth.
SERIES = {
    "aicrun --help": ("-m", "aicrun", "--help"),
    "aicrun --version": ("-m", "aicrun", "--version"),
    "click hello --help": ("-c", HELLO, "--help"),
    "click + rich --help": ("-c", WITH_RICH, "--help"),
    "python -c pass": ("-c", "pass"),
}


def seconds(arguments: tuple[str, ...]) -> float:
    """The wall time of one whole process; a process that fails is no measurement."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return time.perf_counter() - began


def measure(rounds: int) -> dict[str, float]:
    """The median seconds of each program over `rounds` alternating rounds, after two that only warm up."""
    taken: dict[str, list[float]] = {name: [] for name in SERIES}
    for number in range(rounds + 2):
        for name, arguments in SERIES.items():
            took = seconds(arguments)
            if number >= 2:
                taken[name].append(took)
    return {name: statistics.median(values) for name, values in taken.items()}


def main() -> None:
    """Measure and print a table of ratios."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    medians = measure(rounds)
    beside = medians["click + rich --help"]
    print(f"median of {rounds} alternating rounds, whole processes")
    for name, median in medians.items():
        print(f"  {name:22}{median * 1000:8.1f} ms{median / beside:8.2f} x click + rich")
    ratio = medians["aicrun --help"] / beside
    print(f"aim: aicrun --help at most {AIM} x click + rich; here {ratio:.2f}: {'met' if ratio <= AIM else 'NOT met'}")


if __name__ == "__main__":
    main()
