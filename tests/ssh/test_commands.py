"""The commands a person types, on a machine that only ssh reaches, over each carrier."""

from __future__ import annotations

import json
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from integration.project import Project
from ssh_rig import Sshd
from ssh_ways import CERTIFICATE, OPENSSH, Host
from support import Person, processes_with, until

from aicrun.hosts.ssh_route import VARIABLE


@dataclass
class Far:
    """A person with a project, and a machine `box` whose home is another one."""

    project: Project
    host: Host

    @property
    def home(self) -> Path:
        """Of the account there."""
        return self.host.home

    @property
    def daemon(self) -> Sshd:
        """What listens there."""
        return self.host.daemon


@pytest.fixture
def far(host: Host, tmp_path: Path) -> Far:
    client = tmp_path / "client"
    client.mkdir(mode=0o700)
    project = Project(Person(client))
    (project.folder / "machines.yaml").write_text("version: 1\nmachines:\n  - {name: box, ssh: box}\n")
    project.person.env[VARIABLE] = str(host.config)
    return Far(project, host)


def test_a_run_from_the_plan_to_its_checkpoint(far: Far) -> None:
    far.project.write()
    plan = far.project.run("plan")
    assert (plan.returncode, "Plan: 1 to start" in plan.stdout) == (0, True), plan.stdout + plan.stderr
    applied = far.project.run("apply", "--follow", "--yes")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert "step 2/2 loss=0.4" in applied.stderr
    assert (next((far.home / "kept").iterdir()) / "model.bin").read_text() == "weights"
    assert not (far.project.person.home / "kept").exists()
    assert "step 1/2" in far.project.run("logs", "quick").stdout
    assert "succeeded" in far.project.run("list").stdout
    address = f"{far.daemon.user}@127.0.0.1:{far.daemon.port}"
    assert f'reached:\n  address: "{address}"\n  by: ' in far.project.run("inspect", "quick").stdout
    assert far.project.run("apply", "--yes").returncode == 0
    assert len((far.home / "starts").read_text().split()) == 1


def test_a_run_outlives_the_connection_and_is_stopped_later(far: Far) -> None:
    far.project.write(command="python3 work.py 900")
    following = far.project.popen("apply", "--follow", "--yes")
    until(lambda: (far.home / "starts").exists(), 90)
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=90)
    assert following.returncode == 130
    far.daemon.close()
    gone = far.project.run("list")
    assert gone.returncode == 6, gone.stdout + gone.stderr
    far.daemon.start()
    shown = far.project.run("list")
    assert "in progress" in shown.stdout, shown.stdout + shown.stderr
    assert far.project.run("stop", "quick", "--yes").returncode == 0
    assert far.project.run("wait", "quick").returncode == 11


def test_doctor_names_the_carrier(far: Far) -> None:
    done = far.project.run("doctor", "box")
    assert f"by {'OpenSSH' if far.host.way.carrier == OPENSSH else 'fabric'}" in done.stdout, done.stdout + done.stderr


def test_where_a_machine_is_and_which_key_it_showed(far: Far) -> None:
    daemon, way = far.daemon, far.host.way
    line = subprocess.run(
        ["ssh-keygen", "-lf", f"{daemon.host_key}.pub"], capture_output=True, text=True, check=True
    ).stdout
    key, address = line.split()[1], f"{daemon.user}@127.0.0.1:{daemon.port}"
    told = json.loads(far.project.run("machines", "check", "box", "--json").stdout)
    reached = told["machines"][0]["reached"]
    assert (reached["carrier"].lower(), reached["port"]) == (way.carrier, daemon.port), reached
    # Which authority vouched is known of a certificate, and only the one look of doctor's asks for the key itself.
    assert reached["host_keys"] == ([] if way.trust == CERTIFICATE else [f"ED25519 {key}"]), reached
    far.project.write()
    for args in (("machines", "check", "box"), ("plan", "-v"), ("doctor", "box")):
        shown = far.project.run(*args).stdout
        assert key in shown or (way.trust == CERTIFICATE and args[0] != "doctor"), shown
        assert address in shown, shown
        assert told["inventory_digest"][:8] in shown, shown
    assert "unique over the 1 machine and accounts of this list" in far.project.run("doctor", "box").stdout
    saved = json.loads(far.project.run("plan", "--json").stdout)["fleet"]
    assert saved["machines"][0]["reached"] == reached
    assert saved["inventory_digest"] == told["inventory_digest"]


