"""A person's project: a folder with a run.yaml and a program, and the commands they type there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from support import REPOSITORY, Person, processes_with, until

WORK = """\
import os, sys, time
out = os.environ["AICRUN_CHECKPOINT_DIR"]
seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
code = int(sys.argv[2]) if len(sys.argv) > 2 else 0
with open(os.path.join(os.environ["HOME"], "starts"), "a") as stream:
    stream.write(os.environ["AICRUN_JOB_ID"] + chr(10))
print("step 1/2 loss=0.9", flush=True)
end = time.monotonic() + seconds
while time.monotonic() < end:
    time.sleep(0.05)
with open(os.path.join(out, "model.bin"), "w") as stream:
    stream.write("weights")
print("step 2/2 loss=0.4", flush=True)
sys.exit(code)
"""


class Project:
    """A folder of somebody, with a spec without cards."""

    def __init__(self, person: Person) -> None:
        self.person = person
        self.folder = person.home / "project"
        self.folder.mkdir()
        (self.folder / "work.py").write_text(WORK)

    def write(
        self, command: str = "python3 work.py", name: str = "quick", more: str = "", file: str = "run.yaml"
    ) -> Path:
        """Write the spec, by default one that ends at once and uploads into the home."""
        path = self.folder / file
        upload = "" if "checkpoints:" in more else "checkpoints: {upload: {to: 'file:~/kept/'}}\n"
        path.write_text(f"version: 1\nname: {name}\nsource: {{path: .}}\ncommand: {command}\n{upload}{more}")
        return path

    def run(self, *args: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """`aicrun ARGS` in the folder, to its end."""
        done: subprocess.CompletedProcess[str] = self.person.run(*args, cwd=self.folder, **more)
        return done

    def popen(self, *args: str) -> subprocess.Popen[str]:
        """`aicrun ARGS` in the folder, going on."""
        return subprocess.Popen(
            [sys.executable, "-m", "aicrun", *args],
            cwd=self.folder,
            env=dict(self.person.env, PYTHONPATH=str(REPOSITORY)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def apply(self, *more: str) -> subprocess.CompletedProcess[str]:
        """Apply the spec, saying yes."""
        return self.run("apply", "run.yaml", "--yes", *more)

    def json(self, *args: str) -> Any:
        """The one document of a command with --json."""
        done = self.run(*args, "--json")
        return json.loads(done.stdout)

    def starts(self) -> list[str]:
        """The job ids of every command that was ever started, in order."""
        path = self.person.home / "starts"
        return path.read_text().split() if path.exists() else []

    def job(self, run: str = "quick") -> Any:
        """What `inspect --json` says."""
        return self.json("inspect", run)

    def running(self, run: str = "quick") -> Any:
        """The job once its command runs."""
        until(lambda: self.starts())
        return until(lambda: (job := self.job(run)) and job["status"] == "in progress" and job)

    def kill(self, *words: str, how: int = signal.SIGKILL) -> list[int]:
        """End processes of this person whose command line holds all `words`; their pids."""
        ended = []
        # A job's environment is its own: it knows its home, not the mark of the client's shell.
        for pid in processes_with(f"HOME={self.person.home}"):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if all(word in line for word in words):
                os.kill(pid, how)
                ended.append(pid)
        return ended
