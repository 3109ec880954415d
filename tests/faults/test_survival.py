"""systemd's tools hang, fail or lie: a run starts all the same, once, in the next mode, and the record says why.

The tools are fakes on the agent's PATH; what they start is real. On a real systemd: `tests/systemd/`.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_rig import lives
from fake_systemd import HANGS, RUNS, Host
from support import until

from aicrun.wire import calls
from aicrun.wire.codec import to_json


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.close()


def test_a_unit_that_comes_to_run_keeps_the_job(host: Host) -> None:
    job_id = host.start()
    told = host.launched(job_id)
    assert (told.mode, told.unit, told.why) == ("A", f"aicrun-{job_id}.service", "")
    host.check_once(job_id)
    said = host.calls.read_text()
    assert "--property=KillMode=process" in said
    assert "--service-type=exec" in said
    assert "Device" not in said
    assert host.rig.mark.partition("=")[2] not in said


def test_an_older_systemd_is_asked_for_nothing_that_it_does_not_know(host: Host) -> None:
    host.tool("systemctl", "echo 'systemd 239 (239-82.el8_10.3)'")
    job_id = host.start()
    assert host.launched(job_id).mode == "A"
    asked = next(line for line in host.calls.read_text().splitlines() if line.startswith("systemd-run"))
    assert "--service-type=simple" in asked.split()
    assert "OOMPolicy" not in asked
    assert "--property=TasksMax=infinity" in asked.split()
    host.check_once(job_id)


@pytest.mark.parametrize(
    ("tool", "body", "why"),
    (
        ("systemd-run", HANGS, "systemd-run gave no answer within 1 s"),
        ("systemd-run", "exit 0", "its unit did not come to run within 1 s"),
        ("systemd-run", "echo 'Failed to connect to bus: No such file' >&2; exit 1", "Failed to connect to bus"),
        ("systemd-run", f"{HANGS} &\nexit 1", "systemd-run ended with 1"),
        ("systemctl", HANGS, "systemctl gave no answer within 1 s"),
    ),
)
def test_a_tool_that_fails_costs_the_mode_and_not_the_run(host: Host, tool: str, body: str, why: str) -> None:
    host.tool(tool, body)
    began = time.monotonic()
    job_id = host.start()
    assert time.monotonic() - began < 8
    told = host.launched(job_id)
    assert (told.mode, told.unit) == ("C", "")
    assert why in told.why
    host.check_once(job_id)
    # After a tool that gave no answer none is asked again.
    silent = "no answer" in why
    assert not silent or host.calls.read_text().splitlines()[-1].startswith(tool)


def test_a_unit_that_may_execute_nothing_is_told_with_where_to_look(host: Host) -> None:
    """As on an enforcing SELinux: the unit failed with a bare code, and an older systemd-run said that all was well."""
    version = "echo 'systemd 239 (239-82.el8_10.3)'"
    host.tool("systemctl", f'case "$*" in *ExecMainStatus*) echo ExecMainStatus=203;; *) {version};; esac')
    for body in ("echo 'Job for it failed, see journalctl -xe' >&2; exit 1", "exit 0"):
        host.tool("systemd-run", body)
        job_id = host.rig.start(f"denied-{len(body)}", "true")
        told = host.launched(job_id)
        assert (told.mode, "could not execute" in told.why, "ausearch" in told.why) == ("C", True, True), told.why
        host.rig.ended(job_id)


def test_a_failing_tool_is_seen_also_where_nobody_hears_of_children(host: Host) -> None:
    """Whoever started the agent ignored SIGCHLD, which is inherited: every child seems to end with 0."""
    host.rig.env["AICRUN_TEST_TAKEN_S"] = "600"
    host.tool("systemd-run", "echo 'Failed to start' >&2; exit 1")
    words = host.rig.serving({})
    host.rig.serving = lambda env: ["sh", "-c", 'trap "" CHLD; exec "$@"', "sh", *words]  # type: ignore[method-assign]
    job_id = host.start()
    assert host.launched(job_id).why == "Failed to start"
    host.check_once(job_id)


def test_a_unit_that_comes_late_starts_nothing(host: Host) -> None:
    late = f'sleep 3; while [ "$1" != -- ]; do shift; done; shift; "$@"; echo $? > {host.linger.parent}/late'
    host.tool("systemd-run", f"setsid sh -c '{late}' sh \"$@\" </dev/null >/dev/null 2>&1 &\n{HANGS}")
    job_id = host.start()
    assert host.launched(job_id).mode == "C"
    until((host.linger.parent / "late").exists)
    assert until((host.linger.parent / "late").read_text) == "0\n"
    host.check_once(job_id)


def test_a_tool_that_fails_after_its_unit_began_has_given_us_one_keeper(host: Host) -> None:
    host.tool("systemd-run", f"{RUNS}\nsleep 0.7; echo 'Job was canceled' >&2; exit 1")
    job_id = host.start()
    assert host.launched(job_id).mode == "A"
    host.check_once(job_id)


def test_a_unit_whose_program_dies_is_followed_by_a_session(host: Host) -> None:
    host.rig.env["AICRUN_TEST_HOOK"] = "unit.taken:kill"
    job_id = host.start()
    told = host.launched(job_id)
    assert (told.mode, told.why) == ("C", "its keeper ended before it was ready")
    host.check_once(job_id)


def test_an_agent_that_dies_between_the_two_leaves_one_keeper_at_most(host: Host) -> None:
    request = host.rig.request("once", f"echo began >> {host.rig.home}/began")
    with host.rig.link(AICRUN_TEST_HOOK="reserve.launched:kill") as link, pytest.raises(calls.ConnectionEnded):
        link.call("reserve", request=to_json(request), confirm=True)
    job_id = request.job_id
    until(lambda: (host.rig.folder(job_id) / "launch.json").exists())
    assert host.keepers(job_id) == [host.rig.keeper(job_id)]
    assert host.rig.report(job_id).decision == "undecided"
    assert not (host.rig.home / "began").exists()


def test_lingering_that_is_only_claimed_is_not_believed(host: Host) -> None:
    host.rig.env["AICRUN_TEST_UID"] = "1000"
    job_id = host.start()
    told = host.launched(job_id)
    assert told.mode == "C"
    assert "loginctl said yes, and it is still off" in told.why
    assert told.outlives_logout == "yes"
    host.check_once(job_id)


def test_only_a_login_of_the_account_changes_its_lingering(host: Host) -> None:
    host.rig.env |= {"AICRUN_TEST_UID": "1000", "AICRUN_TEST_OWN_HOME": "/home/somebody"}
    told = host.launched(host.start())
    assert told.mode == "C"
    assert "HOME is not /home/somebody" in told.why
    assert "enable-linger" not in host.calls.read_text()


def test_an_account_that_lingers_gets_a_unit_of_its_own_manager(host: Host) -> None:
    host.rig.env["AICRUN_TEST_UID"] = "1000"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as manager:
        manager.bind(str(host.runtime / "systemd/private"))
        manager.listen()
        host.tool("loginctl", f'touch {host.linger}/"$3"')
        job_id = host.start()
    told = host.launched(job_id)
    assert told.mode == "B"
    asked = next(line for line in host.calls.read_text().splitlines() if line.startswith("systemd-run"))
    assert "--user" in asked.split()
    host.check_once(job_id)


def test_a_rule_that_cannot_be_read_is_told_as_unknown(host: Host) -> None:
    host.rig.env["AICRUN_TEST_UID"] = "1000"
    host.tool("busctl", HANGS)
    reading = host.rig.call("survey", question={"cards": False})["reading"]["survival"]
    assert (reading["mode"], reading["outlives_logout"]) == ("C", "unknown")
    assert "could not be found out" in reading["warning"]
    row = next(row for row in host.rig.call("doctor")["findings"] if row["topic"] == "survival")
    assert row["word"] == "note"


def test_a_rule_that_kills_is_bad_news_of_the_doctor(host: Host) -> None:
    host.rig.env["AICRUN_TEST_UID"] = "1000"
    host.tool("busctl", "printf 'b true\\nas 0\\nas 1 \"ana\"\\n'")
    row = next(row for row in host.rig.call("doctor")["findings"] if row["topic"] == "survival")
    assert row["word"] == "bad"
    assert "KillUserProcesses=yes" in row["text"]
    assert row["help"].startswith("loginctl enable-linger ")


def test_looking_changes_nothing_and_without_systemd_costs_nothing(host: Host) -> None:
    host.rig.env["AICRUN_TEST_UID"] = "1000"
    host.rig.call("survey", question={"cards": False})
    host.rig.call("doctor")
    assert "enable-linger" not in host.calls.read_text()
    assert "systemd-run" not in host.calls.read_text()
    host.calls.unlink()
    host.rig.env["AICRUN_TEST_SYSTEMD"] = "0"
    host.rig._own().close()
    host.rig._link = None
    job_id = host.start()
    assert host.launched(job_id).mode == "D"
    assert not host.calls.exists()


def test_a_login_manager_without_systemd_is_told_when_it_has_logins(host: Host) -> None:
    sessions = host.linger
    host.rig.env |= {"AICRUN_TEST_SYSTEMD": "0", "AICRUN_TEST_SESSIONS": str(sessions)}

    def survives() -> tuple[str, str]:
        seen = host.rig.call("survey", question={"cards": False})["reading"]["survival"]
        return seen["mode"], seen["outlives_logout"]

    assert survives() == ("D", "yes")
    (sessions / "c1").touch()
    assert survives() == ("D", "unknown")


def test_the_lost_end_of_a_run_has_what_its_unit_says(host: Host) -> None:
    job_id = host.start()
    host.check_once(job_id)
    shown = "printf 'LoadState=loaded\\nActiveState=failed\\nResult=oom-kill\\nExecMainStatus=9\\n'"
    host.tool("systemctl", f'case "$*" in *show*) {shown};; *) echo "systemd 252 (252.1)";; esac')
    pid, keeper = host.rig.running(job_id), host.rig.keeper(job_id)
    os.kill(keeper, 9)
    os.kill(pid, 9)
    until(lambda: not lives(pid) and not lives(keeper))
    report = host.rig.ended(job_id)
    assert report.lost == "supervisor_lost"
    assert f"its unit aicrun-{job_id}.service ended with oom-kill" in report.lost_detail
    host.rig.call("gc", older_than_s=0)
    assert f"reset-failed aicrun-{job_id}.service" in host.calls.read_text()
