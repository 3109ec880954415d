"""Control groups: where a process stands, by its recorded files; what a group says, by recorded counters."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aicrun.agent import cgroups
from aicrun.agent.cgroups import Group, Place, Verdict

NAME = "aicrun-0123456789abcdef-1"
V2 = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw shared:12 - cgroup cgroup rw,memory\n"
    "36 31 0:33 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
)
UNIFIED = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
IN_V1 = "9:name=systemd:/user.slice\n4:memory:/user.slice/a\n2:cpu,cpuacct:/\n"


@pytest.mark.parametrize(
    ("cgroup", "mountinfo", "tree", "memory"),
    [
        ("0::/user.slice/session-5.scope\n", V2, "/sys/fs/cgroup/user.slice/session-5.scope", ""),
        ("0::/\n", V2, "/sys/fs/cgroup", ""),
        (IN_V1, V1, "/sys/fs/cgroup/memory/user.slice/a", ""),
        (IN_V1 + "0::/user.slice/u\n", V1 + UNIFIED, "/sys/fs/cgroup/unified/user.slice/u", "/memory/user.slice/a"),
        # Version 2 is there but not mounted: what is in it cannot be used.
        (IN_V1 + "0::/user.slice/u\n", V1, "/sys/fs/cgroup/memory/user.slice/a", ""),
        # A container sees its part of the tree, with the path of the host or with its own.
        ("4:memory:/docker/77/a\n", V1.replace("/ /sys/fs/cgroup/memory", "/docker/77 /m"), "/m/a", ""),
        ("4:memory:/docker/77\n", V1.replace("/ /sys/fs/cgroup/memory", "/docker/77 /m"), "/m", ""),
        ("4:memory:/docker/777\n", V1.replace("/ /sys/fs/cgroup/memory", "/docker/77 /m"), "", ""),
        ("0::/../elsewhere\n", "31 23 0:28 /docker /c rw - cgroup2 cgroup2 rw\n", "", ""),
        ("0::/../elsewhere\n", V2, "", ""),
        ("4:memory,hugetlb:/a\n", "35 31 0:32 / /m\\040m rw - cgroup cgroup rw,memory,hugetlb\n", "/m m/a", ""),
        ("0::/with:colon\n", V2, "/sys/fs/cgroup/with:colon", ""),
        ("", V2, "", ""),
        ("0::/a\n", "", "", ""),
        ("garbage\n::\n", "garbage - \n1 2 3 4 5 - cgroup2\n", "", ""),
    ],
)
def test_a_process_is_found_in_its_groups(cgroup: str, mountinfo: str, tree: str, memory: str) -> None:
    assert cgroups.place(cgroup, mountinfo) == Place(tree, f"/sys/fs/cgroup{memory}" if memory else tree)


@pytest.mark.parametrize(
    ("file", "text", "count"),
    [
        ("memory.events", "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n", 2),
        ("memory.events", "oom 3\noom_kill 0\n", 0),
        ("memory.events", "oom_kill 4\noom_group_kill 5\n", 5),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n", 7),
        # Linux before 4.13 counts nothing: that is not "none".
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n", None),
        ("memory.events", "oom_kill many\n", None),
        ("other", "oom_kill 1\n", None),
    ],
)
def test_what_was_killed_for_memory_is_counted(tmp_path: Path, file: str, text: str, count: int | None) -> None:
    (tmp_path / file).write_text(text)
    assert cgroups.kills(str(tmp_path)) == count


def test_no_group_counts_nothing_and_holds_nobody() -> None:
    assert (cgroups.kills(""), cgroups.pids(""), cgroups.kill(""), cgroups.populated("")) == (None, [], False, None)


def v2(folder: Path, *, controllers: str = "", procs: str = "", kills: int | None = None) -> Path:
    """A group of version 2 as its files show it."""
    folder.mkdir(exist_ok=True)
    for file in ("cgroup.procs", "cgroup.subtree_control", "cgroup.kill"):
        (folder / file).write_text("")
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.procs").write_text(procs)
    if kills is not None:
        (folder / "memory.events").write_text(f"oom_kill {kills}\n")
    return folder


def test_processes_of_a_group_and_below_are_listed_unless_the_kernel_says_nobody(tmp_path: Path) -> None:
    top = v2(tmp_path / NAME, procs="12\n5\n")
    v2(top / "below", procs="7\n12\n")
    assert cgroups.pids(str(top)) == [5, 7, 12]
    (top / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    assert (cgroups.pids(str(top)), cgroups.populated(str(top))) == ([5, 7, 12], True)
    (top / "cgroup.events").write_text("populated 0\nfrozen 0\n")
    assert (cgroups.pids(str(top)), cgroups.populated(str(top))) == ([], False)


def test_a_group_that_counts_for_others_too_is_never_called_the_runs_own(tmp_path: Path) -> None:
    above = v2(tmp_path / "user.slice", kills=3)
    scope = v2(above / "session-5.scope", controllers="", procs="1\n2\n")
    group = cgroups.make(NAME, Place(str(scope), str(scope)))
    assert group == Group(str(scope / NAME), str(above), own_memory=False)
    assert not cgroups.killed_for_memory(group, 3)
    (above / "memory.events").write_text("oom_kill 4\n")
    assert cgroups.killed_for_memory(group, 3)
    assert not cgroups.killed_for_memory(group, None)


def test_in_a_unit_of_its_own_the_keeper_steps_aside_and_the_run_is_counted(tmp_path: Path) -> None:
    unit = v2(tmp_path / "aicrun-x.service", controllers="memory pids", procs=f"{os.getpid()}\n")
    for name in (NAME, cgroups.SUPERVISORS):
        v2(unit / name)
    # The kernel shows the counters as soon as the controller is on; a plain folder has them from the start.
    assert cgroups.make(NAME, Place(str(unit), str(unit))).own_memory is False
    assert (unit / "cgroup.subtree_control").read_text() == "+memory"
    assert (unit / cgroups.SUPERVISORS / "cgroup.procs").read_text() == str(os.getpid())
    (unit / NAME / "memory.events").write_text("oom_kill 0\n")
    # The next step finds the keeper where it stepped aside to.
    aside = str(unit / cgroups.SUPERVISORS)
    assert cgroups.make(NAME, Place(aside, aside)) == Group(str(unit / NAME), str(unit / NAME), own_memory=True)


def test_where_others_stand_in_the_group_nobody_is_moved(tmp_path: Path) -> None:
    scope = v2(tmp_path / "session.scope", controllers="memory", procs=f"1\n{os.getpid()}\n")
    group = cgroups.make(NAME, Place(str(scope), str(scope)))
    assert (group.memory, group.own_memory) == ("", False)
    assert (scope / "cgroup.subtree_control").read_text() == ""
    assert not (scope / cgroups.SUPERVISORS).exists()


def test_below_a_memory_group_that_is_not_hierarchical_none_is_made(tmp_path: Path) -> None:
    tree, memory = tmp_path / "unified", tmp_path / "memory"
    v2(tree)
    memory.mkdir()
    (memory / "memory.use_hierarchy").write_text("0\n")
    (memory / "memory.oom_control").write_text("oom_kill 0\n")
    group = cgroups.make(NAME, Place(str(tree), str(memory)))
    assert (group.tree, group.memory, group.own_memory) == (str(tree / NAME), str(memory), False)
    assert "not hierarchical" in group.why
    (memory / "memory.use_hierarchy").write_text("1\n")
    (memory / NAME).mkdir()
    assert cgroups.make(NAME, Place(str(tree), str(memory))).own_memory


def test_where_no_group_can_be_made_it_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    assert cgroups.make(NAME, Place()).why == "no control groups are mounted here"
    gone = tmp_path / "gone"
    group = cgroups.make(NAME, Place(str(gone), str(gone)))
    assert (group.tree, group.own_memory, group.why) == (
        "",
        False,
        f"no group {gone / NAME}: No such file or directory",
    )
    plain = tmp_path / "plain"
    plain.mkdir()
    entered = cgroups.enter(cgroups.make(NAME, Place(str(plain), str(plain))), os.getpid())
    assert (entered.tree, entered.why) == ("", f"its process could not be moved into {plain / NAME}")
    assert not (plain / NAME).exists()


def test_only_a_group_of_that_name_is_ever_taken_for_a_jobs(tmp_path: Path) -> None:
    for name in (NAME, "user.slice"):
        (tmp_path / name).mkdir()
    mine, other = str(tmp_path / NAME), str(tmp_path / "user.slice")
    assert cgroups.recorded(NAME, mine, other, "", str(tmp_path / "x" / NAME)) == (mine,)
    cgroups.discard(Group(mine, other))
    assert not (tmp_path / NAME).exists()
    assert (tmp_path / "user.slice").exists()


OWN, SHARED = ("g", "g", True), ("", "g", False)


@pytest.mark.parametrize(
    ("group", "rise", "code", "signal", "ours", "told"),
    [
        (OWN, 1, None, 9, False, Verdict(killed=True)),
        (OWN, 0, None, 9, False, Verdict()),
        (OWN, 0, 137, None, False, Verdict()),
        (OWN, 1, 137, None, False, Verdict(suspected=True)),
        (OWN, 1, 1, None, False, Verdict(suspected=True)),
        (OWN, 1, 0, None, False, Verdict()),
        (OWN, 1, None, 15, False, Verdict(suspected=True)),
        (OWN, 1, None, 9, True, Verdict(suspected=True)),
        (SHARED, 1, None, 9, False, Verdict(suspected=True, shared=True)),
        (SHARED, 1, 1, None, False, Verdict(suspected=True, shared=True)),
        (SHARED, 1, 0, None, False, Verdict()),
        (SHARED, 0, None, 9, False, Verdict()),
    ],
)
def test_out_of_memory_is_told_on_the_count_alone(
    tmp_path: Path,
    group: tuple[str, str, bool],
    rise: int,
    code: int | None,
    signal: int | None,
    ours: bool,
    told: Verdict,
) -> None:
    (tmp_path / "memory.events").write_text(f"oom_kill {3 + rise}\n")
    found = Group(group[0], str(tmp_path), group[2])
    assert cgroups.verdict(found, 3, code, signal, ours) == told
    assert cgroups.verdict(found, None, code, signal, ours) == Verdict()
    assert cgroups.verdict(Group(), 3, code, signal, ours) == Verdict()


def test_a_knock_moves_nobody() -> None:
    before = Path("/proc/self/cgroup").read_text()
    cgroups.knock()
    assert Path("/proc/self/cgroup").read_text() == before
