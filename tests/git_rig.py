"""A repository of somebody else for tests: real git, one identity, no configuration of whoever runs them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


class Repository:
    """A repository at `folder` with a branch `main`; `url` is how a host on this machine names it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.url = f"file://{folder}"
        self("init", "-q", "-b", "main")

    def __call__(self, *args: str) -> str:
        """What `git ARGS` prints there; fails the test when it fails."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder.parent), "GIT_CONFIG_NOSYSTEM": "1"}
        settings = ("user.name=ana", "user.email=ana@example.org", "protocol.file.allow=always", "commit.gpgsign=false")
        words = [part for item in settings for part in ("-c", item)]
        done = subprocess.run(["git", *words, *args], cwd=self.folder, env=env, check=True, capture_output=True)
        return done.stdout.decode().strip()

    def commit(self, **files: str) -> str:
        """A commit that writes `files` (`__` is a slash, `_DOT_` a dot); its id."""
        for name, text in files.items():
            path = self.folder / name.replace("__", "/").replace("_DOT_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self("add", "-A")
        self("commit", "-q", "--allow-empty", "-m", "more")
        return self("rev-parse", "HEAD")
