"""OpenSSH's private folders: gone with their user, and of a killed one by the next; nobody else's is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import REPOSITORY

from aicrun.hosts import ssh_folders

MADE = """
import os, signal
from aicrun.hosts import ssh_folders
ssh_folders.PLACE = os.environ["PLACE"]
folder = ssh_folders.made(lambda path: "Include x")
print(folder.path, flush=True)
signal.pause()
"""
SOCKET = "ba7eb0f04ff59a69e5a0ae577a870841c1a8b3cd"


@pytest.fixture
def user(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process with a folder in use."""
    env = dict(os.environ, PYTHONPATH=str(REPOSITORY), PLACE=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", MADE], env=env, stdout=subprocess.PIPE, text=True) as found:
        yield found
        found.kill()


def folder_of(user: subprocess.Popen[str]) -> Path:
    assert user.stdout is not None
    return Path(user.stdout.readline().strip())


def test_a_folder_is_kept_while_its_process_lives_and_taken_when_it_was_killed(
    user: subprocess.Popen[str], tmp_path: Path
) -> None:
    folder = folder_of(user)
    (folder / SOCKET).touch()
    assert (folder.parent, folder.stat().st_mode & 0o777) == (tmp_path, 0o700)
    ssh_folders.sweep(str(tmp_path))
    assert sorted(path.name for path in folder.iterdir()) == [SOCKET, "config"]
    user.send_signal(signal.SIGKILL)
    user.wait()
    ssh_folders.sweep(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_given_up_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_folders, "PLACE", str(tmp_path))
    folder = ssh_folders.made(lambda path: f"ControlPath {path}/%C\n")
    assert f"ControlPath {folder.path}/%C" in Path(folder.path, "config").read_text()
    Path(folder.path, f"{SOCKET}.AbCdEfGhIjKlMnOp").touch()
    folder.remove()
    folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_child_does_not_take_its_parents_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_folders, "PLACE", str(tmp_path))
    folder = ssh_folders.made(lambda _: "")
    child = os.fork()
    if child == 0:
        folder.remove()
        os._exit(0)
    os.waitpid(child, 0)
    assert Path(folder.path, "config").exists()
    folder.remove()


def dead(at: Path) -> None:
    """As a killed command leaves it."""
    at.mkdir(mode=0o700)
    (at / "config").write_text(ssh_folders._MARK + "BatchMode yes\n")


def with_more(at: Path) -> None:
    dead(at)
    (at / "thesis.tex").touch()


def with_other_words(at: Path) -> None:
    dead(at)
    (at / "config").write_text("BatchMode yes\n")


def open_to_others(at: Path) -> None:
    dead(at)
    at.chmod(0o755)


def link_to_one(at: Path) -> None:
    dead(at.with_name("elsewhere"))
    at.symlink_to(at.with_name("elsewhere"))


def with_a_link(at: Path) -> None:
    dead(at.with_name("elsewhere"))
    at.mkdir(mode=0o700)
    (at / "config").symlink_to(at.with_name("elsewhere") / "config")


def bare(at: Path) -> None:
    at.mkdir(mode=0o700)


def without_words(at: Path) -> None:
    bare(at)
    (at / "config").touch()


@pytest.mark.parametrize(
    "laid", [with_more, with_other_words, open_to_others, link_to_one, with_a_link, bare, without_words]
)
def test_what_is_not_provably_a_dead_ones_stays(laid: Callable[[Path], None], tmp_path: Path) -> None:
    laid(tmp_path / f"{ssh_folders.PREFIX}12345678")
    dead(tmp_path / "another-name")
    before = sorted(tmp_path.rglob("*"))
    ssh_folders.sweep(str(tmp_path))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("laid", [bare, without_words])
def test_what_was_never_written_goes_after_a_day(laid: Callable[[Path], None], tmp_path: Path) -> None:
    at = tmp_path / f"{ssh_folders.PREFIX}12345678"
    laid(at)
    long_ago = time.time() - ssh_folders.BARE_AGE_S - 60
    os.utime(at, (long_ago, long_ago))
    ssh_folders.sweep(str(tmp_path))
    assert not at.exists()


def test_another_accounts_folder_stays(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("files of another account can only be made by root")
    at = tmp_path / f"{ssh_folders.PREFIX}12345678"
    dead(at)
    os.chown(at, 65534, 65534)
    ssh_folders.sweep(str(tmp_path))
    assert (at / "config").exists()


def test_what_cannot_be_looked_into_is_no_fault(tmp_path: Path) -> None:
    ssh_folders.sweep(str(tmp_path / "nowhere"))
