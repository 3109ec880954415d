"""The state folder: private, ours, on a disk whose locks are this machine's."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from aicrun.agent import home as home_file
from aicrun.agent import host_id as host_id_file
from aicrun.agent.home import file_system, is_network, open_home
from aicrun.agent.host_id import host_id
from aicrun.agent.refused import Refused

MOUNTS = r"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:25 / /home rw - nfs4 server:/home rw,vers=4.2
31 30 0:26 / /home/ana/local\040disk rw - ext4 /dev/vdb rw
32 22 0:27 / /data rw shared:2 master:3 - ext4 /dev/vdc rw
33 22 0:28 / /data rw - fuse.sshfs box:/data rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/tmp/x", "ext4"),
        ("/home/ana/.local/state", "nfs4"),
        ("/homes/ana", "ext4"),
        ("/home/ana/local disk/x", "ext4"),
        ("/data/x", "fuse.sshfs"),
    ],
)
def test_the_longest_and_last_mount_point_tells_the_file_system(tmp_path: Path, path: str, kind: str) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(MOUNTS)
    assert file_system(path, str(mountinfo)) == kind
    assert is_network(path, str(mountinfo)) == (kind != "ext4")


def test_state_is_private_and_its_place_follows_the_environment(tmp_path: Path) -> None:
    home = open_home({"HOME": str(tmp_path)})
    assert home.root == str(tmp_path / ".local/state/aicrun" / home.host_id)
    assert home.jobs_root == home.root
    for folder in (home.root, home.runs(), home.jobs(), home.trash()):
        assert os.stat(folder).st_mode & 0o777 == 0o700
    other = open_home({"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "s")})
    assert other.root == str(tmp_path / "s/aicrun" / home.host_id)
    relative = open_home({"HOME": str(tmp_path), "XDG_STATE_HOME": "s"})
    assert relative.root == home.root


def test_on_a_network_home_jobs_and_locks_go_to_the_local_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_file, "is_network", lambda _path: True)
    monkeypatch.setattr(home_file, "LOCAL_DISK", str(tmp_path / "local"))
    (tmp_path / "local").mkdir()
    home = open_home({"HOME": str(tmp_path)})
    assert home.jobs_root == f"{tmp_path}/local/aicrun-{os.getuid()}/{home.host_id}"
    assert home.runs().startswith(home.root)
    with home.host_lock():
        assert os.path.exists(os.path.join(home.jobs_root, "host.lock"))


def test_a_state_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "state/aicrun").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused) as caught:
        open_home({"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")})
    assert caught.value.token == "state_unusable"
    assert str(tmp_path / "state/aicrun") in caught.value.message
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_file_system_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(_source: str, _target: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(Refused, match="hard links"):
        open_home({"HOME": str(tmp_path)})


def test_a_host_without_a_machine_id_keeps_the_one_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").write_text("uninitialized\n")
    monkeypatch.setattr(host_id_file, "MACHINE_IDS", (str(tmp_path / "empty"), str(tmp_path / "none")))
    first = host_id(str(tmp_path))
    assert len(first) == 32
    assert host_id(str(tmp_path)) == first
    (tmp_path / "machine-id").write_text("0123456789ABCDEF0123456789abcdef\n")
    monkeypatch.setattr(host_id_file, "MACHINE_IDS", (str(tmp_path / "machine-id"),))
    assert host_id(str(tmp_path)) == "0123456789abcdef0123456789abcdef"


def test_the_host_lock_is_had_by_one_and_refused_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = open_home({"HOME": str(tmp_path)})
    monkeypatch.setattr(home_file, "LOCK_WAIT_S", 0.05)
    with home.host_lock():
        with pytest.raises(Refused) as caught, home.host_lock():
            raise AssertionError
        assert caught.value.token == "no_lock"
    with home.host_lock():
        pass


def test_nobody_starves_beside_a_call_that_takes_the_host_lock_again_and_again(tmp_path: Path) -> None:
    """As a client does that starts many runs, one behind the other: each of the others comes after one of its calls."""
    home = open_home({"HOME": str(tmp_path)})
    held, enough = threading.Event(), threading.Event()
    turns: list[float] = []

    def again_and_again() -> None:
        while not enough.is_set():
            with home.host_lock():
                held.set()
                turns.append(time.monotonic())
                enough.wait(0.05)

    greedy = threading.Thread(target=again_and_again)
    greedy.start()
    try:
        for _ in range(5):
            held.wait(5)
            began = len(turns)
            with home.host_lock():
                assert len(turns) - began <= 3
    finally:
        enough.set()
        greedy.join()


def test_a_folder_of_records_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path) -> None:
    home = open_home({"HOME": str(tmp_path)})
    assert home.job_ids("sft-run") == ()
    assert home.run_of("a" * 16) is None
    # A link to itself: `ELOOP` stands for every error of a disk or a share that comes and goes.
    os.symlink("sft-run", home.run_dir("sft-run"))
    with pytest.raises(Refused, match="sft-run cannot be read") as caught:
        home.job_ids("sft-run")
    assert caught.value.token == "state_unusable"
    with pytest.raises(Refused, match="cannot be read"):
        home.run_of("a" * 16)
    # The fault of one run keeps nobody from another.
    os.makedirs(home.record_dir("zoo", "b" * 16))
    assert home.run_of("b" * 16) == "zoo"


def test_folders_above_the_state_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        open_home({"HOME": str(tmp_path)})
    finally:
        os.umask(before)
    for folder in (".local", ".local/state", ".local/state/aicrun"):
        assert os.stat(tmp_path / folder).st_mode & 0o777 == 0o700
