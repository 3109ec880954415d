"""Further attempts of one job: until success, until the rule is used up, and what may happen in the pause between."""

from __future__ import annotations

import json
import os
import secrets
import signal
from pathlib import Path
from typing import Any

import pytest
from agent_rig import Rig
from support import until

from aicrun.agent.process import boot_identity
from aicrun.wire import names
from aicrun.wire.codec import replace, to_json
from aicrun.wire.jobs import JobReport, Limits, Retry
from aicrun.wire.status import Status, status_of

ONCE = Retry(1, ("exit",), 1, 1)
LONG = Retry(3, ("exit:75",), 600, 600)
# Ends with 75 until the attempt that is named.
UNTIL = 'echo "attempt $AICRUN_ATTEMPT"; [ "$AICRUN_ATTEMPT" -ge %d ] || exit 75'


def pausing(rig: Rig, job_id: str) -> JobReport:
    """The report of the job once it pauses."""

    def report() -> JobReport | None:
        found = rig.report(job_id)
        return found if found.next_attempt is not None and found.phase == "waiting" else None

    found: JobReport = until(report)
    return found


def exit_of(report: JobReport, step: str = "command") -> Any:
    return next(item.exit for item in report.steps if item.step == step)


def events(rig: Rig, job_id: str, event: str) -> list[str]:
    return [item.detail for item in rig.report(job_id).events if item.event == event]


def test_it_is_tried_again_until_it_succeeds(rig: Rig) -> None:
    job = rig.start("again", UNTIL % 3, retry=Retry(5, ("exit:75",), 1, 1))
    report = rig.ended(job)
    assert (status_of(report).status, report.attempt, report.attempts_most) == (Status.SUCCEEDED, 3, 6)
    assert report.next_attempt is None
    assert rig.log(job) == b"attempt 3\n"
    for number in (1, 2, 3):
        answer, data = rig.ask("log", job_id=job, step="command", offset=0, attempt=number)
        assert (answer["attempt"], data) == (number, b"attempt %d\n" % number)
        end = json.loads((rig.folder(job) / names.ATTEMPTS / str(number) / "command" / names.STEP_EXIT).read_text())
        assert (end["attempt"], end["code"]) == (number, 0 if number == 3 else 75)
    # What outlives the sweep is the newest attempt's, with the one setup.
    kept = json.loads((rig.record("again", job) / names.END).read_text())
    assert [(end["step"], end["attempt"], end["code"]) for end in kept["exits"]] == [("setup", 1, 0), ("command", 3, 0)]
    # The setup is done once, and its log is still found.
    assert [path.name for path in sorted((rig.folder(job) / names.ATTEMPTS).glob("*/setup"))] == ["setup"]
    assert rig.ask("log", job_id=job, step="setup", offset=0)[0]["attempt"] == 1
    assert events(rig, job, "retry") == [
        "attempt 2 of 6 in 1s, after exit code 75",
        "attempt 3 of 6 in 1s, after exit code 75",
    ]


def test_the_last_attempt_decides_once_all_are_used(rig: Rig) -> None:
    job = rig.start("used-up", "exit $((70 + AICRUN_ATTEMPT))", retry=Retry(2, ("exit",), 1, 1))
    report = rig.ended(job)
    standing = status_of(report)
    assert (standing.status, standing.reason, standing.code) == (Status.FAILED, "exit_code", 73)
    assert (report.attempt, report.attempts_most, report.next_attempt) == (3, 3, None)
    # What is learned is written after the end.
    until(lambda: rig.report(job).facts.get("attempts") == 3)
    until(lambda: "attempt 3 of 3" in (rig.root / names.NOTES).read_text())


def test_another_ending_than_the_named_ones_is_final(rig: Rig) -> None:
    job = rig.start("final", "exit 7", retry=Retry(3, ("exit:75", "signal", "timeout"), 1, 1))
    report = rig.ended(job)
    assert (status_of(report).code, report.attempt, report.next_attempt) == (7, 1, None)


@pytest.mark.parametrize("spec", [{"command": ("/no/such/program",)}, {"cwd": "nowhere"}, {"setup": "exit 75"}])
def test_what_never_ran_is_not_tried_again(rig: Rig, spec: dict[str, Any]) -> None:
    from aicrun.wire.jobs import Setup

    setup = Setup(run=(spec.pop("setup"),)) if "setup" in spec else Setup()
    command = spec.pop("command", "true")
    job = rig.start("never", command, retry=Retry(3, ("exit", "signal", "unknown"), 1, 1), setup=setup, **spec)
    report = rig.ended(job)
    assert (status_of(report).reason, report.attempt, report.next_attempt) == ("setup_failed", 1, None)


def test_a_signal_is_tried_again_by_its_name(rig: Rig) -> None:
    command = 'if [ "$AICRUN_ATTEMPT" = 1 ]; then kill -SEGV $$; fi'
    job = rig.start("by-signal", command, retry=Retry(1, ("signal:SEGV",), 1, 1))
    assert status_of(rig.ended(job)).status is Status.SUCCEEDED
    other = rig.start("other-signal", "kill -KILL $$", retry=Retry(1, ("signal:SEGV",), 1, 1))
    assert (status_of(rig.ended(other)).signal, rig.report(other).attempt) == (9, 1)


