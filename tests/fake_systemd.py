"""A host that believes in a systemd whose tools a test writes; what they start is real. No product code imports it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from agent_rig import Rig, command_line
from support import processes_with, until

from aicrun.wire.launched import Launched
from aicrun.wire.status import Status

# What the manager does with the words behind `--`: a process of its own, nobody's child.
RUNS = 'while [ "$1" != -- ]; do shift; done; shift; setsid "$@" </dev/null >/dev/null 2>&1 &'
HANGS = "sleep 1000"


def tells(state: str) -> str:
    """What `systemctl` does: its version, and by `state` how its manager is."""
    return f"case \"$*\" in *is-system-running*) {state};; *) echo 'systemd 252 (252.38-1~deb12u1)';; esac"


class Host:
    """A rig that believes in a systemd, whose tools are what a test writes."""

    def __init__(self, folder: Path) -> None:
        self.rig = Rig(folder)
        self._managers: list[subprocess.Popen[bytes]] = []
        self.tools = folder / "tools"
        self.tools.mkdir()
        self.calls = folder / "calls"
        self.linger = folder / "linger"
        self.linger.mkdir()
        self.runtime = folder / "run"
        (self.runtime / "systemd").mkdir(parents=True)
        self.rig.env |= {
            "PATH": f"{self.tools}:{self.rig.env['PATH']}",
            "AICRUN_TEST_SYSTEMD": "1",
            "AICRUN_TEST_TOOL_S": "1",
            "AICRUN_TEST_TAKEN_S": "1",
            "AICRUN_TEST_LINGER": str(self.linger),
            "AICRUN_TEST_OWN_HOME": str(self.rig.home),
            "AICRUN_TEST_RUNTIME_DIR": str(self.runtime),
            "AICRUN_TEST_CGROUP": "/user.slice/user-4711.slice/session-3.scope",
        }
        self.tool("systemctl", tells("echo running"))
        self.tool("systemd-run", RUNS)
        self.tool("loginctl", "exit 0")
        self.tool("busctl", "printf 'b false\\nas 0\\nas 1 \"root\"\\n'")

    def tool(self, name: str, body: str) -> None:
        path = self.tools / name
        path.write_text(f'#!/bin/sh\necho "$(basename "$0") $*" >> {self.calls}\n{body}\n')
        path.chmod(0o755)

    def start(self) -> str:
        """A run that writes one line each time its command begins, and stays."""
        return self.rig.start("once", f"echo began >> {self.rig.home}/began; exec sleep 1000")

    def launched(self, job_id: str) -> Launched:
        found = self.rig.report(job_id).launched
        assert found is not None
        return found

    def check_once(self, job_id: str) -> None:
        """One keeper, one command, and nothing left that could become another."""
        self.rig.running(job_id)
        until((self.rig.home / "began").exists)
        assert self.rig.standing(job_id).status is Status.IN_PROGRESS
        assert self.keepers(job_id) == [self.rig.keeper(job_id)]
        assert (self.rig.home / "began").read_text() == "began\n"
        assert not list(self.rig.folder(job_id).glob("order.json*"))

    def dismiss(self, job_id: str) -> None:
        """SIGTERM to the job's keeper from a process that has the service manager's name."""
        manager = self.tools / "systemd"
        if not manager.exists():
            shutil.copy("/bin/sh", manager)
        words = (manager, "-c", f"kill -TERM {self.rig.keeper(job_id)}; sleep 60")
        self._managers.append(subprocess.Popen(words, env=self.rig.env))

    def close(self) -> None:
        """End everything that this host has started."""
        self.rig.close()
        for manager in self._managers:
            manager.wait(10)

    def keepers(self, job_id: str) -> list[int]:
        """Living processes that keep this job or are about to; pumps are forks of theirs."""
        found = {}
        for pid in processes_with(self.rig.mark):
            words = command_line(pid)
            if {b"keeper", b"unit"} & set(words) and job_id.encode() in words[-2] and b"python" in words[0]:
                found[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return [pid for pid, parent in found.items() if parent not in found]
