"""What a host makes of a repository that a spec names: real git, real repositories, every odd one."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from git_rig import Repository

from aicrun.agent import git_mirror, git_tree
from aicrun.agent.build import SetupFailed, Workshop
from aicrun.agent.git import Git, GitFault
from aicrun.agent.home import Home
from aicrun.wire.jobs import JobRequest, Source
from aicrun.wire.status import reason_of

Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def there(tmp_path: Path) -> Repository:
    """A repository with two commits on main, a tag of each kind and another branch."""
    found = Repository(tmp_path / "there")
    found.commit(train_DOT_py="print(1)\n", requirements_DOT_txt="einops==0.8\n")
    found("tag", "light")
    found.commit(train_DOT_py="print(2)\n")
    found("tag", "-a", "-m", "the first", "v1")
    found("branch", "side")
    found.commit(train_DOT_py="print(3)\n")
    return found


@pytest.fixture
def ask(home: Home, there: Repository) -> Ask:
    """The answer of the call for a revision of that repository."""

    def asked(revision: str = "", **more: Any) -> dict[str, Any]:
        body = {"git": there.url, "revision": revision, "timeout_s": 60, "path": [], **more}
        return dict(git_mirror.source(home, body, b"")[0]["source"])

    return asked


@pytest.fixture
def lay(home: Home, there: Repository, tmp_path: Path) -> Callable[..., Path]:
    """Checks a commit out into a new folder, as the setup step does."""

    def laid(commit: str, folder: str = "tree", **env: str) -> Path:
        place = tmp_path / folder
        place.mkdir()
        shop = Workshop({"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **env}, 60)
        git_tree.check_out(home, Source("", 0, 0, commit, git=there.url), str(place), shop)
        return place

    return laid


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


@pytest.mark.parametrize(
    ("revision", "at", "name"),
    [
        ("", "main", "main"),
        ("main", "main", "main"),
        ("side", "side", "side"),
        ("light", "light", "light"),
        ("v1", "v1^{commit}", "v1"),
        ("refs/heads/side", "side", "refs/heads/side"),
    ],
)
def test_a_name_is_the_commit_that_it_stands_for_now(
    there: Repository, ask: Ask, revision: str, at: str, name: str
) -> None:
    found = ask(revision)
    assert (found["word"], found["commit"], found["name"]) == ("ok", there("rev-parse", at), name)


def test_a_tag_comes_before_a_branch_of_the_same_name(there: Repository, ask: Ask) -> None:
    there("branch", "both", "main")
    there("tag", "both", "light")
    assert ask("both")["commit"] == there("rev-parse", "light")


@pytest.mark.parametrize("digits", [40, 12, 7])
def test_a_commit_is_found_also_when_no_name_leads_to_it_directly(there: Repository, ask: Ask, digits: int) -> None:
    commit = there("rev-parse", "main~1")
    found = ask(commit[:digits])
    assert (found["word"], found["commit"]) == ("ok", commit)


@pytest.mark.parametrize("revision", ["v9", "0" * 40, "abcdef0", "--upload-pack=touch", "v*"])
def test_a_revision_that_is_not_there_is_missing(ask: Ask, revision: str) -> None:
    assert ask(revision)["word"] == "missing"


@pytest.mark.parametrize("revision", ["main", "0" * 40])
def test_a_repository_that_cannot_be_read_is_told_in_gits_words(ask: Ask, there: Repository, revision: str) -> None:
    shutil.rmtree(there.folder)
    found = ask(revision)
    assert found["word"] == "unreachable"
    assert "does not" in found["detail"]


def test_an_address_that_is_a_command_is_not_run(ask: Ask, tmp_path: Path) -> None:
    found = ask("main", git=f"ext::sh -c 'touch {tmp_path}/ran'")
    assert found["word"] == "unreachable"
    assert "not allowed" in found["detail"]
    assert not (tmp_path / "ran").exists()


def test_a_host_without_git_says_so(ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("aicrun.agent.environment.SYSTEM_PATH", (str(tmp_path),))
    monkeypatch.setattr("aicrun.agent.environment.OTHER_SYSTEM_PATH", ())
    monkeypatch.setattr("aicrun.agent.environment.CUDA_BIN", str(tmp_path / "none"))
    found = ask("main")
    assert found["word"] == "no_git"
    assert str(tmp_path) in found["detail"]


def test_a_file_of_the_commit_is_read_there(there: Repository, ask: Ask) -> None:
    found = ask("light", files=["requirements.txt", "other.txt"])
    assert found["texts"] == [{"path": "requirements.txt", "text": "einops==0.8\n"}]
    assert there("status", "--porcelain") == ""


def test_a_tree_is_the_commit_without_a_repository(there: Repository, lay: Callable[..., Path]) -> None:
    (there.folder / "run.sh").write_text("#!/bin/sh\n")
    (there.folder / "run.sh").chmod(0o755)
    (there.folder / "again").symlink_to("train.py")
    commit = there.commit(lib__a_DOT_py="")
    there.commit(train_DOT_py="print(4)\n")
    tree = lay(commit)
    assert files(tree) == ["again", "lib/a.py", "requirements.txt", "run.sh", "train.py"]
    assert (tree / "train.py").read_text() == "print(3)\n"
    assert os.access(tree / "run.sh", os.X_OK)
    assert os.readlink(tree / "again") == "train.py"


def test_submodules_come_along_and_their_repositories_do_not(
    there: Repository, lay: Callable[..., Path], tmp_path: Path
) -> None:
    inner, outer = Repository(tmp_path / "inner"), Repository(tmp_path / "outer")
    inner.commit(deep_DOT_txt="deep")
    outer("submodule", "--quiet", "add", inner.url, "inner")
    outer.commit(outer_DOT_txt="outer")
    there("submodule", "--quiet", "add", "../outer", "libs/outer")
    tree = lay(there.commit())
    assert (tree / "libs/outer/inner/deep.txt").read_text() == "deep"
    assert not list(tree.rglob(".git"))


def test_a_submodule_that_cannot_be_fetched_is_named(
    there: Repository, lay: Callable[..., Path], tmp_path: Path
) -> None:
    inner = Repository(tmp_path / "inner")
    inner.commit(deep_DOT_txt="deep")
    there("submodule", "--quiet", "add", inner.url, "inner")
    commit = there.commit()
    shutil.rmtree(inner.folder)
    with pytest.raises(SetupFailed, match=r"fetching submodules: .*inner"):
        lay(commit)


@pytest.mark.parametrize("target", ["/etc/hostname", "../outside"])
def test_a_link_that_leaves_the_tree_is_refused(there: Repository, lay: Callable[..., Path], target: str) -> None:
    (there.folder / "out").symlink_to(target)
    with pytest.raises(SetupFailed, match="the link out leads out of the source"):
        lay(there.commit())


def test_files_that_git_lfs_should_have_brought_are_told(
    there: Repository, lay: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "1" * 64 + "\nsize 12\n"
    attributes = "*.bin filter=lfs diff=lfs merge=lfs -text\n"
    commit = there.commit(**{f"m{number}_DOT_bin": pointer for number in range(5)}, _DOT_gitattributes=attributes)
    lay(commit)
    said = capsys.readouterr().out
    assert "warning: 5 files are pointers of git-lfs without contents: m0.bin, m1.bin, m2.bin, …" in said
    assert "git lfs install" in said


def test_no_hook_of_the_account_runs(there: Repository, lay: Callable[..., Path], account: Path) -> None:
    hooks = account / "hooks"
    hooks.mkdir()
    (hooks / "post-checkout").write_text(f"#!/bin/sh\ntouch {account}/ran\n")
    (hooks / "post-checkout").chmod(0o755)
    (account / ".gitconfig").write_text(f"[core]\n\thooksPath = {hooks}\n[init]\n\ttemplateDir = {account}\n")
    lay(there("rev-parse", "main"))
    assert not (account / "ran").exists()


def test_a_commit_that_is_gone_is_revision_missing(there: Repository, lay: Callable[..., Path]) -> None:
    with pytest.raises(git_tree.RevisionMissing, match=r"is not in file:.* any more") as caught:
        lay("1" * 40)
    assert caught.value.token == "revision_missing"


def test_what_a_plan_fetched_is_enough_for_the_job_also_when_the_repository_is_gone(
    there: Repository, ask: Ask, lay: Callable[..., Path]
) -> None:
    commit = ask(there("rev-parse", "main"))["commit"]
    shutil.rmtree(there.folder)
    assert (lay(commit) / "train.py").read_text() == "print(3)\n"


def mirror(home: Home, there: Repository) -> Path:
    return Path(git_mirror.mirror_path(home, there.url))


@pytest.mark.parametrize("damage", ["gone", "locks", "half", "object", "head"])
def test_a_mirror_that_a_killed_fetch_or_a_full_disk_left_is_mended(
    home: Home, there: Repository, ask: Ask, lay: Callable[..., Path], damage: str
) -> None:
    ask(there("rev-parse", "main"))
    place = mirror(home, there)
    if damage == "gone":
        shutil.rmtree(place)
    elif damage == "locks":
        (place / "config.lock").write_text("")
        (place / "packed-refs.lock").write_text("")
    elif damage == "half":
        Path(f"{place}.new").mkdir()
        shutil.rmtree(place)
    elif damage == "object":
        for path in place.glob("objects/**/*"):
            path.unlink() if path.is_file() else None
    else:
        (place / "HEAD").unlink()
    commit = there.commit(train_DOT_py="print(9)\n")
    assert (lay(commit) / "train.py").read_text() == "print(9)\n"
    assert ask(there("rev-parse", "v1^{commit}"))["word"] == "ok"


def test_two_jobs_that_fetch_at_once_both_get_the_tree(there: Repository, lay: Callable[..., Path]) -> None:
    commits = [there.commit(train_DOT_py=f"print({number})\n") for number in (7, 8)]
    trees: dict[str, Path] = {}
    threads = [
        threading.Thread(target=lambda one=one: trees.update({one: lay(one, one)}), daemon=True) for one in commits
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [(trees[one] / "train.py").read_text() for one in commits] == ["print(7)\n", "print(8)\n"]


def test_whoever_waits_for_another_jobs_fetch_says_so_and_gives_up_in_time(home: Home, there: Repository) -> None:
    place = mirror(home, there)
    place.parent.mkdir(parents=True)
    said: list[str] = []
    with open(f"{place}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        git = Git({"PATH": os.environ["PATH"]}, there.url, time.monotonic() + 0.3)
        with (
            pytest.raises(GitFault, match="all the time"),
            git_mirror.ready(home, git, there.url, "1" * 40, said.append),
        ):
            pass
    assert said == ["another job is fetching from the same repository: waiting for it"]


def test_the_code_of_the_setup_step_tells_a_missing_revision_apart(
    home: Home, there: Repository, job: Callable[..., JobRequest], account: Path
) -> None:
    from aicrun.agent import envs
    from aicrun.agent.records import write_record
    from aicrun.wire import names
    from aicrun.wire.codec import to_json
    from aicrun.wire.jobs import StepExit

    folder = Path(home.job_dir("00000000000000aa"))
    folder.mkdir(parents=True, exist_ok=True)
    request = job(source=Source("", 0, 0, "1" * 40, git=there.url))
    write_record(str(folder / names.REQUEST), to_json(request))
    code = envs.main(str(folder))
    assert reason_of("setup", StepExit("setup", 1, 0.1, 0.0, code=code)) == "revision_missing"
    assert reason_of("setup", StepExit("setup", 1, 0.1, 0.0, code=1)) == "setup_failed"
