"""The shortest ways to two starts, or to none, found for weaker rules: each holds, and falls without its guard.

Numbers are those of the start protocol's table. Every test runs twice: with our code, and with the one guard taken out
of its file, which proves that the order of events is the dangerous one.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from protocol.network import RUN, Client, Network, patched, stand_ins, without

from aicrun.agent.sweep import gc
from aicrun.lifecycle import start as start_file
from aicrun.lifecycle.start import Started

START = "aicrun.lifecycle.start"
HIGHER_IS_WITHDRAWN = (
    "    if rival.rank > wanted.rank:\n"
    '        decision = _withdraw(wanted, machine, rival.job_id, f"by {request.job_id} of {wanted.session.by}")\n'
    '        return rival if decision == "go" else None\n'
)
guarded = pytest.mark.parametrize("guarded", [True, False], ids=["as it is", "without its guard"])


class World(Network):
    """Two machines, and two clients that see both."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, ("h0", "h1"))
        self.monkeypatch = monkeypatch
        self.a, self.b = Client(self, "a"), Client(self, "b")

    def code(self, guarded: bool, *edits: tuple[str, str]) -> Any:
        """The client's file, or the one without its guard."""
        if guarded:
            return start_file
        made = without(START, *edits)
        for name, value in (("time", self.clock), ("ask_all", start_file.ask_all)):
            self.monkeypatch.setattr(made, name, value)
        return made

    def only(self) -> tuple[Any, str]:
        """The one record there is."""
        (found,) = self.records()
        return found


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    two = World(tmp_path, monkeypatch)
    with stand_ins(two, monkeypatch):
        yield two


@guarded
def test_01_the_lower_one_does_not_go_on_beside_a_higher_one_that_it_sees(world: World, guarded: bool) -> None:
    code = world.code(guarded, (HIGHER_IS_WITHDRAWN, "    if rival.rank > wanted.rank:\n        return None\n"))
    world.a.start("h0", "9", code).upto("confirm")
    world.b.start("h1", "1", code).run()
    world.a.run()
    assert len(world.settle_all()) == (1 if guarded else 2)


@guarded
def test_02_a_machine_that_is_silent_at_the_look_is_not_skipped(world: World, guarded: bool) -> None:
    code = world.code(
        guarded,
        (
            "        if item.answer is None or unreadable:\n",
            "        if item.answer is None:\n            continue\n        if unreadable:\n",
        ),
    )
    world.b.start("h1", "1").run()
    world.cut.add(("a", "h1"))
    world.a.start("h0", "9", code).run()
    assert len(world.settle_all()) == (1 if guarded else 2)
    assert (world.a.fault is not None and world.a.fault.code == "AIC-E594") is guarded


@guarded
def test_03_a_confirm_after_the_gate_has_passed_revives_nothing(world: World, guarded: bool) -> None:
    if not guarded:
        patched(
            world.monkeypatch,
            "aicrun.agent.decide",
            ("confirm",),
            (
                "        decision = settle(home, run, job_id) or begin(home, run, job_id, by)\n",
                (
                    "        if settle(home, run, job_id) is not None:\n"
                    "            os.unlink(os.path.join(home.record_dir(run, job_id), names.DECISION))\n"
                    "        decision = begin(home, run, job_id, by)\n"
                ),
            ),
        )
    world.b.start("h1", "1").upto("confirm")
    world.expire(*world.only())
    world.a.start("h0", "9").run()
    first = world.b.message
    assert first is not None
    world.lose_answer(first)
    assert len(world.settle_all()) == (1 if guarded else 2)