def test_a_short_command_and_its_exit_code(far: Far) -> None:
    done = far.project.run("exec", "box", "--", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")
    words = far.project.run("exec", "box", "--", "printf", "%s|", "a b", "$HOME", "*")
    assert words.stdout == "a b|$HOME|*|"
    assert far.project.run("exec", "box", "--stdin", "--", "wc -c", stdin="12345").stdout.strip() == "5"
    assert str(far.home) in far.project.run("exec", "box", "--", "pwd").stdout
    told = json.loads(far.project.run("exec", "--json", "box", "--", "kill -9 $$").stdout)
    assert (told["ended"], told["code"], told["signal"]) == (True, None, 9)


def test_a_short_command_is_ended_with_its_time_and_its_tree(far: Far) -> None:
    done = far.project.run("exec", "box", "--timeout", "2s", "--", "echo begun; (sleep 73 &); sleep 74 & sleep 75")
    assert (done.returncode, done.stdout) == (255, "begun\n")
    assert "Its time was over" in done.stderr
    until(lambda: not [pid for pid in processes_with(f"HOME={far.home}\0") if b"sleep" in cmdline(pid)])


def test_a_short_command_is_ended_with_its_connection(far: Far) -> None:
    going = far.project.popen("exec", "box", "--", "echo begun; sleep 76")
    assert going.stdout is not None
    assert going.stdout.readline() == "begun\n"
    far.daemon.close()
    _, err = going.communicate(timeout=90)
    assert going.returncode == 255
    assert "how the command ended is not known" in err
    until(lambda: not [pid for pid in processes_with(f"HOME={far.home}\0") if b"sleep" in cmdline(pid)])


def test_training_is_not_done_by_exec(far: Far) -> None:
    for words in (["torchrun --standalone t.py"], ["python3", "train.py"], ["nohup sleep 1"], ["sleep 1 &"]):
        done = far.project.run("exec", "box", "--", *words)
        assert (done.returncode, "AIC-E018" in done.stderr) == (3, True), done.stderr


def test_a_shell_where_the_run_works(far: Far) -> None:
    far.project.write(command="python3 work.py 900", more="env: {LR: 1e-4}\n")
    assert far.project.run("apply", "--yes").returncode == 0
    until(lambda: (far.home / "starts").exists(), 90)
    job = (far.home / "starts").read_text().split()[0]
    typed = 'pwd; echo "$LR $AICRUN_RUN_NAME [$AICRUN_JOB_ID]"; exit 5\n'
    for name in ("ssh", "debug-ssh"):
        done = far.project.run(name, "quick", stdin=typed)
        assert done.returncode == 5, done.stderr
        assert done.stdout.splitlines()[-2:] == [str(far.home / f"aic-jobs/quick/jobs/{job}"), "1e-4 quick []"]
    far.project.run("stop", "quick", "--yes", "--grace", "0s")


@pytest.mark.parametrize("way", [OPENSSH], indirect=True)
def test_nothing_is_left_in_tmp(far: Far) -> None:
    """A socket and a configuration lie there while a command runs; a killed one's are taken away by the next."""
    shared = far.project.person.env[VARIABLE]

    def left() -> list[str]:
        """The folders whose configuration is this test's."""
        return [str(path) for path in Path("/tmp").glob("aicrun-ssh-*/config") if shared in text(path)]

    assert far.project.run("exec", "box", "--", "true").returncode == 0
    assert left() == []
    going = far.project.popen("exec", "box", "--", "echo begun; sleep 77")
    assert going.stdout is not None
    assert going.stdout.readline() == "begun\n"
    assert len(left()) == 1
    going.kill()
    going.communicate()
    assert len(left()) == 1
    assert far.project.run("exec", "box", "--", "true").returncode == 0
    assert left() == []


def text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return b""
