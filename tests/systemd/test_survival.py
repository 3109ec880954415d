"""What a run survives on a real systemd: logout, a restart of sshd, a killed keeper, a stop of its unit."""

from __future__ import annotations

import io
import shlex
import subprocess
import time
from collections.abc import Callable

import pytest
from support import until
from systemd.account import WORK, Account
from systemd.machines import Machine

from aicrun.wire import calls
from aicrun.wire.codec import to_json
from aicrun.wire.jobs import JobReport
from aicrun.wire.launched import Launched
from aicrun.wire.status import Status

pytestmark = pytest.mark.systemd

Accounts = Callable[..., Account]

NO_POLKIT = "systemctl mask --now polkit.service"
# logind stops a user's manager one second after the last logout here (ten where nobody says otherwise).
MANAGER_GONE = "! systemctl is-active --quiet user@1000.service"


def launched(account: Account, job_id: str) -> Launched:
    """How the job's keeper was started, as its report says."""
    found = account.report(job_id).launched
    assert found is not None
    return found


def until_unknown(account: Account, job_id: str) -> JobReport:
    """The report of a run that must end as unknown, and nothing else."""
    report = account.ended(job_id)
    assert account.standing(job_id).status is Status.UNKNOWN
    return report


def test_a_unit_of_the_system_outlives_logout_and_a_restart_of_sshd(machine: Machine, account: Accounts) -> None:
    root = account("root")
    job_id = root.start_work("long")
    keeper, pid = root.keeper(job_id), root.running(job_id)
    told = launched(root, job_id)
    assert (told.mode, told.outlives_logout, told.unit) == ("A", "yes", f"aicrun-{job_id}.service")
    assert root.group(keeper).startswith(f"/aicrun.slice/{told.unit}")
    root.logout()
    assert machine.run("root", "systemctl restart ssh").returncode == 0
    assert root.lives(pid)
    assert root.report(job_id).supervised
    assert root.standing(job_id).status is Status.IN_PROGRESS
    assert not list(root.folder(job_id).glob("order.json*"))


def test_a_unit_says_what_a_unit_of_ours_is(machine: Machine, account: Accounts) -> None:
    root = account("root")
    job_id = root.start_work("long")
    unit = f"aicrun-{job_id}.service"
    words = ("Type", "KillMode", "Delegate", "OOMPolicy", "Restart", "TasksMax", "TimeoutStopUSec", "CollectMode")
    asked = machine.run("root", f"systemctl show {unit} " + " ".join(f"-p {word}" for word in words)).stdout
    said = dict(line.split("=", 1) for line in asked.splitlines())
    assert said == {
        "Type": "exec",
        "KillMode": "process",
        "Delegate": "yes",
        "OOMPolicy": "continue",
        "Restart": "no",
        "TasksMax": "infinity",
        "TimeoutStopUSec": "35s",
        "CollectMode": "inactive",
    }
    assert machine.run("root", f"systemctl show {unit} -p DeviceAllow -p DevicePolicy").stdout.split() == [
        "DevicePolicy=auto"
    ]
    # Nobody may read a login's environment from the manager, or from a list of processes.
    secret = "AICRUN_TEST_PLANTED"
    with root.link(**{secret: "hunter2hunter2"}) as link:
        request = root.request("other", "sleep 60", workspace=f"{root.env['HOME']}/runs/other")
        assert link.call("reserve", request=to_json(request), confirm=True)[0]["answer"] == "ok"
    other = f"aicrun-{request.job_id}.service"
    looked = f"systemctl show {other}; cat /run/systemd/transient/{other}; tr '\\0' ' ' < /proc/$MAIN/cmdline"
    seen = machine.run("root", f"MAIN=$(systemctl show -P MainPID {other}); {looked}; ps axww").stdout
    assert "hunter2" not in seen
    assert "hunter2" in machine.run("root", f"cat /proc/{root.keeper(request.job_id)}/environ").stdout


