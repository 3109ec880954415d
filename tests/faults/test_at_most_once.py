"""At most once: by job id, by run name, whoever is killed in between, however often a message comes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from agent_rig import Refusal, Rig, lives
from support import until

from aicrun.wire.calls import ConnectionEnded
from aicrun.wire.codec import from_json, to_json
from aicrun.wire.jobs import JobReport, JobRequest, Source
from aicrun.wire.status import Status, status_of

MARK = 'echo "$AICRUN_JOB_ID" >> ran'


def ran(rig: Rig, run: str) -> list[str]:
    path = rig.home / "work" / run / "ran"
    return path.read_text().split() if path.exists() else []


def reserve(rig: Rig, request: JobRequest, confirm: bool, **env: str) -> dict[str, Any]:
    with rig.link(**env) as link:
        return link.call("reserve", request=to_json(request), confirm=confirm)[0]


def test_twelve_at_once_make_one_job(rig: Rig) -> None:
    rig.call("jobs")
    requests = [rig.request("same-run", f"{MARK}; sleep 1") for _ in range(12)]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda request: reserve(rig, request, True), requests))
    words = [answer["answer"] for answer in answers]
    assert sorted(words) == ["busy"] * 11 + ["ok"]
    winner = requests[words.index("ok")].job_id
    assert {answer["report"]["job_id"] for answer in answers} == {winner}
    rig.ended(winner)
    assert ran(rig, "same-run") == [winner]
    assert len(list((rig.root / "jobs").iterdir())) == 1


def test_the_same_id_has_the_same_answer(rig: Rig) -> None:
    request = rig.request("twice-run", f"{MARK}; exit 3")
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: reserve(rig, request, True), range(4)))
    assert [answer["answer"] for answer in answers] == ["ok"] * 4
    rig.ended(request.job_id)
    assert reserve(rig, request, True)["answer"] == "ok"
    assert ran(rig, "twice-run") == [request.job_id]
    with pytest.raises(Refusal, match="belongs to the run"):
        reserve(rig, rig.request("other-run", "true", job_id=request.job_id), True)


def test_ended_records_block_unless_they_were_shown(rig: Rig) -> None:
    first = rig.start("again-run", "exit 1")
    rig.ended(first)
    answer = reserve(rig, rig.request("again-run", "exit 0"), True)
    assert (answer["answer"], answer["report"]["job_id"]) == ("busy", first)
    second = rig.request("again-run", "exit 0", named=(first,))
    assert reserve(rig, second, True)["answer"] == "ok"
    third = rig.request("again-run", "exit 0", named=(first,))
    assert reserve(rig, third, True)["report"]["job_id"] == second.job_id


def test_undecided_confirm_withdraw_touch_and_await(rig: Rig) -> None:
    request = rig.request("gate-run", MARK)
    assert reserve(rig, request, False)["answer"] == "ok"
    job = request.job_id
    assert rig.standing(job).status is Status.SCHEDULING
    assert reserve(rig, rig.request("gate-run", "true"), False)["answer"] == "busy"
    assert rig.call("await", job_id=job, timeout_s=0.1)["decision"] == "undecided"
    assert rig.call("touch", job_id=job) == {}
    assert [report["job_id"] for report in rig.call("look", run="gate-run")["reports"]] == [job]
    assert rig.call("withdraw", job_id=job, reason="by rival", by="bo@desk") == {"decision": "no", "reason": "by rival"}
    assert rig.call("confirm", job_id=job, by="ana") == {"decision": "no", "reason": "by rival"}
    assert rig.call("await", job_id=job, timeout_s=5)["decision"] == "no"
    assert rig.call("look", run="gate-run") == {"reports": [], "unreadable": []}
    keeper = rig.keeper(job)
    until(lambda: not lives(keeper))
    assert ran(rig, "gate-run") == []
    other = rig.request("gate-run", MARK)
    reserve(rig, other, False)
    assert rig.call("confirm", job_id=other.job_id, by="ana")["decision"] == "go"
    assert rig.call("withdraw", job_id=other.job_id, reason="late", by="bo")["decision"] == "go"
    assert rig.call("unqueue", job_id=other.job_id, by="bo")["decision"] == "go"
    rig.ended(other.job_id)
    assert ran(rig, "gate-run") == [other.job_id]


def test_a_withdraw_that_comes_first_buries_the_id(rig: Rig) -> None:
    request = rig.request("buried-run", MARK)
    assert rig.call("withdraw", job_id=request.job_id, reason="by client", by="ana")["decision"] == "no"
    assert reserve(rig, request, True) == {"answer": "no", "reason": "by client"}
    assert rig.call("confirm", job_id=request.job_id, by="ana")["decision"] == "no"
    assert not (rig.root / "runs/buried-run").exists()


def test_an_untouched_reservation_withdraws_by_itself(rig: Rig) -> None:
    request = rig.request("slow-run", MARK)
    reserve(rig, request, False, AICRUN_TEST_GATE_S="1")
    keeper = rig.keeper(request.job_id)
    until(lambda: not lives(keeper), at_most_s=10)
    assert rig.call("confirm", job_id=request.job_id, by="ana") == {"decision": "no", "reason": "expired"}
    assert ran(rig, "slow-run") == []


def test_a_dead_keeper_without_a_decision_is_no(rig: Rig) -> None:
    request = rig.request("lost-run", MARK)
    reserve(rig, request, False)
    os.kill(rig.keeper(request.job_id), signal.SIGKILL)
    assert until(lambda: rig.call("await", job_id=request.job_id, timeout_s=5)) == {
        "decision": "no",
        "reason": "keeper lost",
    }
    assert reserve(rig, request, True)["answer"] == "no"
    assert reserve(rig, rig.request("lost-run", MARK), True)["answer"] == "ok"


BEFORE = ("reserve.begin", "reserve.folder", "reserve.record", "reserve.launched", "reserve.ready")


@pytest.mark.parametrize("place", [*BEFORE, "decided"])
def test_an_agent_killed_while_it_starts_a_run_starts_it_once_or_not_at_all(rig: Rig, place: str) -> None:
    request = rig.request("killed-run", MARK)
    with contextlib.suppress(ConnectionEnded, BrokenPipeError):
        reserve(rig, request, True, AICRUN_TEST_HOOK=f"{place}:kill", AICRUN_TEST_GATE_S="2")
    if place == "decided":
        assert status_of(rig.ended(request.job_id)).status is Status.SUCCEEDED
        assert reserve(rig, request, True)["answer"] == "ok"
        assert ran(rig, "killed-run") == [request.job_id]
        return
    assert ran(rig, "killed-run") == []
    # The same client asks again with the same id, as it must; else with a new one, as after its own restart.
    answer = reserve(rig, request, True)
    last = request
    if answer["answer"] == "no":
        last = rig.request("killed-run", MARK)
        assert reserve(rig, last, True)["answer"] == "ok"
    assert status_of(rig.ended(last.job_id)).status is Status.SUCCEEDED
    assert ran(rig, "killed-run") == [last.job_id]
    assert not [path for path in rig.root.rglob("*") if path.name.startswith(".new-")]


def test_nothing_starts_when_nobody_asks_again(rig: Rig) -> None:
    request = rig.request("alone-run", MARK)
    with contextlib.suppress(ConnectionEnded, BrokenPipeError):
        reserve(rig, request, True, AICRUN_TEST_HOOK="reserve.ready:kill", AICRUN_TEST_GATE_S="1")
    keeper = rig.keeper(request.job_id)
    until(lambda: not lives(keeper), at_most_s=10)
    assert ran(rig, "alone-run") == []
    assert rig.standing(request.job_id).reason == "expired"


def test_too_many_jobs_are_refused_and_dead_ones_do_not_count(rig: Rig) -> None:
    jobs = [rig.start(f"many-{number}", "sleep 600", max_jobs=2) for number in range(2)]
    with pytest.raises(Refusal) as caught:
        rig.start("many-2", "true", max_jobs=2)
    assert (caught.value.token, caught.value.facts) == ("too_many_jobs", {"active": "2", "most": "2"})
    assert not (rig.root / "runs/many-2").exists()
    os.kill(rig.keeper(jobs[0]), signal.SIGKILL)
    until(lambda: not rig.report(jobs[0]).supervised)
    rig.ended(rig.start("many-3", "true", max_jobs=2))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"job_id": "../../../tmp/x"}, "job_id"),
        ({"run": "../x"}, "run is no run name"),
        ({"workspace": "relative"}, "workspace"),
        ({"command": ("x" * 70000,)}, "65536"),
        ({"command": ()}, "command is empty"),
        ({"env": {"A": "b\0c"}}, "NUL"),
        ({"env": {"A=B": "c"}}, "env"),
        ({"max_jobs": 0}, "limits"),
    ],
)
def test_a_faulty_request_is_refused_and_leaves_nothing(rig: Rig, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(Refusal) as caught:
        reserve(rig, dataclasses.replace(rig.request("faulty-run", "true"), **fields), True)
    assert caught.value.token == "invalid_request"
    assert words in caught.value.message
    assert list((rig.root / "jobs").iterdir()) == []
    assert list((rig.root / "runs").iterdir()) == []


def test_a_source_that_is_not_all_here_is_refused(rig: Rig) -> None:
    with pytest.raises(Refusal) as caught:
        reserve(rig, rig.request("source-run", "true", source=Source("a" * 64, 1, 1)), True)
    assert caught.value.token == "store_incomplete"
    assert not (rig.root / "runs/source-run").exists()


def test_an_interpreter_that_fails_is_told_and_leaves_no_chance(rig: Rig) -> None:
    keeper = rig.agent / "aicrun/agent/keeper.py"
    keeper.write_text("raise RuntimeError('broken build')\n")
    request = rig.request("broken-run", MARK)
    with pytest.raises(Refusal) as caught:
        reserve(rig, request, True)
    assert caught.value.token == "start_failed"
    assert "broken build" in caught.value.message
    report = from_json(JobReport, rig.call("job", key=request.job_id)["report"])
    assert status_of(report).status is Status.REJECTED
