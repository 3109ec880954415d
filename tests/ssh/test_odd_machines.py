"""Machines that are odd below the shell: nothing may be executed, tools are missing, the clock is another one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.project import Project
from ssh.test_faults import fault, words
from ssh_rig import SSHD, Sshd, below
from support import Person, end_processes_with, until

from aicrun.hosts.carriers import SshTransport
from aicrun.hosts.ssh_route import VARIABLE, Target

CLOCK = Path(__file__).parent.parent / "odd_host/clock.c"
NO_EXEC = "".join(
    f"mount --bind {path} {path} && mount -o remount,bind,noexec {path} && "
    for path in ("/tmp", "/var/tmp", "/dev/shm")
)
GONE = "flock setsid timeout nohup stat date readlink realpath nproc id hostname systemd-run loginctl curl tar"
PYENV = Path.home() / ".pyenv/versions"


def _without(upper: Path, files: str, then: str = "true") -> str:
    """Shell words that take `files` out of /usr/bin in this view of the disk."""
    return (
        f"mount -t tmpfs none {upper} && mkdir {upper}/u {upper}/w && "
        f"mount -t overlay none -o lowerdir=/usr/bin,upperdir={upper}/u,workdir={upper}/w /usr/bin && "
        f"(cd /usr/bin && rm -f {files} && {then}) && "
    )


class Odd:
    """A person with a project, and a machine `box` that can be made odd before it is started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(mode=0o700)
        self.upper = folder / "upper"
        self.upper.mkdir()
        client = folder / "client"
        client.mkdir(mode=0o700)
        self.person = Person(client)
        self.project = Project(self.person)
        (self.project.folder / "machines.yaml").write_text("version: 1\nmachines:\n  - {name: box, ssh: box}\n")
        self._daemon: Sshd | None = None

    def start(self, first: str = "", env: dict[str, str] | None = None, extra: str = "") -> None:
        """Start it, known to the client with `extra`, behind the shell words `first` in a view of the disk of its own.

        Skips where there can be no such view.
        """
        tried = ["unshare", "-m", "sh", "-c", f"{first} true"]
        if first and subprocess.run(tried, capture_output=True, check=False).returncode:
            pytest.skip("nothing can be mounted here: a root of this machine's own is needed")
        env = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", **(env or {})}
        self._daemon = Sshd(self.folder / "sshd", env=env)
        self.person.env[VARIABLE] = str(self._daemon.write_client(extra=extra))
        argv = ["unshare", "-m", "sh", "-c", f"{first} exec {SSHD} -D -e -f {self._daemon.config}"] if first else None
        self._daemon.start(argv)

    def freeze(self) -> int:
        """Let every connection that stands go quiet, as one whose packets are dropped; how many there were.

        What they started goes on, and the machine takes new ones.
        """
        assert self._daemon is not None and self._daemon.process is not None
        sessions = [pid for pid in below(self._daemon.process.pid) if _is_sshd(pid)]
        for pid in sessions:
            os.kill(pid, signal.SIGSTOP)
        return len(sessions)

    def close(self) -> None:
        """End it and what runs on it."""
        if self._daemon is not None:
            self._daemon.close()
        end_processes_with(f"HOME={self.home}\0")


def _is_sshd(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("sshd")
    except OSError:
        return False


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[Odd]:
    found = Odd(tmp_path)
    yield found
    found.close()


def test_where_nothing_may_be_executed_and_tools_are_missing_a_run_goes_its_way(odd: Odd) -> None:
    """No flock, no setsid, no timeout, no systemd; home and temporary folders without the right to execute."""
    odd.start(NO_EXEC + _without(odd.upper, GONE))
    odd.project.write(command="sh -c '! command -v flock && chmod +x work.py && ! ./work.py && python3 work.py'")
    applied = odd.project.run("apply", "--follow", "--yes")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert (next((odd.home / "kept").iterdir()) / "model.bin").read_text() == "weights"
    told = odd.project.run("exec", "box", "--", "command -v timeout; echo $?")
    assert told.stdout == "1\n", told.stdout + told.stderr
    doctor = odd.project.run("doctor", "box")
    assert "Traceback" not in doctor.stdout + doctor.stderr


def test_an_old_python_with_an_older_one_beside_it_is_told(odd: Odd, monkeypatch: pytest.MonkeyPatch) -> None:
    old = [next(PYENV.glob(f"{version}.*/bin/python{version}"), None) for version in ("3.6", "2.7")]
    if None in old:
        pytest.skip("no Python 3.6 and 2.7 here")
    odd.start(_without(odd.upper, "python3 python3.*", f"ln -s {old[0]} python3 && ln -s {old[1]} python"))
    monkeypatch.setenv(VARIABLE, odd.person.env[VARIABLE])
    error = fault(SshTransport("box", Target("box")))
    assert (error.code, "is 3.6." in error.message, "3.8 or newer" in words(error)) == ("AIC-E510", True, True)
    assert list(odd.home.iterdir()) == []


@pytest.fixture
def clock(odd: Odd) -> Path:
    """The file with the seconds that the machine's wall clock is ahead; the machine runs."""
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler for another clock")
    library, ahead = odd.folder / "clock.so", odd.folder / "ahead"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, "-o", str(library), str(CLOCK), "-ldl"], check=True)
    ahead.write_text("0")
    odd.start(env={"LD_PRELOAD": str(library), "AICRUN_TEST_CLOCK": str(ahead)})
    return ahead


