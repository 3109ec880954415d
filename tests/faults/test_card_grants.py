"""What a grant of a card rests on: the lock and its own record, not what a driver happens to say at the moment."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from agent_rig import Refusal
from fake_nvml.driver import can_be_built
from faults.test_cards_and_line import A, B, Box

from aicrun.wire.codec import to_json
from aicrun.wire.status import Status

pytestmark = pytest.mark.skipif(not can_be_built(), reason="no C compiler for the simulated driver")


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    host = Box(tmp_path)
    yield host
    host.close()


@pytest.mark.parametrize("trouble", ["init 18", "init 999", "answer nvmlDeviceGetCount_v2 15"])
def test_a_driver_that_fails_under_a_running_job_takes_nothing_from_it(box: Box, trouble: str) -> None:
    """Updated at night, or taken away from a container: its status is its own record's."""
    job = box.start("echo before; sleep 4; echo after; exit 7")
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
    assert (box.held(), box.tickets()) == (False, 0)


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