def test_a_lingering_account_gets_a_unit_of_its_own_that_outlives_the_logout(
    machine: Machine, account: Accounts
) -> None:
    alice = account("alice")
    # Looking changes nothing on the machine; the start does, and says so.
    assert alice.call("survey", question={"cards": False})["reading"]["survival"]["mode"] == "C"
    assert machine.run("root", "ls /var/lib/systemd/linger").stdout == ""
    job_id = alice.start_work("long", "touch /dev/shm/mine; " + WORK)
    told = launched(alice, job_id)
    assert (told.mode, told.outlives_logout, told.unit) == ("B", "yes", f"aicrun-{job_id}.service")
    assert machine.run("root", "ls /var/lib/systemd/linger").stdout.split() == ["alice"]
    assert "/user@1000.service/aicrun.slice/" in alice.group(alice.keeper(job_id))
    pid = alice.running(job_id)
    alice.logout()
    # Longer than a manager that does not linger would be left.
    assert machine.run("root", f"sleep 4; {MANAGER_GONE}").returncode == 1
    assert alice.lives(pid)
    assert machine.run("root", "ls /dev/shm").stdout.split() == ["mine"]
    # The manager's PATH is short; a run finds what the account has installed for itself.
    found = dict(entry.split("=", 1) for entry in alice.environment(pid))
    assert found["PATH"].startswith("/home/alice/.local/bin:")
    assert alice.call("survey", question={"cards": False})["reading"]["survival"]["mode"] == "B"
    # Nothing of ours is in the runtime folder, which goes with a manager.
    machine.run("root", "rm -rf /run/user/1000/*")
    alice.call("stop", job_id=job_id, by="ana")
    assert alice.ended(job_id).steps[1].exit is not None
    assert alice.standing(job_id).status is Status.STOPPED


def test_without_the_right_to_linger_it_is_a_session_and_says_so(machine: Machine, account: Accounts) -> None:
    machine.run("root", NO_POLKIT)
    alice = account("alice")
    # A handler of its own takes the place of an ignored SIGHUP, as launchers of several ranks do.
    job_id = alice.start_work("long", f"trap 'echo hung up > hup' HUP; touch /dev/shm/mine; {WORK}")
    told = launched(alice, job_id)
    assert (told.mode, told.outlives_logout, told.warning, told.unit) == ("C", "yes", "", "")
    assert told.why.startswith("lingering is off for alice: ")
    assert "/session-" in alice.group(alice.keeper(job_id))
    row = next(row for row in alice.call("doctor")["findings"] if row["topic"] == "survival")
    assert row["help"] == "loginctl enable-linger alice"
    pid = alice.running(job_id)
    alice.logout()
    machine.run("root", "sleep 4")
    assert alice.lives(pid)
    assert machine.run("root", "ls /dev/shm").stdout.split() == ["mine"]
    assert not (alice.home / "runs/long/hup").exists()
    assert alice.standing(job_id).status is Status.IN_PROGRESS


def test_a_logout_that_kills_is_told_before_and_is_unknown_after(off: Machine, account: Accounts) -> None:
    (off.root / "etc/systemd/logind.conf.d/kill.conf").write_text("[Login]\nKillUserProcesses=yes\n")
    off.power()
    off.run("root", NO_POLKIT)
    alice = account("alice")
    seen = alice.call("survey", question={"cards": False})["reading"]["survival"]
    assert (seen["mode"], seen["outlives_logout"]) == ("C", "no")
    assert "KillUserProcesses=yes" in seen["warning"]
    job_id = alice.start_work("long")
    assert launched(alice, job_id).warning == seen["warning"]
    pid = alice.running(job_id)
    alice.logout()
    until(lambda: not alice.lives(pid))
    report = until_unknown(alice, job_id)
    assert report.lost == "supervisor_lost"
    assert "session-" in report.lost_detail
    # Root is spared by logind's own rule, and lingering needs no rule.
    off.run("root", "loginctl enable-linger alice")
    assert alice.call("survey", question={"cards": False})["reading"]["survival"]["outlives_logout"] == "yes"


