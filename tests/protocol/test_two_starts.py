"""The shortest ways to two starts that were found for weaker rules: each holds, and falls without its guard.

Numbers are those of the start protocol's table. Every test runs twice: with our code, and with the one guard taken out
of its file, which proves that the order of events is the dangerous one.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from protocol.network import RUN, Client, Network, patched, stand_ins
from protocol.world import HIGHER_IS_WITHDRAWN, World, guarded

from aicrun.agent.sweep import gc
from aicrun.lifecycle.start import Started


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
            "    reserved = _reserved(wanted, request, alone)\n",
            (
                "    machines = tuple(wanted.session.machine(name) for name in (wanted.machine, *wanted.others))\n"
                "    early = ask_all(wanted.session, machines, lambda backend, _: backend.look(request.run))\n"
                "    reserved = _reserved(wanted, request, alone)\n"
            ),
        ),
        ("        rival = _settled(wanted, request)\n", "        rival = _settle(wanted, request, early)\n"),
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
def test_16_lists_that_differ_do_not_move_who_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Without its guard: one machine of the list, chosen by the list alone, is asked instead of all."""
    world = World(tmp_path, monkeypatch, ("h0", "h1", "h2"))
    a, b = Client(world, "short", ("h0", "h1")), Client(world, "long", ("h0", "h1", "h2"))
    with stand_ins(world, monkeypatch):
        code = world.code(
            guarded,
            (
                "    heard = ask_all(wanted.session, machines, lambda backend, _: backend.look(request.run))\n",
                (
                    "    machines = wanted.session.inventory.machines[-1:]\n"
                    "    heard = ask_all(wanted.session, machines, lambda backend, _: backend.look(request.run))\n"
                ),
            ),
        )
        a.start("h0", "9", code).run()
        b.start("h1", "1", code).run()
        assert len(world.settle_all()) == (1 if guarded else 2)


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


@pytest.mark.parametrize("sees", [(("h0",), ("h1",)), (("h0", "h1"), ("h1", "h2"))], ids=["15 disjoint", "13 overlap"])
def test_13_15_what_no_look_can_exclude_starts_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sees: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    network = Network(tmp_path, ("h0", "h1", "h2"))
    with stand_ins(network, monkeypatch):
        Client(network, "a", sees[0]).start("h0", "1").run()
        Client(network, "b", sees[1]).start(sees[1][-1], "9").run()
        assert len(network.settle_all()) == 2
