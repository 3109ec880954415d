"""Root in somebody's folder: the run has the owner's home, and what we make there is the owner's."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest
from accounts import NOBODY, told

from aicrun.agent.environment import environment
from aicrun.agent.home import Home, open_home
from aicrun.agent.ownership import owner
from aicrun.agent.refused import Refused
from aicrun.agent.tree import lay_out
from aicrun.wire.jobs import JobRequest, Source

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root acts for others")
Job = Callable[..., JobRequest]
# An account that every Linux has, with a home that is there.
SOMEBODY = pwd.getpwnam("daemon")


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder of somebody's, in which something lies."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "roots").write_text("")
    os.chown(folder, SOMEBODY.pw_uid, SOMEBODY.pw_gid)
    return folder


def owners(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.lstat().st_uid for path in sorted(folder.rglob("*"))}


def test_the_home_is_the_owners_and_what_root_installs_is_not(account: Path, job: Job, theirs: Path) -> None:
    login = {"HOME": str(account)}
    found = environment(job(workspace=str(theirs / "new/deeper")), 1, login)
    assert found["HOME"] == SOMEBODY.pw_dir
    assert f"{SOMEBODY.pw_dir}/.local/bin" in found["PATH"].split(":")
    assert found["UV_CACHE_DIR"] == f"{account}/.cache/uv"
    assert found["USER"] == "root"
    mine = environment(job(), 1, login)
    assert (mine["HOME"], "UV_CACHE_DIR" in mine) == (str(account), False)
    assert environment(job(workspace=str(theirs), env={"HOME": "/mine"}), 1, login)["HOME"] == "/mine"


def test_what_is_made_is_the_owners_and_what_was_there_stays(home: Home, job: Job, theirs: Path) -> None:
    checkpoints = theirs / "jobs-of-mine/checkpoints/x"
    request = job(workspace=str(theirs / "jobs-of-mine"), checkpoints=str(checkpoints), checkpoint_link="out")

    def fill(folder: str) -> None:
        os.mkdir(f"{folder}/part")
        Path(folder, "part/a.py").write_text("a")
        os.symlink("part/a.py", f"{folder}/link")

    request = with_source(request)
    tree = Path(lay_out(home, request, fill))
    found = owners(theirs)
    assert found.pop("roots") == 0
    assert set(found.values()) == {SOMEBODY.pw_uid}
    assert {"jobs-of-mine", f"jobs-of-mine/jobs/{request.job_id}/part/a.py"} <= set(found)
    assert (tree / "link").is_symlink() and (tree / "out").is_symlink()


def with_source(request: JobRequest) -> JobRequest:
    from aicrun.wire.codec import replace

    return replace(request, source=Source("a" * 64, 1, 1, git="file:///x"))


def test_a_link_that_leads_elsewhere_gives_nothing_away(home: Home, job: Job, theirs: Path, tmp_path: Path) -> None:
    secret = tmp_path / "roots-own"
    secret.write_text("x")
    request = with_source(job(workspace=str(theirs), checkpoints=""))
    lay_out(home, request, lambda folder: os.symlink(str(secret), f"{folder}/link"))
    assert secret.stat().st_uid == 0


def test_nobody_but_root_acts_for_others(job: Job, theirs: Path) -> None:
    assert told(lambda: owner(job(workspace=str(theirs))), NOBODY) is None
    # An owner without an account, or without a home, is nobody whose home could be taken.
    os.chown(theirs, 54321, 54321)
    assert owner(job(workspace=str(theirs))) is None


def test_root_with_the_home_of_another_account_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught:
        open_home({"HOME": SOMEBODY.pw_dir}) if os.stat(SOMEBODY.pw_dir).st_uid else _refused_for(tmp_path)
    assert caught.value.token == "state_unusable"
    assert "and this is root: log in as" in caught.value.message


def _refused_for(tmp_path: Path) -> None:
    """Accounts of a system mostly have a home of root's: one is told to have another."""
    folder = tmp_path / "home"
    folder.mkdir()
    os.chown(folder, SOMEBODY.pw_uid, SOMEBODY.pw_gid)
    entry = pwd.struct_passwd((*SOMEBODY[:5], str(folder), SOMEBODY.pw_shell))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pwd, "getpwuid", lambda uid: entry)
        try:
            open_home({"HOME": str(folder)})
        finally:
            assert list(folder.iterdir()) == []