def test_a_deadline_is_tried_again_with_a_deadline_of_its_own(rig: Rig) -> None:
    job = rig.start(
        "late",
        'if [ "$AICRUN_ATTEMPT" = 1 ]; then exec sleep 60; fi',
        retry=Retry(1, ("timeout",), 1, 1),
        limits=Limits(grace_s=1, max_duration_s=3),
    )
    report = rig.ended(job)
    assert (status_of(report).status, report.attempt) == (Status.SUCCEEDED, 2)
    assert events(rig, job, "retry") == ["attempt 2 of 2 in 1s, after its max_duration"]


def test_a_stop_of_the_command_is_final(rig: Rig) -> None:
    job = rig.start("stopped", "trap 'exit 75' TERM; sleep 60 & wait", retry=Retry(3, ("exit", "signal"), 1, 1))
    rig.running(job)
    rig.call("stop", job_id=job, by="ana", grace_s=5)
    report = rig.ended(job)
    assert (status_of(report).status, report.attempt, report.next_attempt) == (Status.STOPPED, 1, None)


def test_leftovers_of_an_attempt_are_gone_before_the_next(rig: Rig) -> None:
    mark = rig.home / "left"
    command = (
        f'if [ "$AICRUN_ATTEMPT" = 1 ]; then (setsid sleep 100 & echo $! >{mark}); exit 75; fi;'
        f" kill -0 $(cat {mark}) 2>&1 && echo LIVES || true"
    )
    job = rig.start("leftovers", command, retry=ONCE)
    rig.ended(job)
    assert status_of(rig.report(job)).status is Status.SUCCEEDED
    assert b"LIVES" not in rig.log(job)


def test_a_pause_is_told_and_a_stop_ends_it(rig: Rig) -> None:
    job = rig.start("pausing", "exit 75", retry=LONG)
    report = pausing(rig, job)
    standing = status_of(report)
    assert standing.status is Status.ENQUEUED
    assert standing.why.startswith("attempt 2 of 4 in ")
    assert standing.why.endswith("m, after exit code 75")
    assert report.next_attempt is not None
    assert 500 < report.next_attempt.in_s <= 600
    assert (report.attempt, exit_of(report).code) == (1, 75)
    rig.call("stop", job_id=job, by="ana", grace_s=5)
    ended = rig.ended(job)
    told = status_of(ended)
    assert (told.status, told.code, told.step) == (Status.STOPPED, 75, "command")
    assert told.why == "attempt 2 of 4 was not made (it was stopped), after exit code 75"
    until(lambda: rig.keeper(job) not in _living())


def _living() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


@pytest.mark.parametrize("place", ["pause", "pause_over"])
def test_a_keeper_that_is_killed_in_the_pause_leaves_the_end_of_the_attempt(rig: Rig, place: str) -> None:
    rule = LONG if place == "pause" else ONCE
    job = rig.start("kept", "exit 75", env={"AICRUN_TEST_HOOK": f"{place}:kill"}, retry=rule)
    report = rig.ended(job)
    standing = status_of(report)
    assert (standing.status, standing.reason, standing.code) == (Status.FAILED, "exit_code", 75)
    assert standing.why == f"attempt 2 of {rule.most + 1} was not made (its keeper is gone), after exit code 75"
    assert rig.report(job) == report or status_of(rig.report(job)) == standing
    assert (
        json.loads((rig.record("kept", job) / names.END).read_text())["next_attempt"]["not_made"] == "supervisor_lost"
    )


def test_a_stop_and_then_a_killed_keeper_in_the_pause_is_a_stop(rig: Rig) -> None:
    job = rig.start("both", "exit 75", env={"AICRUN_TEST_HOOK": "pause:pause"}, retry=LONG)
    keeper = rig.keeper(job)
    until(lambda: (rig.folder(job) / names.RETRY).exists())
    rig.call("stop", job_id=job, by="ana", grace_s=1)
    os.kill(keeper, signal.SIGKILL)
    standing = status_of(rig.ended(job))
    assert (standing.status, standing.code) == (Status.STOPPED, 75)


def test_a_keeper_that_is_killed_in_the_second_attempt_leaves_an_unknown_end(rig: Rig) -> None:
    job = rig.start("second", '[ "$AICRUN_ATTEMPT" = 2 ] || exit 75; exec sleep 60', retry=ONCE)
    path = rig.folder(job) / names.ATTEMPTS / "2" / "command" / names.STEP_START
    pid = until(lambda: json.loads(path.read_text())["pid"] if path.exists() else None)
    os.kill(rig.keeper(job), signal.SIGKILL)
    report = until(lambda: found if not (found := rig.report(job)).supervised else None)
    assert (status_of(report).status, report.attempt) == (Status.IN_PROGRESS, 2)
    os.kill(pid, signal.SIGKILL)
    report = rig.ended(job)
    assert (status_of(report).status, status_of(report).reason) == (Status.UNKNOWN, "supervisor_lost")
    # The exit of the first attempt is no word on the second.
    assert (report.attempt, status_of(report).code, report.next_attempt) == (2, None, None)


