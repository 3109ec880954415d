"""An account of a machine with a systemd of its own, and the real agent in a real login of it, over ssh.

Closing the connection is the logout. Files of the account are read from outside, by the names that are frozen.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from agent_rig import Link, Rig
from support import until
from systemd.machines import Machine

AGENT = "/opt/aicrun-agent"
WORK = "echo $$ > pid; i=0; while [ $i -lt 6000 ]; do i=$((i+1)); sleep 0.1; done"


class Account(Rig):
    """A rig whose host is a machine with a systemd; `name` is root or alice.

    `become` are words by which root becomes the account without a login of its own.
    """

    def __init__(self, machine: Machine, name: str, become: str = "") -> None:
        self.machine, self.name, self.become = machine, name, become
        self.python = "/usr/bin/python3"
        home = "/root" if name == "root" else f"/home/{name}"
        self.home = machine.root / home[1:]
        self.agent = machine.root / AGENT[1:]
        self.env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": home}
        self.mark = ""
        self._link: Link | None = None
        if not self.agent.exists():
            self._unpack()
            machine.run("root", f"chmod -R a+rX {AGENT}")

    def remote(self, env: dict[str, str]) -> list[str]:
        """The words that start the agent once one is logged in."""
        words = [f"{key}={value}" for key, value in {**self.env, **env}.items()]
        return ["env", *words, self.python, "-I", "-S", f"{AGENT}/boot.py", "serve"]

    def serving(self, env: dict[str, str]) -> list[str]:
        command = shlex.join(self.remote(env))
        return list(self.machine.ssh("root" if self.become else self.name, f"{self.become} {command}".lstrip()))

    def start_work(self, run: str, command: str = WORK, **fields: Any) -> str:
        """A run that goes on for minutes, once its command runs."""
        folder = Path(self.env["HOME"]) / "runs" / run
        (self.machine.root / str(folder)[1:]).mkdir(parents=True, exist_ok=True)
        self.machine.run("root", f"chown {self.name}: {folder.parent} {folder}")
        job_id = self.start(run, command, workspace=str(folder), **fields)
        self.running(job_id)
        return job_id

    def logout(self) -> None:
        """End the login, and wait until nothing of it is left but what it started."""
        if self._link is not None:
            self._link.close()
            self._link = None
        # A session with something left in it stays listed as closing, so the login's own processes are looked for.
        gone = f"! pgrep -f '[s]shd: {self.name}'"
        until(lambda: self.machine.run("root" if self.name != "root" else "alice", gone).returncode == 0, 30, 0.2)

    def group(self, pid: int) -> str:
        """The control group of a process of the machine, by the pid that the machine knows."""
        said = self.machine.run("root", f"cat /proc/{pid}/cgroup").stdout
        return said.rstrip("\n").rpartition("::")[2]

    def environment(self, pid: int) -> list[str]:
        """What that process of the machine was started with, `NAME=value` each."""
        return self.machine.run("root", f"cat /proc/{pid}/environ").stdout.rstrip("\0").split("\0")

    def lives(self, pid: int) -> bool:
        """Whether that process of the machine lives."""
        return self.machine.run("root", f"kill -0 {pid}").returncode == 0

    def close(self) -> None:
        """End the connection; what runs there goes with the machine."""
        if self._link is not None:
            self._link.close()
            self._link = None
