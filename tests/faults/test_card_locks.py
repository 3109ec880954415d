"""Card locks between real processes of two real accounts: exclusion, and what people and cleaners do to the files."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from accounts import NOBODY, child, told

from aicrun.agent import leases, lock_folder
from aicrun.agent.lock_folder import LockFolder, Places, open_folder
from aicrun.agent.refused import Refused

CARD = "GPU-aaaa"
ROUNDS, RACERS = 10_000, 4


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder like /run/lock, which every account can reach."""
    folder = Path(tempfile.mkdtemp(prefix="aicrun-test-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def places(shared: Path) -> Places:
    return Places(system=str(shared), lasting=str(shared))


@pytest.fixture
def folder(places: Places) -> Iterator[LockFolder]:
    with lock_folder.opened(places) as found:
        yield found


def take(places: Places, *cards: str) -> Any:
    """What a child says that tries to hold the cards."""
    lease = leases.acquire(open_folder(places), cards or (CARD,))
    return list(lease.uuids)


# The folder.


def test_root_and_users_choose_alike_and_compare_one_identity(places: Places) -> None:
    def identity() -> list[Any]:
        found = open_folder(places)
        return [found.path, found.device, found.inode]

    first = told(identity, NOBODY, 0o077)
    assert first[0] == f"{places.system}/aicrun/v1"
    assert told(identity) == first
    for part in (Path(places.system, "aicrun"), Path(first[0])):
        assert part.stat().st_mode & 0o7777 == 0o1777


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o1755])
def test_a_system_folder_that_users_could_not_share_is_passed_by_root_too(shared: Path, mode: int) -> None:
    system, lasting = shared / "run", shared / "var"
    system.mkdir()
    system.chmod(mode)
    lasting.mkdir()
    lasting.chmod(0o1777)
    places = Places(str(system), "aicrun", str(lasting), "aicrun-locks")
    paths = {told(lambda: open_folder(places).path, uid) for uid in (0, NOBODY)}
    assert paths == {f"{lasting}/aicrun-locks/v1"}


def test_a_link_is_never_followed(shared: Path, places: Places) -> None:
    (shared / "elsewhere").mkdir()
    (shared / "aicrun").symlink_to(shared / "elsewhere")
    with pytest.raises(Refused, match="it is a link or no folder"):
        open_folder(places)
    assert not list((shared / "elsewhere").iterdir())


def test_a_folder_left_half_made_is_mended_by_its_owner_and_told_to_others(shared: Path, places: Places) -> None:
    def half() -> None:
        os.mkdir(shared / "aicrun", 0o700)

    told(half, NOBODY)
    (shared / "aicrun").chmod(0o755)
    begun = time.monotonic()
    said = told(lambda: open_folder(places).path, 65533)
    assert "chmod 1777" in said
    assert time.monotonic() - begun < 5
    assert told(lambda: open_folder(places).path, NOBODY) == f"{shared}/aicrun/v1"


def test_a_folder_moved_away_while_in_use_is_told(places: Places, folder: LockFolder) -> None:
    top = Path(folder.path).parent
    top.rename(top.with_name("moved"))
    with pytest.raises(Refused, match="removed or moved"):
        leases.acquire(folder, (CARD,))


def test_this_machine_s_own_folder_is_chosen_alike_by_two_accounts() -> None:
    """The one check of the real places; nothing is made in them."""
    paths = {told(lambda: lock_folder.choose(Places()), uid) for uid in (0, NOBODY)}
    assert paths < {"/run/lock/aicrun", "/var/tmp/aicrun-locks"}


# Holding.


@pytest.mark.parametrize("maker", [0, NOBODY])
def test_a_lock_made_by_either_account_under_any_umask_serves_both(places: Places, maker: int) -> None:
    assert told(lambda: take(places), maker, 0o777) == [CARD]
    made = Path(places.system, "aicrun/v1", f"{CARD}.lock")
    assert (made.stat().st_mode & 0o777, made.stat().st_size, made.stat().st_uid) == (0o644, 0, maker)
    inode = made.stat().st_ino
    for first, second in ((0, NOBODY), (NOBODY, 0)):
        holder = child(lambda: take(places), first)
        assert told(lambda: take(places), second).startswith("Busy")
        holder.kill()
        assert told(lambda: take(places), second) == [CARD]
    assert made.stat().st_ino == inode
    assert made.stat().st_size == 0


def test_all_or_none_in_one_order(places: Places) -> None:
    holder = child(lambda: take(places, "GPU-b"), NOBODY)
    assert told(lambda: take(places, "GPU-c", "GPU-b", "GPU-a")).startswith("Busy: card GPU-b")
    assert told(lambda: take(places, "GPU-a", "GPU-c")) == ["GPU-a", "GPU-c"]
    holder.kill()


def test_whoever_looks_makes_nothing_and_never_makes_a_taker_fail(places: Places, folder: LockFolder) -> None:
    assert not leases.is_held(folder, CARD)
    assert os.listdir(folder.path) == []
    leases.acquire(folder, (CARD,)).release()

    def look() -> int:
        mine, until, count = open_folder(places), time.monotonic() + 0.7, 0
        while time.monotonic() < until:
            count += not leases.is_held(mine, CARD)
        return count

    pids = []
    for _ in range(2):
        pids.append(os.fork())
        if not pids[-1]:
            try:
                look()
            finally:
                os._exit(0)
    for _ in range(100):
        leases.acquire(folder, (CARD,)).release()
    for pid in pids:
        os.waitpid(pid, 0)


