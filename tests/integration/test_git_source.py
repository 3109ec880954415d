"""A source that the machine fetches from a repository itself, as a person sees it: named, moved, gone, behind ssh."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from git_rig import Repository
from integration.project import Project
from ssh_rig import SSHD, Sshd


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
