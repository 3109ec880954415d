"""A source that the machine fetches from a repository itself, as a person sees it: named, moved, gone, behind ssh."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from git_rig import Repository
from integration.project import Project
from ssh_rig import SSHD, Sshd
from support import processes_with, until


@pytest.fixture
def there(tmp_path: Path) -> Repository:
    found = Repository(tmp_path / "there")
    found.commit(work_DOT_py="print('one')\n")
    return found


def flat(done: subprocess.CompletedProcess[str]) -> str:
    """What a command said, however its lines were broken."""
    return " ".join((done.stdout + done.stderr).split())


def write(project: Project, url: str, revision: str = "main") -> None:
    (project.folder / "run.yaml").write_text(
        f"version: 1\nname: quick\nsource: {{git: '{url}', revision: {revision}}}\ncommand: python3 work.py\n"
    )


def test_a_branch_is_trained_at_the_commit_that_the_plan_shows_and_not_again_when_it_moves(
    project: Project, there: Repository
) -> None:
    write(project, there.url)
    first = there("rev-parse", "main")
    planned = project.run("plan", "run.yaml", "-o", "plan.json")
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert f"main at {first[:12]} of {there.url}, fetched by" in flat(planned)
    done = project.apply("--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "│ one" in done.stdout + done.stderr
    assert project.json("inspect", "quick")["job"]["source"]["commit"] == first
    there.commit(work_DOT_py="print('two')\n")
    kept = project.apply()
    assert kept.returncode == 0, kept.stdout + kept.stderr
    assert "source changed" in flat(kept)
    again = project.apply("--again", "--follow")
    assert "│ two" in again.stdout + again.stderr


def test_a_saved_plan_is_refused_when_the_branch_has_moved(project: Project, there: Repository) -> None:
    write(project, there.url)
    assert project.run("plan", "run.yaml", "-o", "plan.json").returncode == 0
    there.commit(work_DOT_py="print('two')\n")
    stale = project.run("apply", "plan.json", "--yes")
    assert stale.returncode == 9, stale.stdout + stale.stderr
    assert "source of quick" in stale.stdout + stale.stderr


def test_a_revision_that_is_not_there_and_a_repository_that_is_not_are_told_apart(
    project: Project, there: Repository
) -> None:
    write(project, there.url, "v9")
    missing = project.run("plan", "run.yaml")
    assert missing.returncode == 4, missing.stdout + missing.stderr
    assert "source.revision v9 is not in the repository" in flat(missing)
    assert f"git ls-remote {there.url}" in flat(missing)
    shutil.rmtree(there.folder)
    gone = project.run("plan", "run.yaml")
    assert gone.returncode == 5, gone.stdout + gone.stderr
    assert "source.git cannot be read from there: '" in flat(gone)


def test_requirements_are_read_from_the_commit(project: Project, there: Repository) -> None:
    there.commit(requirements_DOT_txt="")
    write(project, there.url)
    spec = project.folder / "run.yaml"
    spec.write_text(spec.read_text() + "setup: {requirements: other.txt}\n")
    missing = project.run("plan", "run.yaml")
    assert missing.returncode == 4, missing.stdout + missing.stderr
    assert "setup.requirements names other.txt, which is not in the source" in missing.stdout + missing.stderr
    spec.write_text(spec.read_text().replace("other", "requirements"))
    planned = project.run("plan", "run.yaml")
    assert planned.returncode == 0, planned.stdout + planned.stderr


@pytest.fixture
def git_host(project: Project, tmp_path: Path) -> Iterator[Sshd]:
    """An sshd that holds the repository; the machine's account has the key to it, by its own configuration of git."""
    daemon = Sshd(tmp_path / "sshd").start()
    config = daemon.write_client("git-host")
    home = project.person.home
    (home / ".gitconfig").write_text(f"[core]\n\tsshCommand = ssh -F {config}\n")
    yield daemon
    daemon.close()


@pytest.mark.skipif(not SSHD or os.getuid() != 0, reason="needs an sshd that serves this account")
def test_a_repository_behind_ssh_is_fetched_with_the_accounts_own_key(
    project: Project, there: Repository, git_host: Sshd
) -> None:
    write(project, f"ssh://git-host{there.folder}")
    done = project.apply("--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "│ one" in done.stdout + done.stderr
    git_host.authorized.write_text("")
    there.commit(work_DOT_py="print('two')\n")
    # Nobody can say whether the branch moved: the run of the commit that was known is kept.
    kept = project.apply()
    assert kept.returncode == 0, kept.stdout + kept.stderr
    refused = project.run("plan", "run.yaml", "--again")
    assert refused.returncode == 5, refused.stdout + refused.stderr
    assert "Permission denied" in flat(refused)


# In the place of ssh: git's own other side, which stands still once enough has passed while `hold` is there.
SLOW_SSH = """#!/usr/bin/env python3
import os, subprocess, sys, time
home, passed = os.environ["HOME"], 0
child = subprocess.Popen(["sh", "-c", sys.argv[-1]], stdout=subprocess.PIPE)
while data := os.read(child.stdout.fileno(), 65536):
    passed += len(data)
    if passed > 500_000:
        while os.path.exists(home + "/hold"):
            open(home + "/held", "w").close()
            time.sleep(0.05)
    while data:
        data = data[os.write(1, data):]
sys.exit(child.wait())
"""


def of_git(project: Project, word: bytes) -> list[int]:
    """Processes of this person's machine that run git for `word`."""
    found = []
    for pid in processes_with(f"HOME={project.person.home}\0"):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        found += [pid] if word in words else []
    return found


@pytest.mark.parametrize("killed", [b"fetch", b"setup"])
def test_a_fetch_that_is_killed_while_it_runs_leaves_nothing_half_and_the_next_apply_is_right(
    project: Project, there: Repository, killed: bytes
) -> None:
    """The fetch alone, as the kernel does for memory, or all of the setup step with it."""
    home = project.person.home
    (home / "slow-ssh").write_text(SLOW_SSH)
    (home / "slow-ssh").chmod(0o755)
    (home / ".gitconfig").write_text(f"[core]\n\tsshCommand = {home}/slow-ssh\n[ssh]\n\tvariant = simple\n")
    (there.folder / "large.bin").write_bytes(os.urandom(3 << 20))
    commit = there.commit(work_DOT_py="import os\nprint(os.path.getsize('large.bin'), len(os.listdir('.')))\n")
    write(project, f"ssh://anywhere{there.folder}")
    (home / "hold").touch()
    applying = project.popen("apply", "run.yaml", "--yes")
    until((home / "held").exists, 60)
    pids = of_git(project, killed)
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    (home / "hold").unlink()
    out, err = applying.communicate(timeout=60)
    first = project.json("inspect", "quick")["job"]["job_id"]
    again = ()
    if killed == b"setup":
        assert applying.returncode == 10, out + err
        until(lambda: not of_git(project, b"fetch") and not of_git(project, b"index-pack"), 30)
        assert not (home / f"aic-jobs/quick/jobs/{first}").exists(), "a tree stands that is not whole"
        again = ("--again",)
    else:
        # What a killed fetch did not bring is asked for once more, in the same step.
        assert applying.returncode == 0, out + err
    done = project.apply(*again, "--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    assert project.run("logs", "quick").stdout == "3145728 2\n"
    assert (project.json("inspect", "quick")["job"]["job_id"] == first) is not bool(again)
    assert project.json("inspect", "quick")["job"]["source"]["commit"] == commit
