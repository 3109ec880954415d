"""What happens beside running jobs: the agent is replaced, their neighbours are swept, many start at once."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from agent_rig import Link, Refusal, Rig, lives
from support import until

from aicrun.wire.codec import to_json
from aicrun.wire.status import Status, status_of

PUSHES = 12
STARTS, ALLOWED = 64, 32


def pushed_anew(rig: Rig, number: int, old: Path) -> None:
    """Another build of the agent in a folder of its own; the folder of the last one is gone."""
    fresh = rig.agent.parent / f"agent-{number}"
    shutil.copytree(old, fresh, ignore=shutil.ignore_patterns("__pycache__"))
    changed = fresh / "aicrun/agent/digest.py"
    changed.write_text(changed.read_text() + f"# build {number}\n")
    shutil.rmtree(old)
    rig.agent = fresh


def test_jobs_go_on_and_end_with_their_codes_while_the_agent_is_replaced_again_and_again(rig: Rig) -> None:
    wait = "while [ ! -e {home}/go-{n} ]; do sleep 0.05; done; echo bye; exit {n}"
    jobs = [rig.start(f"up-{n}", wait.format(home=rig.home, n=n)) for n in range(3)]
    keepers = [rig.keeper(job) for job in jobs]
    for job in jobs:
        rig.running(job)
    for number in range(PUSHES):
        pushed_anew(rig, number, rig.agent)
        with rig.link() as link:
            reports = link.call("jobs", statuses=["in progress"])[0]["reports"]
            assert {one["job_id"] for one in reports} == set(jobs)
            assert all(one["supervised"] for one in reports)
    for n in range(3):
        (rig.home / f"go-{n}").touch()
    with rig.link() as link:
        for n, job in enumerate(jobs):
            until(lambda pid=keepers[n]: not lives(pid))
            report = link.call("job", key=job)[0]["report"]
            assert [step["exit"]["code"] for step in report["steps"]] == [0, n]
            assert link.call("log", job_id=job, step="command", offset=0)[1] == b"bye\n"
        # What was started by a build that is long gone is stopped by one that came after.
    later = rig.start("later", "sleep 600", env={})
    rig.running(later)
    pushed_anew(rig, PUSHES, rig.agent)
    with rig.link() as link:
        link.call("stop", job_id=later, by="ana@laptop", grace_s=1)
        until(lambda: link.call("job", key=later)[0]["report"]["phase"] == "ended")


def test_a_sweep_that_races_with_readers_and_ends_takes_no_code_and_no_living_folder(rig: Rig) -> None:
    jobs = [rig.start(f"swept-{number}", f"echo here; sleep 0.{number}; exit {number}") for number in range(10)]
    going = True

    def sweep() -> int:
        removed = 0
        with rig.link() as link:
            while going:
                rows = link.call("gc", older_than_s=0)[0]["rows"]
                removed += sum(row["what"] == "job" for row in rows)
        return removed

    def read() -> None:
        with rig.link() as link:
            while going:
                for job in jobs:
                    _looked_at(link, job)

    with ThreadPoolExecutor(3) as pool:
        sweeping, reading = pool.submit(sweep), pool.submit(read)
        try:
            ended = [status_of(rig.ended(job, 60)) for job in jobs]
            until(lambda: not any(rig.folder(job).exists() for job in jobs))
        finally:
            going = False
        assert sweeping.result() == len(jobs)
        reading.result()
    for number, (job, standing) in enumerate(zip(jobs, ended, strict=True)):
        assert standing.code == number
        assert status_of(rig.report(job)).code == number


def _looked_at(link: Link, job: str) -> None:
    report: dict[str, Any] = link.call("job", key=job)[0]["report"]
    assert report["lost"] == "", report
    try:
        data = link.call("log", job_id=job, step="command", offset=0)[1]
    except Refusal as refusal:
        # Swept already, or not come to its command yet.
        assert refusal.token == "not_found"
    else:
        assert data in (b"", b"here\n")


def test_of_64_starts_at_once_32_run_and_the_others_are_told_the_limit(rig: Rig) -> None:
    rig.call("jobs")
    requests = [rig.request(f"many-{n}", "sleep 600", max_jobs=ALLOWED) for n in range(STARTS)]

    def ask(some: list[Any]) -> list[str]:
        answers = []
        with rig.link() as link:
            for request in some:
                try:
                    answers.append(link.call("reserve", request=to_json(request), confirm=True)[0]["answer"])
                except Refusal as refusal:
                    assert refusal.facts == {"active": str(ALLOWED), "most": str(ALLOWED)}
                    answers.append(refusal.token)
        return answers

    with ThreadPoolExecutor(8) as pool:
        answers = [word for words in pool.map(ask, [requests[n::8] for n in range(8)]) for word in words]
    assert sorted(answers) == ["ok"] * ALLOWED + ["too_many_jobs"] * (STARTS - ALLOWED)
    listed = rig.call("jobs", limit=200)["reports"]
    assert len(listed) == ALLOWED
    with pytest.raises(Refusal, match="too_many_jobs"):
        rig.start("one-more", "true", max_jobs=ALLOWED)
    # One that ends makes room for one.
    first = listed[0]["job_id"]
    rig.call("stop", job_id=first, by="ana@laptop", grace_s=1)
    assert status_of(rig.ended(first)).status is Status.STOPPED
    until(lambda: not lives(rig.keeper(first)))
    assert status_of(rig.ended(rig.start("one-more", "exit 3", max_jobs=ALLOWED))).code == 3