@guarded
def test_04_what_expired_is_kept_so_that_a_second_copy_of_its_reserve_finds_it(world: World, guarded: bool) -> None:
    world.b.start("h1", "1").upto("reserve")
    assert world.b.message is not None
    world.lose(world.b.message, late=True)
    world.b.upto("reserve").deliver().upto("confirm")
    host, job_id = world.only()
    world.expire(host, job_id)
    world.lose_keeper(host, job_id)
    if guarded:
        # Not even the sweep takes it now.
        gc(host.home, {"dry_run": False, "older_than_s": 0}, b"")
    else:
        shutil.rmtree(host.home.record_dir(RUN, job_id))
    world.a.start("h0", "9").run()
    world.arrive(world.late[0])
    world.b.run()
    assert len(world.settle_all()) == (1 if guarded else 2)


@guarded
def test_04_a_withdraw_that_overtakes_its_reserve_buries_the_id(world: World, guarded: bool) -> None:
    if not guarded:
        patched(
            world.monkeypatch,
            "aicrun.agent.decide",
            ("withdraw",),
            ("            place_once(home.tombstone(job_id), wanted)\n", ""),
        )
    world.b.start("h1", "1").upto("reserve")
    assert world.b.message is not None
    reserve = world.b.message
    world.lose(reserve, late=True)
    world.crash(world.b)
    world.b.settle().run()
    world.arrive(reserve)
    assert len(world.records()) == (0 if guarded else 1)


@guarded
def test_05_nobody_looks_before_the_own_reservation_stands(world: World, guarded: bool) -> None:
    code = world.code(
        guarded,
        (
            "    reserved = _ask(wanted, request, lambda backend: backend.reserve(request, alone))\n",
            (
                "    machines = tuple(wanted.session.machine(name) for name in (wanted.machine, *wanted.others))\n"
                "    early = ask_all(wanted.session, machines, lambda backend, _: backend.look(request.run))\n"
                "    reserved = _ask(wanted, request, lambda backend: backend.reserve(request, alone))\n"
            ),
        ),
        ("        rival = _settle(wanted, request)\n", "        rival = _settle(wanted, request, early)\n"),
        (
            "def _settle(wanted: Start, request: JobRequest) -> Started | None:\n",
            "def _settle(wanted: Start, request: JobRequest, heard) -> Started | None:\n",
        ),
        (
            "    heard = ask_all(wanted.session, machines, lambda backend, _: backend.look(request.run))\n    rivals",
            "    rivals",
        ),
    )
    a, b = world.a.start("h0", "9", code), world.b.start("h1", "1", code)
    if not guarded:
        a.upto("reserve")
        b.upto("reserve")
    a.run()
    b.run()
    assert len(world.settle_all()) == (1 if guarded else 2)


@guarded
def test_06_the_own_earlier_attempt_is_a_rival_like_any_other(world: World, guarded: bool) -> None:
    code = world.code(
        guarded,
        (
            "        mine = (request.job_id, *request.named)\n",
            (
                "        own = tuple(one.job_id for one in wanted.session.ledger.starts(request.run))\n"
                "        mine = (request.job_id, *request.named, *own)\n"
            ),
        ),
    )
    world.a.start("h0", "5", code).upto("confirm")
    confirm = world.a.message
    assert confirm is not None
    while world.a.message is not None:
        world.lose(world.a.message, late=world.a.message is confirm)
    assert world.a.fault is not None and world.a.fault.code == "AIC-E592"
    world.a.start("h1", "5", code).upto("confirm" if not guarded else "withdraw")
    world.arrive(confirm)
    world.a.run()
    assert len(world.settle_all()) == (1 if guarded else 2)


@guarded
def test_07_a_run_that_has_ended_counts_as_started(world: World, guarded: bool) -> None:
    if not guarded:
        patched(
            world.monkeypatch,
            "aicrun.agent.jobs",
            ("look",),
            (
                '        elif report.decision != "no" and not report.forgotten:\n',
                '        elif report.decision != "no" and not report.forgotten and report.ended_age_s is None:\n',
            ),
        )
    world.a.start("h0", "9").upto("look")
    world.b.start("h1", "1").run()
    (started,) = world.settle_all()
    world.end(world.hosts["h1"], started)
    world.a.run()
    assert len(world.settle_all()) == (1 if guarded else 2)


