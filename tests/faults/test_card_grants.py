"""What a grant of a card rests on: the lock and its own record, not what a driver happens to say at the moment."""

from __future__ import annotations

import secrets
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from agent_rig import Refusal
from fake_nvml.driver import TWO_CARDS, can_be_built
from faults.test_cards_and_line import Box
from support import until

from aicrun.agent.card_hold import DRAIN_S
from aicrun.wire.codec import to_json
from aicrun.wire.jobs import CardNeed
from aicrun.wire.seen import InLine
from aicrun.wire.status import Status

pytestmark = pytest.mark.skipif(not can_be_built(), reason="no C compiler for the simulated driver")
# Names of their own: a process of another test on this machine must not count as left on these cards.
A, B = (f"GPU-{secrets.token_hex(4)}" for _ in range(2))
CARDS = TWO_CARDS.replace("GPU-aaaa", A).replace("GPU-bbbb", B)
ONE_CARD = CARDS.partition(f"card {B}")[0]


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    host = Box(tmp_path)
    host.driver.write(CARDS)
    yield host
    host.close()


@pytest.mark.parametrize("trouble", ["init 18", "init 999", "answer nvmlDeviceGetCount_v2 15"])
def test_a_driver_that_fails_under_a_running_job_takes_nothing_from_it(box: Box, trouble: str) -> None:
    """Updated at night, or taken away from a container: its status is its own record's."""
    job = box.start("echo before; sleep 4; echo after; exit 7", (A,))
    box.rig.running(job)
    box.driver.add(trouble)
    question = {"runs": [], "paths": [], "data": ""}
    cards = box.rig.call("survey", question=question)["reading"]["cards"]
    assert cards["state"] == "unknown"
    assert cards["reason"] == {"init 18": "driver_mismatch", "init 999": "nvml_error"}.get(trouble, "card_lost")
    assert box.status(job) is Status.IN_PROGRESS
    assert box.rig.log(job) == b"before\n"
    assert box.rig.ended(job, 60).steps[-1].exit is not None
    standing = box.rig.standing(job)
    assert (standing.status, standing.code) == (Status.FAILED, 7)
    assert box.rig.log(job) == b"before\nafter\n"
    assert (box.held(A), box.tickets()) == (False, 0)


def test_eight_starts_at_once_for_two_idle_cards_start_two_and_name_the_holder_to_six(box: Box) -> None:
    """No measurement grants a card: all eight find both idle, and none has put anything on them yet."""

    def one(number: int) -> str:
        request = box.rig.request(f"at-once-{number}", "exec sleep 100", cards=((A, B)[number % 2],), queue_wait_s=0)
        with box.rig.link() as link:
            try:
                return str(link.call("reserve", request=to_json(request), confirm=True)[0]["answer"])
            except Refusal as refused:
                return f"{refused.token} {refused.facts.get('run', refused.message)}"

    with ThreadPoolExecutor(8) as pool:
        answers = sorted(pool.map(one, range(8)))
    assert answers[-2:] == ["ok", "ok"]
    assert {answer.partition(" at-once-")[0] for answer in answers[:-2]} == {"gpu_busy"}
    assert all(answer.partition(" at-once-")[2].isdigit() for answer in answers[:-2]), answers


def test_a_stranger_who_is_allowed_keeps_nobody_out_and_delays_no_release(box: Box) -> None:
    stranger = subprocess.Popen(["sleep", "100"])
    try:
        box.driver.write(ONE_CARD + f"  holder {stranger.pid} compute 900\n")
        job = box.start("true", (A,), card_need=CardNeed(foreign_allowed=True), queue_wait_s=0)
        began = time.monotonic()
        assert box.rig.ended(job, 60).card_allocated
        until(lambda: not box.held(A), 20)
        # It waited for its own processes to leave the card, not for the stranger's.
        assert time.monotonic() - began < DRAIN_S
        with pytest.raises(Refusal, match=f"pid {stranger.pid} of"):
            box.start("true", (A,), queue_wait_s=0)
    finally:
        stranger.kill()
        stranger.wait()


def test_memory_that_a_desktop_took_since_the_plan_is_waited_for(box: Box) -> None:
    need = CardNeed(vram_mib=20480)
    box.driver.write(ONE_CARD.replace("  used 100", "  used 9000"))
    with pytest.raises(Refusal, match="card 0 has 15276 MiB free, 20480 are asked") as refused:
        box.start("true", (A,), card_need=need, queue_wait_s=0)
    assert (refused.value.token, refused.value.facts["cards"]) == ("gpu_busy", A)
    job = box.start("true", (A,), card_need=need)
    until(lambda: "15276 MiB free" in (box.rig.report(job).line or InLine(())).why, 60)
    box.driver.write(ONE_CARD)
    assert box.rig.ended(job, 60).card_allocated
    assert box.status(job) is Status.SUCCEEDED


def test_a_busy_card_whose_processes_nobody_can_list_is_waited_for(box: Box) -> None:
    box.driver.write("answer nvmlDeviceGetComputeRunningProcesses_v3 4\n" + ONE_CARD.replace("n 3", "n 0 0 97 0"))
    with pytest.raises(Refusal, match="card 0 is 97% busy, and nobody can list its processes"):
        box.start("true", (A,), card_need=CardNeed(busy_most_percent=10), queue_wait_s=0)
    job = box.start("true", (A,), queue_wait_s=0)
    assert box.rig.ended(job, 60).card_allocated