def test_a_login_without_a_manager_is_seen_and_told(machine: Machine, account: Accounts) -> None:
    """As through su: there is no runtime folder and no bus."""
    machine.run("root", NO_POLKIT)
    alice = account("alice", become="setpriv --reuid alice --regid alice --init-groups")
    seen = alice.call("survey", question={"cards": False})["reading"]["survival"]
    assert seen["mode"] == "C"
    machine.run("root", "loginctl enable-linger alice")
    until(lambda: alice.call("survey", question={"cards": False})["reading"]["survival"]["mode"] == "B")


def test_a_run_started_inside_a_service_is_told_what_ends_it(machine: Machine, account: Accounts) -> None:
    machine.run("root", NO_POLKIT)
    alice = account("alice", become="systemd-run --quiet --pipe --unit=ci-runner --uid=alice")
    seen = alice.call("survey", question={"cards": False})["reading"]["survival"]
    assert seen["warning"] == "a restart of ci-runner.service ends the run: this login is inside that service"
    job_id = alice.start_work("long")
    pid = alice.running(job_id)
    assert launched(alice, job_id).warning == seen["warning"]
    machine.run("root", "systemctl stop ci-runner")
    alice.close()
    until(lambda: not alice.lives(pid))
    machine.run("root", "systemctl reset-failed ci-runner")
    report = until_unknown(alice, job_id)
    assert "ci-runner.service" in report.lost_detail
    # With lingering it is out of that service's reach.
    machine.run("root", "loginctl enable-linger alice")
    until(lambda: alice.call("survey", question={"cards": False})["reading"]["survival"]["mode"] == "B")
    other = alice.start_work("other")
    assert "/user@1000.service/aicrun.slice/" in alice.group(alice.keeper(other))
    machine.run("root", "systemctl stop ci-runner")
    alice.close()
    machine.run("root", "systemctl reset-failed ci-runner")
    assert alice.report(other).supervised


def test_a_keeper_killed_in_its_unit_leaves_the_run_alive(machine: Machine, account: Accounts) -> None:
    root = account("root")
    job_id = root.start_work("long")
    pid = root.running(job_id)
    machine.run("root", f"kill -9 {root.keeper(job_id)}")
    until(lambda: not root.report(job_id).supervised)
    assert machine.run("root", f"sleep 2; systemctl is-failed aicrun-{job_id}").stdout.strip() == "failed"
    assert root.lives(pid)
    # What systemd thinks of a unit decides nothing.
    machine.run("root", "systemctl reset-failed; systemctl daemon-reload")
    assert root.lives(pid)
    standing = root.standing(job_id)
    assert (standing.status, standing.phase) == (Status.IN_PROGRESS, "training")
    machine.run("root", f"kill -9 {pid}; pkill -9 -P {pid}")
    assert until_unknown(root, job_id).lost == "supervisor_lost"


def test_a_unit_killed_whole_is_unknown_and_its_manager_is_asked(machine: Machine, account: Accounts) -> None:
    """As a daemon that watches for memory does it."""
    root = account("root")
    job_id = root.start_work("long")
    pid = root.running(job_id)
    machine.run("root", f"echo 1 > /sys/fs/cgroup/aicrun.slice/aicrun-{job_id}.service/cgroup.kill")
    until(lambda: not root.lives(pid))
    report = until_unknown(root, job_id)
    assert report.lost == "supervisor_lost"
    assert f"its unit aicrun-{job_id}.service ended with signal" in report.lost_detail
    root.call("gc", older_than_s=0)
    assert "could not be found" in machine.run("root", f"systemctl status aicrun-{job_id}").stderr