def test_a_child_that_inherited_the_descriptor_keeps_the_card_after_its_parent_was_killed(places: Places) -> None:
    def hold_with_heir() -> int:
        lease = leases.acquire(open_folder(places), (CARD,))
        os.set_inheritable(lease.handles[0], True)
        return subprocess.Popen(["sleep", "100"], close_fds=False, stdout=subprocess.DEVNULL).pid

    keeper = child(hold_with_heir, NOBODY)
    keeper.kill()
    assert told(lambda: take(places)).startswith("Busy")
    os.kill(keeper.said, signal.SIGKILL)
    assert told(lambda: take(places)) == [CARD]


def test_an_explicit_release_frees_the_copies_of_a_living_child_too(places: Places, folder: LockFolder) -> None:
    lease = leases.acquire(folder, (CARD,))
    os.set_inheritable(lease.handles[0], True)
    heir = subprocess.Popen(["sleep", "100"], close_fds=False)
    lease.release()
    assert told(lambda: take(places), NOBODY) == [CARD]
    heir.kill()
    heir.wait()


def test_only_the_keeper_may_release(folder: LockFolder) -> None:
    lease = leases.acquire(folder, (CARD,))
    assert told(lambda: lease.release()).startswith("RuntimeError")
    assert leases.is_held(folder, CARD)
    lease.release()


# What people do to the files.


def test_a_lock_unlinked_while_held_is_no_free_card_for_its_holder_s_eyes(folder: LockFolder) -> None:
    path = Path(leases.path_of(folder, CARD))
    lease = leases.acquire(folder, (CARD,))
    path.unlink()
    with pytest.raises(Refused, match="unlinked"):
        leases.check(folder, lease)
    path.touch()
    with pytest.raises(Refused, match="replaced"):
        leases.check(folder, lease)
    lease.release()


@pytest.mark.parametrize("uid", [0, NOBODY])
def test_a_lock_that_not_everybody_may_read_is_refused_to_root_alike(places: Places, uid: int) -> None:
    told(lambda: take(places))
    Path(places.system, "aicrun/v1", f"{CARD}.lock").chmod(0)
    said = told(lambda: take(places), uid)
    assert said.startswith("Refused")
    assert "chmod 644" in said


@pytest.mark.parametrize("uid", [0, NOBODY])
@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_what_is_no_plain_file_is_refused(places: Places, folder: LockFolder, uid: int, kind: str) -> None:
    path = leases.path_of(folder, CARD)
    if kind == "link":
        target = Path(places.system, "target")
        target.touch()
        os.symlink(target, path)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        os.mkdir(path)
    assert told(lambda: take(places), uid).startswith("Refused: the lock ")


@pytest.mark.parametrize("name", ["../x", "", "a/b", ".hidden", "a" * 200])
def test_a_name_that_is_no_card_never_becomes_a_path(folder: LockFolder, name: str) -> None:
    with pytest.raises(Refused, match="is no card"):
        leases.acquire(folder, (name,))


# Cleaners.


def test_a_cleaner_finds_the_folder_locked_while_anybody_is_in_it(places: Places) -> None:
    user = child(lambda: open_folder(places).path, NOBODY)
    handle = os.open(user.said, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    user.kill()
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(handle)


@pytest.mark.skipif(not shutil.which("systemd-tmpfiles"), reason="no systemd-tmpfiles here")
def test_the_system_s_own_cleaner_takes_no_lock_that_is_in_use(shared: Path, places: Places) -> None:
    rules = shared / "rules.conf"
    rules.write_text(f"d {shared}/aicrun 1777 root root 1s\n")

    def clean() -> None:
        subprocess.run(["systemd-tmpfiles", "--clean", str(rules)], check=False, capture_output=True)

    holder = child(lambda: take(places), NOBODY)
    lock = shared / "aicrun/v1" / f"{CARD}.lock"
    old = time.time() - 10 * 86400
    os.utime(lock, (old, old))
    time_passes = time.monotonic() + 2.2
    while time.monotonic() < time_passes:
        clean()
    assert lock.exists()
    holder.kill()
    assert told(lambda: take(places)) == [CARD]


# Races.


def test_ten_thousand_rounds_never_have_two_holders(shared: Path, places: Places) -> None:
    """Racers of both accounts; whoever holds makes a folder that can be made once only, and removes it."""
    arena = shared / "arena"
    arena.mkdir()
    arena.chmod(0o777)

    def race() -> list[int]:
        folder, done, busy = open_folder(places), 0, 0
        while done < ROUNDS // RACERS:
            try:
                lease = leases.acquire(folder, (CARD,), 5.0)
            except leases.Busy:
                busy += 1
                continue
            os.mkdir(arena / "mine")
            os.rmdir(arena / "mine")
            lease.release()
            done += 1
        return [done, busy]

    assert run_all(race, [0, NOBODY] * (RACERS // 2)) == [ROUNDS // RACERS] * RACERS


def run_all(deed: Any, uids: list[int]) -> list[Any]:
    """The first number that each racer says; all run at once."""
    ends = []
    for uid in uids:
        read_end, write_end = os.pipe()
        if os.fork() == 0:
            try:
                if uid:
                    os.setgroups([])
                    os.setgid(uid)
                    os.setuid(uid)
                os.write(write_end, b"%d" % deed()[0])
            finally:
                os._exit(0)
        os.close(write_end)
        ends.append(read_end)
    found = []
    for end in ends:
        with open(end, "rb") as stream:
            found.append(int(stream.read() or b"-1"))
        os.wait()
    return found
