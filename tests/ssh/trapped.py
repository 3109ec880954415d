"""A machine `box` behind a relay, with a trap at every place of the agent's protocol, and a person who uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from integration.project import Project
from ssh.relay import Relay
from ssh.trap import AGENT, GATEKEEPER, SILENCE_S, Snare, Trap
from ssh_rig import Sshd
from support import Person, end_processes_with, processes_with, until

from aicrun.hosts.ssh_route import VARIABLE

# Nobody waits for more than this, in seconds: patience for a start (30), one connection (10), and a slow machine.
BOUND_S = 180
# Whether all that was said is shown, to be read by a person.
TOLD = bool(os.environ.get("AICRUN_POINTS_TOLD"))
# A command that notes that it began, and lives until it is ended.
LIVES = "sh -c 'echo $AICRUN_RUN_NAME $AICRUN_JOB_ID >> $HOME/starts; exec sleep 90000'"
ALONE = "version: 1\nmachines:\n  - {name: box, ssh: box}\n"
# With another machine in the inventory a start looks there too, and is confirmed by a call of its own.
BESIDE = ALONE + "  - {name: here, local: true}\n"


class Trapped:
    """One daemon whose every connection passes the relay; `home` is its sessions' home."""

    def __init__(self, folder: Path, carrier: str) -> None:
        self.carrier = carrier
        self.home = folder / "home"
        client = folder / "client"
        for path in (self.home, client):
            path.mkdir(mode=0o700)
        self.relay = Relay(0)
        self.trap = Trap(self.relay)
        force = f"ForceCommand {sys.executable} -I -S {GATEKEEPER} {self.trap.port}"
        self.daemon = Sshd(folder / "sshd", options=force, env={"HOME": str(self.home), "PATH": "/usr/bin:/bin"})
        self.relay.to = self.daemon.port
        self.person = Person(client)
        self.project = Project(self.person)
        self._write_client(carrier)
        self.daemon.start()

    def _write_client(self, carrier: str) -> None:
        # Silence is noticed soon, so that a case takes seconds; not so soon that a busy machine seems to be gone.
        extra = f"ServerAliveInterval 1\nServerAliveCountMax {SILENCE_S}\nConnectTimeout {SILENCE_S}"
        extra += f"\nHostKeyAlias [127.0.0.1]:{self.relay.port}" if carrier == "openssh" else ""
        config = self.daemon.write_client(extra=extra)
        config.write_text(config.read_text().replace(f"Port {self.daemon.port}", f"Port {self.relay.port}"))
        known = self.daemon.folder / "known_hosts"
        known.write_text(known.read_text().replace(f":{self.daemon.port}", f":{self.relay.port}"))
        self.person.env[VARIABLE] = str(config)
        self.inventory(BESIDE)

    def inventory(self, text: str) -> None:
        """Write the person's machines.yaml."""
        (self.project.folder / "machines.yaml").write_text(text)

    def write(self, name: str, command: str = LIVES, more: str = "") -> None:
        """Write a spec whose source was never sent before."""
        (self.project.folder / "fresh").write_text(name)
        self.project.write(command=command, name=name, more="machine: {name: box}\n" + more)

    def starts(self, run: str) -> list[str]:
        """The job of each command of `run` that was ever started, in order."""
        path = self.home / "starts"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.split()[1] for line in lines if line.split()[0] == run]

    def running(self) -> dict[str, list[str]]:
        """The jobs of each run that the person is told of as in progress."""
        found: dict[str, list[str]] = {}
        for row in json.loads(self.project.run("list", "--all", "--json").stdout)["jobs"]:
            if row["status"] == "in progress":
                found.setdefault(row["run"], []).append(row["job_id"])
        return found

    def agents(self) -> list[int]:
        """The agents that live on the machine, and what stands between them and their clients."""
        return [pid for pid in processes_with(f"HOME={self.home}\0") if self._is_of_call(pid)]

    def _is_of_call(self, pid: int) -> bool:
        words = cmdline(pid)
        return AGENT in words or GATEKEEPER.name in words

    def failing(self, snare: Snare, *words: str) -> subprocess.CompletedProcess[str]:
        """A command into whose way the snare is laid; once it ended, and what was late has come, the network is whole.

        Whatever it met, it says what happened, where, and what to type next; its code is none that blames us.
        """
        self.trap.set(snare)
        began = time.monotonic()
        done = self.project.run(*words, timeout_s=BOUND_S)
        took = time.monotonic() - began
        sprung, met = self.trap.sprung, list(self.trap.met)
        self.trap.set(None)
        self.heal()
        print(f"CASE {self.carrier} {words[0]} {snare}: exit {done.returncode} in {took:.1f} s")
        if TOLD:
            print(said(done))
        assert sprung, f"{snare} was not come to: {met}\n{said(done)}"
        assert "Traceback" not in done.stderr, said(done)
        assert done.returncode != 1, said(done)
        if done.returncode:
            assert all(word in done.stderr + done.stdout for word in ("box", "aicrun ")), said(done)
        return done

    def heal(self) -> None:
        """Let everything pass, wait for what is late, and until no agent is left."""
        self.relay.heal()
        until(lambda: not self.agents(), 60)

    def forget_agent(self) -> None:
        """Take the agent's files off the machine, so that the next call brings them again."""
        for path in self.home.glob(".local/state/aicrun/*/agents/*"):
            path.rename(path.with_name(f"old-{time.monotonic_ns()}"))

    def end(self, jobs: list[str]) -> None:
        """Kill what runs of these jobs."""
        for job in jobs:
            end_processes_with(f"AICRUN_JOB_ID={job}\0")

    def close(self) -> None:
        """End everything."""
        self.relay.close()
        self.trap.close()
        self.daemon.close()
        for mark in (f"HOME={self.home}\0", self.person.mark):
            end_processes_with(mark)


def cmdline(pid: int) -> str:
    """The command line of a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def said(done: Any) -> str:
    """What a command ended with, for whoever reads a failure."""
    return f"exit {done.returncode}\n{done.stdout}{done.stderr}"
