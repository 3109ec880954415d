"""Cards that change under a run: one that falls off the bus, a driver that goes, a card that drains slowly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_rig import Refusal, lives
from fake_nvml.driver import can_be_built
from faults.test_cards_and_line import A, B, Box
from support import until

from aicrun.agent.card_users import can_be_known
from aicrun.wire import names
from aicrun.wire.status import Status, status_of

pytestmark = pytest.mark.skipif(not can_be_built(), reason="no C compiler for the simulated driver")
WAITS = "while [ ! -e go ]; do sleep 0.05; done; exit 6"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    host = Box(tmp_path)
    yield host
    host.close()


def state(box: Box) -> str:
    return (box.driver.folder / "nvml.state").read_text()


def go(box: Box, job: str) -> None:
    Path(box.rig.report(job).workspace, "go").touch()


@pytest.mark.parametrize("gone", ["the card", "the driver"])
def test_a_card_that_is_gone_while_its_run_goes_on_stays_locked_and_the_run_keeps_its_code(box: Box, gone: str) -> None:
    job = box.start(WAITS)
    box.rig.running(job)
    plain = state(box)
    if gone == "the card":
        box.driver.write(plain[: plain.index(f"card {A}")] + plain[plain.index(f"card {B}") :])
        told = box.rig.call("survey", question={})["reading"]["cards"]
        assert [card["uuid"] for card in told["cards"]] == [B]
    else:
        (box.driver.folder / "libnvidia-ml.so.1").rename(box.driver.folder / "away")
    assert box.status(job) is Status.IN_PROGRESS
    assert box.held(A)
    # The next one for it starts on nothing: it is refused, or waits, and in either case does not run.
    with pytest.raises(Refusal) as refusal:
        box.start("true", queue_wait_s=0)
    assert refusal.value.token == "gpu_busy"
    go(box, job)
    standing = status_of(box.rig.ended(job, 60))
    assert (standing.status, standing.code) == (Status.FAILED, 6)
    until(lambda: not box.held(A), 40)
    late = box.start("touch ran", queue_wait_s=2)
    standing = status_of(box.rig.ended(late, 40))
    assert standing.status is Status.REJECTED, standing
    assert A in standing.why or "driver" in standing.why, standing
    assert not Path(box.rig.report(late).workspace, "ran").exists()
    assert (box.held(A), box.tickets()) == (False, 0)


@pytest.mark.skipif(not can_be_known(), reason="the driver's pids are not this namespace's")
def test_a_card_that_drains_slowly_is_given_on_when_it_is_empty_and_not_before(box: Box) -> None:
    job = box.start(WAITS)
    main = box.rig.running(job)
    plain = state(box)
    # A row of the driver's table that stays when its process is gone, as a slow driver's does.
    box.driver.write(plain.replace(f"card {B}", f"  process {main} compute 900\ncard {B}"))
    second = box.start("true")
    box.waiting(second)
    go(box, job)
    # Its command is over and its code is known; its memory is still on the card.
    until(lambda: (box.rig.step(job) / names.STEP_EXIT).exists() and not lives(main))
    for _ in range(20):
        assert box.held(A)
        assert box.status(second) is Status.ENQUEUED
    # A driver that does not answer for a moment says nothing of who is there.
    box.driver.unload()
    for _ in range(20):
        assert box.held(A)
    box.driver.write(plain)
    box.rig.ended(second)
    assert box.status(second) is Status.SUCCEEDED
    assert box.rig.standing(job).code == 6