@pytest.mark.parametrize("terminal", ((), ("-tt",)), ids=("plain", "terminal"))
@pytest.mark.parametrize("name", ("root", "alice"))
def test_a_call_that_starts_a_run_returns(
    machine: Machine, account: Accounts, name: str, terminal: tuple[str, ...]
) -> None:
    """The input is a file that ends, and nothing of the login stays open; also where somebody forces a terminal."""
    machine.run("root", NO_POLKIT)
    one = account(name)
    request = one.request("long", WORK, workspace=one.env["HOME"] + "/runs/long")
    asked = io.BytesIO()
    calls.write_request(asked, "hello", {"marker": "0" * 32, "protocol": [1, 1], "digest": ""})
    calls.write_request(asked, "reserve", {"request": to_json(request), "confirm": True})
    (one.home / "asked").write_bytes(asked.getvalue())
    command = f"{shlex.join(one.remote({}))} < asked > answered; echo done"
    words = one.machine.ssh(name, command)
    began = time.monotonic()
    done = subprocess.run((words[0], *terminal, *words[1:]), stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    assert time.monotonic() - began < 20
    assert done.stdout.split() == [b"done"]
    pid = one.running(request.job_id)
    one.logout()
    assert one.lives(pid)
    assert one.standing(request.job_id).status is Status.IN_PROGRESS


def test_a_stop_works_as_everywhere_also_when_the_keeper_is_gone(machine: Machine, account: Accounts) -> None:
    root = account("root")
    kept, orphan = root.start_work("kept"), root.start_work("orphan")
    machine.run("root", f"kill -9 {root.keeper(orphan)}")
    until(lambda: not root.report(orphan).supervised)
    for job_id in (kept, orphan):
        root.call("stop", job_id=job_id, by="ana")
    root.ended(kept)
    root.ended(orphan)
    assert root.standing(kept).status is Status.STOPPED
    assert root.standing(orphan).status is Status.UNKNOWN
    assert not any(root.lives(root.running(job_id)) for job_id in (kept, orphan))
    until(
        lambda: "loaded" not in machine.run("root", f"systemctl show -p LoadState --value aicrun-{kept}").stdout.split()
    )


def test_stopping_the_unit_stops_the_run(machine: Machine, account: Accounts) -> None:
    root = account("root")
    job_id = root.start_work("long", "trap 'echo saved > saved; exit 3' TERM; touch ready; while :; do sleep 0.1; done")
    until((root.home / "runs/long/ready").exists)
    assert machine.run("root", f"systemctl stop aicrun-{job_id}").returncode == 0
    report = root.ended(job_id)
    assert root.standing(job_id).status is Status.STOPPED
    assert report.stop is not None and report.stop.by == "systemctl stop"
    assert (root.home / "runs/long/saved").read_text() == "saved\n"
    command = report.steps[1].exit
    assert command is not None and (command.code, command.stop_sent) == (3, True)


def test_a_signal_of_a_person_ends_no_keeper(machine: Machine, account: Accounts) -> None:
    root = account("root")
    job_id = root.start_work("long")
    machine.run("root", f"kill -TERM {root.keeper(job_id)}; sleep 1.5")
    assert root.report(job_id).supervised
    assert root.standing(job_id).status is Status.IN_PROGRESS


@pytest.mark.parametrize("name", ["root", "alice"])
def test_in_its_unit_a_command_has_a_group_by_which_what_hides_is_ended(
    machine: Machine, account: Accounts, name: str
) -> None:
    one = account(name)
    job_id = one.start_work("hiding", "(env -i setsid sleep 777 &); " + WORK)
    group = one.group(one.running(job_id))
    assert group.endswith(f"/aicrun-{job_id}.service/aicrun-{job_id}-1")
    assert f"/aicrun-{job_id}.service" in one.group(one.keeper(job_id))
    assert f"/aicrun-{job_id}-1" not in one.group(one.keeper(job_id))
    hides = "pgrep -xf 'sleep 777'"
    assert machine.run("root", hides).returncode == 0
    machine.run("root", f"kill -9 {one.keeper(job_id)}")
    until(lambda: not one.report(job_id).supervised)
    one.call("stop", job_id=job_id, by="ana", grace_s=1)
    one.ended(job_id)
    assert one.standing(job_id).status is Status.UNKNOWN
    assert machine.run("root", hides).returncode == 1
    until(lambda: machine.run("root", f"ls -d /sys/fs/cgroup{group}").returncode != 0)