@guarded
def test_08_not_both_wait_for_each_other(world: World, guarded: bool) -> None:
    code = world.code(guarded, ("    if rival.rank > wanted.rank:\n", "    if False:\n"))
    a, b = world.a.start("h0", "9", code).upto("look"), world.b.start("h1", "1", code).upto("look")
    alternate(a, b)
    assert len(world.settle_all()) == (1 if guarded else 0)


@guarded
def test_09_not_both_give_way(world: World, guarded: bool) -> None:
    code = world.code(guarded, (HIGHER_IS_WITHDRAWN, GIVE_WAY), LOWER_IS_AWAITED)
    a, b = world.a.start("h0", "9", code).upto("look"), world.b.start("h1", "1", code).upto("look")
    alternate(a, b)
    assert len(world.settle_all()) == (1 if guarded else 0)


@guarded
def test_10_not_each_withdraws_the_other(world: World, guarded: bool) -> None:
    code = world.code(guarded, ("    if rival.rank > wanted.rank:\n", "    if True:\n"))
    a, b = world.a.start("h0", "9", code), world.b.start("h1", "1", code)
    alternate(a, b)
    assert len(world.settle_all()) == (1 if guarded else 0)


@guarded
def test_11_a_lower_one_that_died_holds_nobody_up_for_ever(world: World, guarded: bool) -> None:
    code = world.code(
        guarded,
        LOWER_IS_AWAITED,
        (
            "        return Started(machine, won, adopted=True)\n",
            "            return Started(machine, won, adopted=True)\n",
        ),
    )
    world.b.start("h1", "1").upto("confirm")
    dead = world.only()
    world.crash(world.b)
    a = world.a.start("h0", "9", code)
    if guarded:
        a.upto("wait")
        world.expire(*dead)
    a.run()
    assert len(world.settle_all()) == (1 if guarded else 0)


@guarded
def test_12_the_rank_stays_with_the_client(world: World, guarded: bool) -> None:
    code = world.code(guarded, *ranked("9 - number"))
    a, b = world.a.start("h0", "9", code), world.b.start("h1", "1", code)
    for _ in range(10):
        for client in (a, b):
            # A confirm is heard once the other has come to its own: by then it may have been withdrawn.
            if client.message is not None and client.message.call == "confirm":
                client.deliver()
            while client.message is not None and client.message.call not in ("confirm", "wait"):
                client.deliver()
    assert (a.fault is None) is guarded


@guarded
def test_17_the_replaced_job_has_ended_before_the_new_one_may_start(world: World, guarded: bool) -> None:
    code = world.code(guarded, ("        stays = _before(wanted, request)\n", "        stays = None\n"))
    world.a.start("h0", "5").run()
    (old,) = world.settle_all()
    host = world.only()[0]

    def stop(_: Any) -> None:
        world.end(host, old)

    running = []
    world.b.start("h1", "3", code, named=(old,), before=stop).upto("confirm")
    running.append(old in host.keepers)
    world.b.run()
    assert len(world.settle_all()) == 2
    assert running == [not guarded]


@guarded
def test_18_a_job_that_moves_has_left_its_line_before_the_new_one_may_start(world: World, guarded: bool) -> None:
    code = world.code(guarded, ("        stays = _before(wanted, request)\n", "        stays = None\n"))
    world.a.start("h0", "5").run()
    host, old = world.only()
    report = world.a.result.report if world.a.result is not None else None
    assert report is not None

    def too_late(_: Any) -> Started:
        return Started("h0", report, adopted=True)

    # Its card comes free at this very moment.
    world.b.start("h1", "3", code, named=(old,), before=too_late).run()
    world.begin(host, old)
    assert len(world.settle_all()) == (1 if guarded else 2)


