"""A drained machine: what runs goes on, what has a card waits in line, everything else is refused before it is made."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from accounts import NOBODY, told
from agent_rig import Refusal
from fake_nvml.driver import can_be_built
from faults.test_cards_and_line import A, Box
from private_locks import made_private
from support import until

from aicrun.agent import drain_marks, drains
from aicrun.agent.home import open_home
from aicrun.agent.lock_folder import opened
from aicrun.agent.refused import Refused
from aicrun.wire.codec import to_json
from aicrun.wire.status import Status

pytestmark = pytest.mark.skipif(not can_be_built(), reason="no C compiler for the simulated driver")


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    host = Box(tmp_path)
    yield host
    host.close()


def drain(box: Box, on: bool = True, why: str = "") -> Any:
    return box.rig.call("drain", on=on, why=why, by="ana@laptop")


def question() -> dict[str, Any]:
    return {"runs": [], "paths": [], "data": "", "cards": False}


def test_a_run_with_a_card_waits_until_the_drain_is_lifted(box: Box) -> None:
    assert drain(box, why="new power supply")["drain"]["why"] == "new power supply"
    job = box.start("true")
    line = box.waiting(job)
    assert (line.reason, line.position, line.granted) == ("drained", 1, False)
    assert line.why == f"this machine is drained by {drains_account()}: new power supply"
    assert not box.held()
    assert drain(box, False) == {"drain": None, "going": 0, "waiting": 1}
    assert box.rig.ended(job).card_allocated
    assert box.status(job) is Status.SUCCEEDED


def drains_account() -> str:
    return drain_marks.account(os.geteuid())


def test_what_runs_goes_on_and_is_counted(box: Box) -> None:
    with_card, without = box.start(), box.start("exec sleep 100", cards=())
    box.rig.running(with_card)
    box.rig.running(without)
    behind = box.start("true")
    box.waiting(behind)
    found = drain(box)
    assert (found["going"], found["waiting"]) == (2, 1)
    box.rig.call("stop", job_id=with_card, by="t", grace_s=1)
    box.rig.ended(with_card)
    assert box.status(without) is Status.IN_PROGRESS
    # The card is free now, and stays so.
    until(lambda: not box.held(A))
    until(lambda: (line := box.rig.report(behind).line) is not None and line.reason == "drained")
    assert box.status(behind) is Status.ENQUEUED


@pytest.mark.parametrize("fields", [{"cards": ()}, {"cards": (A,), "queue_wait_s": 0}], ids=["no card", "wait 0"])
def test_what_cannot_wait_is_refused_and_leaves_no_record(box: Box, fields: dict[str, Any]) -> None:
    drain(box, why="moving house")
    with pytest.raises(Refusal, match=r"drained by .*: moving house") as refused:
        box.start("true", **fields)
    assert (refused.value.token, refused.value.facts["why"]) == ("drained", "moving house")
    request = box.rig.request("run-1", "true", **fields)
    drain(box, False)
    assert box.rig.call("reserve", request=to_json(request), confirm=True)["answer"] == "ok"
    assert box.rig.ended(request.job_id).phase == "ended"


def test_it_is_told_by_a_survey_and_by_doctor(box: Box) -> None:
    def rows() -> list[Any]:
        return [row for row in box.rig.call("doctor", data="")["findings"] if row["topic"] == "drain"]

    assert box.rig.call("survey", question=question())["reading"].get("drain") is None
    assert rows() == []
    drain(box, why="moving house")
    told_drain = box.rig.call("survey", question=question())["reading"]["drain"]
    assert (told_drain["account"], told_drain["why"], told_drain["by"]) == (
        drains_account(),
        "moving house",
        "ana@laptop",
    )
    assert rows()[0]["text"] == f"by {drains_account()}: moving house; no new run starts here"


def test_a_reservation_that_was_undecided_waits_too(box: Box) -> None:
    request = box.rig.request("run-1", "true", cards=(A,))
    box.rig.call("reserve", request=to_json(request), confirm=False)
    drain(box)
    # It has the card since it was reserved: it is no new start any more.
    box.rig.call("confirm", job_id=request.job_id, by="client")
    assert box.rig.ended(request.job_id).card_allocated


def test_only_its_maker_or_root_lifts_a_drain() -> None:
    if os.geteuid() or not made_private():
        pytest.skip("needs root and a lock folder of this test's own")
    with tempfile.TemporaryDirectory(prefix="aicrun-test-") as folder:
        os.chown(folder, NOBODY, NOBODY)

        def asked(on: bool) -> Any:
            try:
                return drains.drain(open_home({"HOME": folder}), {"on": on, "by": "bo@laptop"}, b"")[0]["drain"]
            except Refused as error:
                return [error.token, error.message]

        # What another account may not read of this interpreter is loaded before.
        open_home({"HOME": tempfile.mkdtemp(dir=folder)})
        with opened() as locks:
            drain_marks.put(locks, "kernel update", "ana@desk")
            whose = ["drained", "this machine is drained by root: kernel update; only root lifts it"]
            assert told(lambda: asked(False), NOBODY) == whose
            assert told(lambda: asked(True), NOBODY)["account"] == "root"
            drain_marks.lift(locks)
            # Its own mark was made all the same, and is its own to lift; root is not kept from running here.
            assert drains.now() is None
            assert told(lambda: asked(True), NOBODY)["account"] == "nobody"
            assert told(lambda: asked(False), NOBODY) is None
