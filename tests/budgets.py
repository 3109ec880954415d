"""A pytest plugin: the wall time of each suite (each folder of tests/), told at the end, held with `--budgets`.

Budgets are for two cores, up to twice what a quiet machine takes; `tests/run` runs three processes side by side. It
must not change what a test does.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

# Seconds for each suite; the faults, and all others together, leave the whole run below twenty minutes.
BUDGETS = {
    "house": 60,
    "unit": 300,
    "cases": 60,
    "contract": 360,
    "faults": 1140,
    "integration": 780,
    "protocol": 90,
    "proofs": 180,
    "first_run": 180,
    "ssh": 900,
    "fleet": 360,
    "gpu": 300,
    "systemd": 300,
}


class Clock:
    """Adds up what each suite took, set-up and tear-down included."""

    def __init__(self, held: bool) -> None:
        self.held = held
        self.took: dict[str, float] = defaultdict(float)
        self.count: dict[str, int] = defaultdict(int)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of one test."""
        parts = report.nodeid.split("/")
        suite = parts[1] if len(parts) > 2 else "other"
        self.took[suite] += report.duration
        self.count[suite] += report.when == "call"

    def late(self) -> list[str]:
        """The suites that took longer than their budget."""
        return [suite for suite, took in self.took.items() if took > BUDGETS.get(suite, 60)]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """One line a suite."""
        terminalreporter.section("time by suite")
        for suite, took in sorted(self.took.items()):
            word = "  over its budget" if suite in self.late() else ""
            budget = BUDGETS.get(suite, 60)
            terminalreporter.write_line(f"{suite:14}{took:8.1f} s of {budget} s  {self.count[suite]:5} tests{word}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """A suite past its budget fails the run, where that was asked for."""
        if self.held and self.late() and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that makes a budget a rule."""
    parser.addoption("--budgets", action="store_true", help="fail when a suite takes longer than its budget")


def pytest_configure(config: pytest.Config) -> None:
    """Start the clock."""
    config.pluginmanager.register(Clock(config.getoption("--budgets")), "aicrun-clock")
