"""Any order of events, drawn by chance and told by its seed: whatever happens, at most one job of the run ever starts.

By hand: AICRUN_PROTOCOL_RUNS=5000 for more of them, AICRUN_PROTOCOL_SEED=N for one again.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from protocol.network import RUN, Client, Host, Network, stand_ins, without
from protocol.world import HIGHER_IS_WITHDRAWN, START

from aicrun.agent import decide
from aicrun.errors import HostRefused, HostUnreachable
from aicrun.lifecycle import start as start_file

RUNS = int(os.environ.get("AICRUN_PROTOCOL_RUNS", "60"))
SEED = os.environ.get("AICRUN_PROTOCOL_SEED", "")
STEPS_MOST = 600
RANKS = "123456789"


class Explorer:
    """One world and the next event in it, drawn by chance."""

    def __init__(self, network: Network, choice: random.Random, faults: bool, code: Any = start_file) -> None:
        self.network, self.choice, self.faults, self.code = network, choice, faults, code
        ranks = choice.sample(RANKS, 3)
        for name, rank in zip("abc"[: choice.choice((2, 2, 3))], ranks, strict=False):
            Client(network, name).start(choice.choice(list(network.hosts)), rank, code)
        self.ended: set[str] = set()

    def step(self) -> bool:
        """Let one thing happen; False when nothing can any more."""
        events: list[tuple[float, Callable[[], object]]] = []
        for client in self.network.clients:
            message = client.message
            if message is None:
                continue
            events.append((20, lambda message=message: self.network.deliver(message)))
            if self.faults:
                events.append((1, lambda message=message: self.network.lose_answer(message)))
                events.append((1, lambda message=message: self.network.lose(message, late=True)))
                events.append((0.3, lambda client=client: self._crash_and_come_back(client)))
        for message in self.network.late:
            events.append((2, lambda message=message: self.network.arrive(message)))
        for host, job_id in self.network.records():
            events += self._of_record(host, job_id)
        if not events:
            return False
        weights = [weight for weight, _ in events]
        self.choice.choices([event for _, event in events], weights)[0]()
        return True

    def _of_record(self, host: Host, job_id: str) -> list[tuple[float, Callable[[], object]]]:
        lives, began = job_id in host.keepers, job_id in self.network.started
        standing = decide.standing(host.home, RUN, job_id)
        events: list[tuple[float, Callable[[], object]]] = []
        if lives and not began and standing is not None and standing.decision == "go":
            events.append((3, lambda: self.network.begin(host, job_id)))
        if lives and began:
            events.append((1, lambda: self.network.end(host, job_id)))
        if lives and standing is None and self.faults:
            events.append((0.5, lambda: self.network.expire(host, job_id)))
            events.append((0.3, lambda: self.network.lose_keeper(host, job_id)))
        return events

    def _crash_and_come_back(self, client: Client) -> None:
        """The client dies; its person types the same command again, which first withdraws what was left."""
        self.network.crash(client)
        if self.choice.random() < 0.6:
            client.settle().run()
            client.start(self.choice.choice(list(self.network.hosts)), self.choice.choice(RANKS), self.code)


@pytest.mark.parametrize("faults", [False, True], ids=["no fault", "losses, crashes, expiry"])
def test_at_most_one_starts_whatever_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: bool) -> None:
    first = int(SEED) if SEED else random.randrange(1 << 30)
    for seed in range(first, first + (1 if SEED else RUNS)):
        choice = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        network = Network(folder, ("h0", "h1", "h2")[: choice.choice((1, 2, 2, 3))], choice)
        with stand_ins(network, monkeypatch):
            explorer = Explorer(network, choice, faults)
            steps = 0
            while explorer.step() and steps < STEPS_MOST:
                steps += 1
            assert steps < STEPS_MOST, f"seed {seed}: it does not come to an end"
            started = network.settle_all()
            assert len(started) <= 1, f"seed {seed}: {started} both started"
            for client in network.clients:
                assert client.fault is None or isinstance(client.fault, (HostRefused, HostUnreachable)), f"seed {seed}"
            told = {client.result.report.job_id for client in network.clients if client.result is not None}
            if not faults:
                assert (len(started), len(told)) == (1, 1), f"seed {seed}: {started}, told {told}"
            assert told <= set(started), f"seed {seed}: {told} was told as started"
        # A folder for each would fill the disk of whoever runs thousands.
        shutil.rmtree(folder)


def test_chance_finds_two_starts_where_a_guard_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above is known to look where it matters."""
    naive = without(START, (HIGHER_IS_WITHDRAWN, "    if rival.rank > wanted.rank:\n        return None\n"))
    most = 0
    for seed in range(200):
        folder = tmp_path / str(seed)
        folder.mkdir()
        network = Network(folder, ("h0", "h1"), random.Random(seed))
        with stand_ins(network, monkeypatch, naive):
            explorer = Explorer(network, random.Random(seed), False, naive)
            while explorer.step():
                pass
            most = max(most, len(network.settle_all()))
        if most > 1:
            return
    raise AssertionError("nothing was found in 200 runs")
