"""The shortest ways to no start at all that were found for other rules, as in `test_two_starts.py`."""

from __future__ import annotations

from typing import Any

from protocol.network import Client
from protocol.world import HIGHER_IS_WITHDRAWN, World, guarded

from aicrun.agent import stop as stop_file
from aicrun.errors import HostRefused

GIVE_WAY = "    if True:\n        _withdraw(wanted, wanted.machine, request.job_id, 'gives way')\n        return None\n"
LOWER_IS_AWAITED = (
    "    return _await_decision(wanted, machine, rival, lambda: _touch(wanted, request))\n",
    "    return rival\n",
)


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
    code = world.code(guarded, LOWER_IS_AWAITED)
    beside_a_dead_lower_one(world, code, guarded)
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
            "    _touch(wanted, request)\n    return _await_decision(",
            (
                "    _withdraw(wanted, wanted.machine, request.job_id, 'again')\n    raise _Again\n"
                "    return _await_decision("
            ),
        ),
        (
            "        rival = _settled(wanted, request)\n",
            (
                "        try:\n            rival = _settled(wanted, request)\n"
                "        except _Again:\n            return None\n"
            ),
        ),
        ("_RESEND_S = 30.0\n", "_RESEND_S = 30.0\n\n\nclass _Again(Exception):\n    pass\n"),
    )
    beside_a_dead_lower_one(world, code, guarded)
    assert len(world.settle_all()) == (1 if guarded else 0)


def beside_a_dead_lower_one(world: World, code: Any, waits: bool) -> None:
    """The lower client dies before it confirms; while the higher one `waits` for it, its gate passes."""
    world.b.start("h1", "1").upto("confirm")
    dead = world.only()
    world.crash(world.b)
    a = world.a.start("h0", "9", code)
    if waits:
        a.upto("wait")
        world.expire(*dead)
    a.run()


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


def test_a_persons_stop_of_a_start_that_is_not_confirmed_yet_is_not_undone(world: World) -> None:
    world.a.start("h0", "9").upto("confirm")
    host, job_id = world.only()
    stop_file.stop(host.home, {"job_id": job_id, "by": "bob@pc", "grace_s": None}, b"")
    world.a.run()
    assert world.settle_all() == []
    assert [job for _, job in world.records()] == [job_id]
    assert isinstance(world.a.fault, HostRefused)
    assert (world.a.fault.code, "stopped by bob@pc" in str(world.a.fault)) == ("AIC-E612", True)
