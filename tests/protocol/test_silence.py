"""A machine that falls silent in the middle of a start: what is told is true at each step, and nothing stays behind."""

from __future__ import annotations

from typing import Any

import pytest
from protocol.network import Client, Message
from protocol.world import World

from aicrun.agent import serve
from aicrun.errors import AicrunError, HostUnreachable


def silent(world: World, client: Client) -> AicrunError:
    """Nothing more of what this client asks arrives; what it ends with."""
    while client.message is not None:
        world.lose(client.message)
    assert client.fault is not None, client.result
    return client.fault


def waiting(client: Client) -> Message:
    """The question that is on its way."""
    assert client.message is not None, (client.result, client.fault)
    return client.message


def decisions(world: World) -> dict[str, str]:
    """What stands of the record on each machine."""
    answers = [(host.name, serve.handler("job")(host.home, {"key": job_id}, b"")) for host, job_id in world.records()]
    return {name: answer["report"]["decision"] for name, (answer, _) in answers}


def test_silence_at_the_reserve_started_nothing_and_says_so(world: World) -> None:
    a = world.a.start("h0", "5").upto("reserve")
    first = waiting(a)
    world.lose(first, late=True)
    fault = silent(world, a)
    assert (fault.code, "nothing was started" in fault.message) == ("AIC-E595", True)
    world.arrive(first)
    assert world.settle_all() == []
    # The same again withdraws what arrived after all, and starts.
    world.a.ledger_of_the_dead()
    world.a.settle().run()
    world.a.start("h0", "5").run()
    assert len(world.settle_all()) == 1


def test_silence_at_a_reserve_that_confirms_too_leaves_it_unknown(world: World) -> None:
    alone = Client(world, "c", ("h0",)).start("h0", "5").upto("reserve")
    world.lose_answer(waiting(alone))
    fault = silent(world, alone)
    assert (fault.code, "whether it started is not known" in fault.message) == ("AIC-E592", True)
    assert len(world.settle_all()) == 1


@pytest.mark.parametrize(("machine", "code"), [("h0", "AIC-E595"), ("h1", "AIC-E594")])
def test_silence_at_the_look_started_nothing(world: World, machine: str, code: str) -> None:
    a = world.a.start("h0", "5").upto("look")
    while waiting(a).machine != machine:
        a.deliver()
    world.lose(waiting(a))
    a.run()
    assert a.fault is not None
    assert (a.fault.code, "nothing was started" in a.fault.message) == (code, True)
    assert world.settle_all() == []
    # Its own machine answers: then nothing stays reserved there.
    assert decisions(world) == {"h0": "no" if machine == "h1" else "undecided"}


@pytest.mark.parametrize(("rank", "call"), [("1", "withdraw"), ("9", "wait")])
def test_a_machine_that_falls_silent_with_a_rival_on_it_ends_the_own_start_there_and_then(
    world: World, rank: str, call: str
) -> None:
    world.b.start("h1", "5").upto("confirm")
    a = world.a.start("h0", rank).upto(call)
    world.cut.add(("a", "h1"))
    world.lose(waiting(a))
    a.run()
    assert a.fault is not None
    assert (a.fault.code, "h1 may hold" in a.fault.message) == ("AIC-E594", True)
    assert decisions(world) == {"h0": "no", "h1": "undecided"}
    world.b.run()
    assert len(world.settle_all()) == 1


def test_a_touch_that_is_lost_ends_nothing(world: World) -> None:
    world.b.start("h1", "1").upto("confirm")
    a = world.a.start("h0", "9").upto("touch")
    world.lose(waiting(a))
    a.upto("wait")
    dead = next(record for record in world.records() if record[0].name == "h1")
    world.crash(world.b)
    world.expire(*dead)
    a.run()
    assert (a.fault, len(world.settle_all())) == (None, 1)


def test_who_has_won_elsewhere_is_told_though_the_own_machine_is_silent_by_then(world: World) -> None:
    a = world.a.start("h0", "9").upto("look")
    world.b.start("h1", "1").run()
    a.upto("withdraw")
    world.lose(waiting(a))
    a.run()
    assert a.fault is None and a.result is not None
    assert (a.result.machine, a.result.adopted) == ("h1", True)
    assert len(world.settle_all()) == 1


def test_silence_after_the_confirm_says_that_it_is_started(world: World) -> None:
    a = world.a.start("h0", "5").upto("job")
    fault = silent(world, a)
    assert (fault.code, "after the start was confirmed" in fault.message) == ("AIC-E596", True)
    assert len(world.settle_all()) == 1


def test_silence_of_the_machine_whose_job_gives_way_starts_no_other(world: World) -> None:
    world.a.start("h0", "5").run()
    (old,) = world.settle_all()

    def stop(_: Any) -> None:
        raise HostUnreachable("AIC-E591", "h0 gave no answer")

    b = world.b.start("h1", "3", named=(old,), before=stop).run()
    assert b.fault is not None
    assert (b.fault.code, "the new job was not started" in b.fault.message) == ("AIC-E597", True)
    assert world.settle_all() == [old]
    assert decisions(world) == {"h0": "go", "h1": "no"}