def test_a_second_attempt_that_never_began_leaves_the_end_of_the_first(rig: Rig) -> None:
    job = rig.start("hardly", "exit 75", retry=Retry(1, ("exit",), 2, 2), env={"AICRUN_TEST_HOOK": "pause_over:pause"})
    until(lambda: (rig.folder(job) / names.RETRY).exists())
    until(lambda: _stopped(rig.keeper(job)))
    os.makedirs(rig.folder(job) / names.ATTEMPTS / "2" / "command")
    os.kill(rig.keeper(job), signal.SIGKILL)
    standing = status_of(rig.ended(job))
    assert (standing.status, standing.code) == (Status.FAILED, 75)
    assert "was not made" in standing.why


def _stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_reboot_in_the_pause_is_told_as_such(rig: Rig) -> None:
    job = rig.start("rebooted", "exit 75", env={"AICRUN_TEST_HOOK": "pause:kill"}, retry=LONG)
    until(lambda: not (rig.record("rebooted", job) / names.END).exists() and _gone(rig.keeper(job)))
    path = rig.folder(job) / names.LAUNCH
    launch = json.loads(path.read_text())
    assert launch["boot"]["boot_id"] == boot_identity().boot_id
    launch["boot"]["boot_id"] = "another"
    path.write_text(json.dumps(launch))
    report = rig.ended(job)
    assert report.next_attempt is not None
    assert (report.next_attempt.not_made, report.attempt) == ("reboot", 1)
    assert "the machine was restarted" in status_of(report).why


def _gone(pid: int) -> bool:
    return pid not in _living()


def test_a_changed_rule_reaches_the_pause(rig: Rig) -> None:
    job = rig.start("changed", UNTIL % 2, retry=LONG)
    pausing(rig, job)
    _change(rig, job, Retry(3, ("exit:75",), 1, 1))
    report = rig.ended(job)
    assert (status_of(report).status, report.attempt) == (Status.SUCCEEDED, 2)


def test_a_rule_that_is_taken_away_ends_the_pause(rig: Rig) -> None:
    job = rig.start("taken", "exit 75", retry=LONG)
    pausing(rig, job)
    _change(rig, job, Retry())
    standing = status_of(rig.ended(job))
    assert (standing.status, standing.code) == (Status.FAILED, 75)
    assert standing.why == "attempt 2 of 4 was not made (its retry rule was changed), after exit code 75"


def test_a_rule_that_comes_while_the_command_runs_counts_for_its_end(rig: Rig) -> None:
    go = rig.home / "go"
    job = rig.start("added", f"until [ -e {go} ]; do sleep 0.1; done; {UNTIL % 2}")
    rig.running(job)
    _change(rig, job, ONCE)
    go.touch()
    report = rig.ended(job)
    assert (status_of(report).status, report.attempt, report.attempts_most) == (Status.SUCCEEDED, 2, 2)


def _change(rig: Rig, job: str, rule: Retry) -> None:
    rig.call("supervise", job_id=job, supervision={}, limits={"grace_s": 1}, retry=to_json(rule), by="ana")


def test_an_older_client_that_changes_limits_leaves_the_rule(rig: Rig) -> None:
    go = rig.home / "go"
    job = rig.start("older", f"until [ -e {go} ]; do sleep 0.1; done; {UNTIL % 2}", retry=ONCE)
    rig.running(job)
    rig.call("supervise", job_id=job, supervision={}, limits={"grace_s": 1}, by="ana")
    go.touch()
    assert rig.ended(job).attempt == 2


def test_a_job_that_goes_on_after_a_reboot_counts_from_where_it_was(rig: Rig) -> None:
    job = rig.start(
        "counts", 'echo "attempt $AICRUN_ATTEMPT"; exit 75', retry=Retry(3, ("exit",), 1, 1), first_attempt=3
    )
    report = rig.ended(job)
    assert (report.attempt, report.attempts_most, rig.log(job)) == (4, 4, b"attempt 4\n")
    assert [path.name for path in sorted((rig.folder(job) / names.ATTEMPTS).iterdir())] == ["3", "4"]


def test_samples_of_an_attempt_stay_with_it(rig: Rig) -> None:
    rig.call("jobs", limit=1)
    number = secrets.token_hex(8)
    # Each attempt lasts until it was measured.
    env = {"PEAKS": str(rig.folder(number) / names.TELEMETRY_PEAKS)}
    command = 'until [ -s "$PEAKS" ]; do sleep 0.1; done; [ "$AICRUN_ATTEMPT" = 2 ] || exit 75'
    request = rig.request("sampled", command, job_id=number, retry=ONCE)
    rig.call("reserve", request=to_json(replace(request, env=env)), confirm=True)
    report = rig.ended(number)
    assert status_of(report).status is Status.SUCCEEDED
    first = rig.folder(number) / names.ATTEMPTS / "1" / names.TELEMETRY
    assert first.exists()
    assert (rig.folder(number) / names.TELEMETRY).exists()
    until(lambda: rig.report(number).facts.get("memory_peak_mib"))