def test_a_clock_that_is_wrong_and_jumps_ends_nothing_and_makes_nothing_old(odd: Odd, clock: Path) -> None:
    clock.write_text("600")
    told = odd.project.run("doctor", "box")
    assert "ahead of this client" in told.stdout + told.stderr, told.stdout + told.stderr
    odd.project.write(command="python3 work.py 600", more="limits: {max_duration: 2h, stall: 1h}\n")
    assert odd.project.run("apply", "--yes").returncode == 0
    until(lambda: (odd.home / "starts").exists(), 40)
    for jump in ("-7200", "1000000"):
        clock.write_text(jump)
        listed = odd.project.run("list")
        assert (listed.returncode, "in progress" in listed.stdout) == (0, True), listed.stdout + listed.stderr
        assert ("no output" in listed.stdout, "11d" in listed.stdout) == (False, False), listed.stdout
    assert odd.project.run("stop", "quick", "--yes", "--grace", "1s").returncode == 0
    assert odd.project.job()["status"] == "stopped"


def test_a_connection_that_is_half_open_is_given_up_and_a_follower_goes_on_where_it_was(odd: Odd) -> None:
    """Nothing says that the other side is gone; probes of the client find out, and the log has no gap."""
    odd.start(extra="ServerAliveInterval 1\nServerAliveCountMax 5\nRekeyLimit 1G")
    go_on = odd.home / "go-on"
    lines = f"for i in $(seq 500); do echo line $i; done; until test -e {go_on}; do sleep 0.1; done; echo line 501"
    odd.project.write(command=json.dumps(f"sh -c '{lines}'"))
    assert odd.project.run("apply", "--yes").returncode == 0
    following = odd.project.popen("logs", "-f", "quick", "--offset", "0")
    assert following.stdout is not None
    seen = [following.stdout.readline() for _ in range(500)]
    assert odd.freeze()
    go_on.touch()
    out, err = following.communicate(timeout=120)
    assert (following.returncode, seen + out.splitlines(True)) == (0, [f"line {i}\n" for i in range(1, 502)]), err


# What a login may have set, and no run may notice.
LOGIN = {"LC_ALL": "C", "TMPDIR": "/nonexistent", "PYTHONHOME": "/x", "PYTHONPATH": "/y", "IFS": "x", "ENV": "/bin/ls"}
HOSTILE = 'a\'b "c" $HOME ${LR} `id` * ? ! \\ ~ # & | ; < > ( ) { } % \t é 漢字 🦊 end'


def test_what_the_spec_says_reaches_one_shell_byte_for_byte(odd: Odd) -> None:
    odd.start(env={**LOGIN, "USER": "", "SHELL": "/bin/nope", "TZ": "Mars/Olympus"})
    quoted = HOSTILE.replace("'", "'\\''")
    command = f"""printf '%s\\0' "$ODD" "$LINES_" "$EMPTY" > "$HOME/said"
cat >> "$HOME/said" <<'EOF'
{HOSTILE}
EOF
printf '%s' '{quoted}' >> "$HOME/said"
: '{"x" * 60_000}'
"""
    env = {"ODD": HOSTILE, "LINES_": f"one\ntwo {HOSTILE}\n", "EMPTY": ""}
    spec = {"version": 1, "name": "quick", "command": command, "env": env}
    (odd.project.folder / "run.yaml").write_text(json.dumps(spec, ensure_ascii=False))
    applied = odd.project.run("apply", "--follow", "--yes")
    assert applied.returncode == 0, applied.stdout[-2000:] + applied.stderr[-2000:]
    wanted = f"{HOSTILE}\0{env['LINES_']}\0\0{HOSTILE}\n{HOSTILE}"
    assert (odd.home / "said").read_text() == wanted