@guarded
def test_19_who_tries_again_is_not_placed_behind_those_who_try_first(world: World, guarded: bool) -> None:
    code = world.code(guarded, *ranked("number"))
    third = Client(world, "c")
    a, c = world.a.start("h0", "2", code), third.start("h1", "3", code)
    to_the_other(a, "h1")
    to_the_other(c, "h0")
    # The lower one withdraws the higher one, and is withdrawn by the last word of a still lower one that dies.
    a.upto("withdraw").upto("confirm")
    b = world.b.start("h1", "1", code).upto("withdraw")
    assert b.message is not None
    last = b.message
    world.lose(last, late=True)
    world.crash(b)
    world.arrive(last)
    for host, job_id in world.records():
        if host.name == "h1":
            world.expire(host, job_id)
    a.deliver()
    for _ in range(12):
        to_the_other(a, "h1")
        if c.message is not None:
            c.deliver()
        to_the_other(c, "h0")
        if a.message is not None:
            a.deliver()
    assert len(world.settle_all()) == (1 if guarded else 0)


@guarded
def test_20_the_higher_one_waits_and_does_not_spend_its_attempts(world: World, guarded: bool) -> None:
    code = world.code(
        guarded,
        (
            "    _touch(wanted, request)\n    try:\n        return _await_decision(",
            (
                "    _withdraw(wanted, wanted.machine, request.job_id, 'again')\n    raise _Again\n"
                "    try:\n        return _await_decision("
            ),
        ),
        (
            "        rival = _settle(wanted, request)\n",
            (
                "        try:\n            rival = _settle(wanted, request)\n"
                "        except _Again:\n            return None\n"
            ),
        ),
        ("_RESEND_S = 30.0\n", "_RESEND_S = 30.0\n\n\nclass _Again(Exception):\n    pass\n"),
    )
    world.b.start("h1", "1").upto("confirm")
    dead = world.only()
    world.crash(world.b)
    a = world.a.start("h0", "9", code)
    if guarded:
        a.upto("wait")
        world.expire(*dead)
    a.run()
    assert len(world.settle_all()) == (1 if guarded else 0)


@pytest.mark.parametrize("sees", [(("h0",), ("h1",)), (("h0", "h1"), ("h1", "h2"))], ids=["15 disjoint", "13 overlap"])
def test_what_no_look_can_exclude_starts_twice_and_is_told_by_plan_and_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sees: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    network = Network(tmp_path, ("h0", "h1", "h2"))
    with stand_ins(network, monkeypatch):
        Client(network, "a", sees[0]).start("h0", "1").run()
        Client(network, "b", sees[1]).start(sees[1][-1], "9").run()
        assert len(network.settle_all()) == 2


GIVE_WAY = "    if True:\n        _withdraw(wanted, wanted.machine, request.job_id, 'gives way')\n        return None\n"
LOWER_IS_AWAITED = (
    "        return _await_decision(wanted, machine, rival, lambda: _touch(wanted, request))\n",
    "        return rival\n",
)


def alternate(a: Client, b: Client) -> None:
    """Deliver in turn, one question each, until both are done or have asked two hundred times."""
    for _ in range(200):
        for client in (a, b):
            if client.message is not None:
                client.deliver()
        if a.done and b.done:
            return


def to_the_other(client: Client, machine: str) -> None:
    """Deliver until it is about to look at that machine, which is not its own, or waits for somebody."""
    while client.message is not None:
        if client.message.call == "wait" or (client.message.call, client.message.machine) == ("look", machine):
            return
        client.deliver()


def ranked(digit: str) -> tuple[tuple[str, str], ...]:
    """The edits that give each further attempt another rank."""
    return (
        (
            "    for _ in range(_ATTEMPTS_MOST):\n        started = _attempt(wanted)\n",
            (
                "    own = wanted\n    for number in range(_ATTEMPTS_MOST):\n"
                f'        wanted = dataclasses.replace(own, rank=f"{{{digit}}}" + own.rank[1:])\n'
                "        started = _attempt(wanted)\n"
            ),
        ),
        ("import contextlib\n", "import contextlib\nimport dataclasses\n"),
    )
