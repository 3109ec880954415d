"""Root works in somebody's folder, as on a machine of one's own where a container runs: whose home, whose files."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from integration.project import Project


@pytest.mark.skipif(os.getuid() != 0, reason="only root acts for others")
def test_a_run_of_root_in_somebodys_workspace_has_their_home_and_leaves_them_their_files(
    project: Project, tmp_path: Path
) -> None:
    somebody = pwd.getpwnam("daemon")
    work = tmp_path / "theirs"
    work.mkdir()
    os.chown(work, somebody.pw_uid, somebody.pw_gid)
    more = f"workspace: {work}\ncheckpoints: {{path: out}}\n"
    project.write("sh -c 'echo home $HOME; echo made > here; echo saved > out/x'", more=more)
    planned = project.run("plan")
    assert f"root, in a workspace of daemon: HOME is {somebody.pw_dir};" in " ".join(planned.stdout.split())
    done = project.apply("--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    assert project.run("logs", "quick").stdout == f"home {somebody.pw_dir}\n"
    owners = {path.name: path.lstat().st_uid for path in work.rglob("*")}
    assert {name: owners[name] for name in ("jobs", "checkpoints", "work.py", "out")} == dict.fromkeys(
        ("jobs", "checkpoints", "work.py", "out"), somebody.pw_uid
    )
    assert (owners["here"], owners["x"]) == (0, 0)
    assert not (Path(somebody.pw_dir) / ".cache/uv").exists()
