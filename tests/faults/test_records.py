"""Records that are torn, foreign, from the future, from before a restart: told as what they are, breaking nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from agent_rig import Refusal, Rig, lives
from support import until

from aicrun.wire import names
from aicrun.wire.codec import from_json, to_json
from aicrun.wire.jobs import JobReport
from aicrun.wire.status import Status, status_of

BROKEN = {
    "truncated": lambda raw: raw[: len(raw) // 2],
    "zeroed": lambda raw: b"\0" * len(raw),
    "empty": lambda raw: b"",
    "garbage": lambda raw: b"\xff{]" + raw,
    "wrong shape": lambda raw: b'{"schema":1,"job_id":[]}',
}
FUTURE = b'{"schema":2,"all":"is different"}'


@pytest.mark.parametrize("how", [*BROKEN, "future"])
def test_any_broken_record_leaves_the_others_listed(rig: Rig, how: str) -> None:
    jobs = [rig.start(f"ended-{number}", "exit 3") for number in range(2)]
    for job in jobs:
        rig.ended(job)
    good, bad = jobs
    files = [
        path
        for folder in (rig.folder(bad), rig.record("ended-1", bad))
        for path in sorted(folder.rglob("*.json"))
        if path.name != names.LOG_STATE
    ]
    assert len(files) >= 10
    with rig.link() as link:
        for path in files:
            before = path.read_bytes()
            path.write_bytes(FUTURE if how == "future" else BROKEN[how](before))
            reports = [from_json(JobReport, one) for one in link.call("jobs")[0]["reports"]]
            by_id = {report.job_id: status_of(report) for report in reports}
            assert set(by_id) == {good, bad}, path
            assert (by_id[good].status, by_id[good].code) == (Status.FAILED, 3), path
            # Whatever was broken: never a success, never another number.
            assert by_id[bad].status in (Status.FAILED, Status.UNKNOWN), path
            assert by_id[bad].code in (3, None), path
            link.call("job", key=bad)
            link.call("log", job_id=bad, step="command", offset=0)
            assert path.read_bytes() != before
            path.write_bytes(before)
        report = from_json(JobReport, link.call("job", key=bad)[0]["report"])
    assert (status_of(report).status, status_of(report).code) == (Status.FAILED, 3)


def test_a_record_that_cannot_be_read_refuses_a_start_of_its_run(rig: Rig) -> None:
    job = rig.start("torn-run", "exit 3")
    rig.ended(job)
    record = rig.record("torn-run", job) / names.RECORD
    for raw, token in ((b"\0" * 50, "state_unusable"), (FUTURE, "newer_record")):
        record.write_bytes(raw)
        answer = rig.call("look", run="torn-run")
        assert answer == {"reports": [], "unreadable": [f"torn-run/{job}"]}
        with pytest.raises(Refusal) as caught:
            rig.start("torn-run", "exit 0", named=(job,))
        assert caught.value.token == token
        assert record.read_bytes() == raw
    report = rig.report(job)
    assert report.newer_schema
    assert status_of(report).status is Status.UNKNOWN


def test_foreign_files_in_the_state_folder_are_left_alone(rig: Rig) -> None:
    rig.call("jobs")
    for path in (rig.root / "runs/x", rig.root / "runs/odd-run", rig.root / "jobs/stranger"):
        path.mkdir()
        (path / "file").write_text("not ours")
    (rig.root / "runs/file").write_text("not ours")
    rig.ended(rig.start("odd-run", "true"))
    assert (rig.root / "runs/odd-run/file").exists()
    assert rig.call("jobs")["omitted"] == 0


def restart(rig: Rig, job: str) -> None:
    """As after a restart of the host: nothing lives, and the boot is another one."""
    pids = [rig.keeper(job)]
    for start in rig.folder(job).rglob(names.STEP_START):
        pids.append(int(json.loads(start.read_text())["pid"]))
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    until(lambda: not any(lives(pid) for pid in pids))
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for path in (rig.folder(job) / names.LAUNCH, *rig.folder(job).rglob(names.STEP_START)):
        path.write_text(path.read_text().replace(boot, "00000000-0000-0000-0000-000000000000"))


def test_after_a_restart_running_is_unknown_ended_stays_and_unstarted_may_start(rig: Rig) -> None:
    running, ended = rig.start("running-run", "echo x; sleep 600"), rig.start("ended-run", "exit 3")
    rig.running(running)
    rig.ended(ended)
    reserved = rig.request("reserved-run", "true")
    rig.call("reserve", request=to_json(reserved), confirm=False)
    for job in (running, ended, reserved.job_id):
        restart(rig, job)
    standing = rig.standing(running)
    assert (standing.status, standing.reason, standing.code) == (Status.UNKNOWN, "reboot", None)
    assert "boot 00000000" in standing.why
    assert rig.standing(ended).code == 3
    assert rig.standing(reserved.job_id).status is Status.REJECTED
    assert rig.standing(running) == standing
    assert rig.ended(rig.start("reserved-run", "true")).run == "reserved-run"


@pytest.mark.parametrize("how", ["removed", "emptied"])
@pytest.mark.parametrize("supervised", [True, False])
def test_a_lost_decision_of_a_living_job_starts_no_second_one_and_it_can_be_stopped(
    rig: Rig, how: str, supervised: bool
) -> None:
    job = rig.start("kept-run", "echo x >> ran; sleep 300")
    main = rig.running(job)
    _lose(rig.record("kept-run", job) / names.DECISION, how)
    if not supervised:
        keeper = rig.keeper(job)
        os.kill(keeper, signal.SIGKILL)
        until(lambda: not lives(keeper))
    assert rig.standing(job).status is Status.IN_PROGRESS
    asked = rig.call("reserve", request=to_json(rig.request("kept-run", "exit 3")), confirm=True)
    assert (asked["answer"], asked["report"]["job_id"]) == ("busy", job)
    rig.call("withdraw", job_id=job, reason="a rival", by="bo@desk")
    assert lives(main)
    rig.call("stop", job_id=job, by="ana@laptop", grace_s=1)
    until(lambda: not lives(main))
    assert (rig.home / "work/kept-run/ran").read_text() == "x\n"


@pytest.mark.parametrize("how", ["removed", "emptied"])
@pytest.mark.parametrize("swept", [True, False])
def test_a_lost_decision_of_an_ended_job_leaves_its_end_as_it_was(rig: Rig, how: str, swept: bool) -> None:
    job = rig.start("done-run", "exit 0")
    before = status_of(rig.ended(job))
    _lose(rig.record("done-run", job) / names.DECISION, how)
    if swept:
        until(lambda: not lives(rig.keeper(job)))
        shutil.rmtree(rig.folder(job))
    assert rig.standing(job) == before
    asked = rig.call("reserve", request=to_json(rig.request("done-run", "exit 3")), confirm=True)
    assert (asked["answer"], asked["report"]["job_id"]) == ("busy", job)


def _lose(path: Path, how: str) -> None:
    path.unlink()
    if how == "emptied":
        path.touch()


def test_a_job_folder_that_is_gone_is_unknown_never_none(rig: Rig) -> None:
    job = rig.start("gone-run", "sleep 600")
    main, keeper = rig.running(job), rig.keeper(job)
    rig.folder(job).rename(rig.home / "away")
    # While something of it lives it has not ended, and no `--again` may start a second one beside it.
    assert rig.standing(job).status is Status.IN_PROGRESS
    os.kill(keeper, signal.SIGKILL)
    os.kill(main, signal.SIGKILL)
    standing = until(lambda: (seen := rig.standing(job)).status is not Status.IN_PROGRESS and seen)
    assert (standing.status, standing.reason) == (Status.UNKNOWN, "record_lost")
    assert str(rig.folder(job)) in standing.why
    with pytest.raises(Refusal, match="not_found"):
        rig.log(job)
    assert rig.call("reserve", request=to_json(rig.request("gone-run", "true")), confirm=True)["answer"] == "busy"


def test_keys_name_runs_jobs_and_beginnings(rig: Rig) -> None:
    first = rig.start("key-run", "true", job_id="abcd" + "0" * 12, run_id="1234" + "0" * 12)
    rig.ended(first)
    second = rig.start("key-run", "true", job_id="abcd" + "1" * 12, run_id="1234" + "0" * 12, named=(first,))
    rig.ended(second)
    other = rig.start("other-run", "true", job_id="ef01" + "1" * 12, run_id="5678" + "0" * 12)
    rig.ended(other)
    assert rig.report("key-run").job_id == second
    assert rig.report("1234" + "0" * 12).job_id == second
    assert rig.report("1234").job_id == second
    assert rig.report(first).job_id == first
    assert rig.report("ef01").job_id == other
    with pytest.raises(Refusal) as caught:
        rig.report("abcd")
    assert caught.value.token == "invalid_request"
    assert first in caught.value.message
    assert second in caught.value.message
    for key in ("ef0", "nosuch", "deadbeef", "", "../x"):
        with pytest.raises(Refusal, match="not_found"):
            rig.report(key)
    answer = rig.call("jobs", limit=2)
    assert ([one["job_id"] for one in answer["reports"]], answer["omitted"]) == ([other, second], 1)
    answer = rig.call("jobs", statuses=["succeeded"], limit=1)
    assert (len(answer["reports"]), answer["omitted"]) == (1, 2)
    assert rig.call("jobs", statuses=["failed"])["reports"] == []
    assert [one["job_id"] for one in rig.call("jobs", ids=[first, "0" * 16])["reports"]] == [first]
    with pytest.raises(Refusal, match="no such status"):
        rig.call("jobs", statuses=["finished"])


def test_a_clock_that_was_set_back_makes_no_old_job_the_newest(rig: Rig) -> None:
    first = rig.start("sft-run", "exit 3")
    rig.ended(first)
    record = rig.record("sft-run", first) / names.RECORD
    made = json.loads(record.read_bytes())
    made["created_at"] += 7200
    record.write_text(json.dumps(made))
    os.utime(record, (time.time() + 7200,) * 2)
    second = rig.start("sft-run", "true", named=(first,))
    rig.ended(second)
    assert rig.report("sft-run").job_id == second
    reports = rig.call("look", run="sft-run")["reports"]
    assert [report["job_id"] for report in reports] == [second, first]
    assert reports[0]["age_s"] <= reports[1]["age_s"]
