"""What a start surely writes, each file system counted once, and what a plan says where there is less."""

from __future__ import annotations

from typing import Any

import pytest
from unit.plan.test_setup_forms import PYTHONS
from unit.plan.test_setup_forms import wanted as locked
from unit.plan.worlds import answered, disk, fleet, machine, spec, wish

from aicrun.plan.decide import plan
from aicrun.plan.locks import download_bytes
from aicrun.plan.model import Options, RunPlan, Wanted
from aicrun.plan.needed_room import INODES_LEAST, TORCH, TORCH_CUDA, needed_room
from aicrun.spec.model import DiskDemand, Selector, SetupSpec, SourceSpec
from aicrun.wire.facts import Cards, Disk
from aicrun.wire.jobs import Source

GIB = 1 << 30
STATE = "/home/ana/.local/state/aicrun"
TREE = SourceSpec("/home/ana/project")


def on(volume: str, path: str, gib: float = 100, **more: Any) -> Disk:
    return disk(path, gib, 2048, volume=volume, **more)


def planned(one: Wanted, *disks: Disk, data: str = "/data", **reading: Any) -> RunPlan:
    entry = machine("lab", data=data)
    view = answered("lab", reading.pop("cards", ()), entry, **{"disks": disks, "pythons": PYTHONS, **reading})
    return plan((one,), fleet(view), Options()).runs[0]


def reasons(made: RunPlan) -> list[str]:
    return [f"{why.token}: {why.words}" for verdict in made.verdicts for why in verdict.rejections]


def big_tree(gib: float, **more: Any) -> Wanted:
    return wish(spec(source=TREE, **more), source=Source("aa" * 32, 3000, round(gib * GIB)))


def test_all_that_is_written_on_one_file_system_is_added_up_and_each_is_counted_once() -> None:
    asked = big_tree(2, machine=Selector(disk=DiskDemand("/data", 3 * GIB)), workspace="/data/jobs")
    one = (on("8", "/data"), on("8", "/data/jobs"), on("8", STATE))
    assert planned(asked, *one).sign.value == "+"
    short = tuple(on("8", place.path, 5) for place in one)
    made = planned(asked, *short)
    assert len(reasons(made)) == 1
    assert (
        "free on /data, has 5.0 GiB: 1 MiB for records and logs, 2 GiB for the working tree and 3 GiB for"
        in (reasons(made)[0])
    )
    apart = (on("8", "/data", 3.5), on("9", "/data/jobs", 2.5), on("a", STATE, 0.5))
    assert planned(asked, *apart).sign.value == "+"


def test_the_next_step_is_a_command_that_finds_the_room() -> None:
    made = planned(big_tree(2), on("8", "~/aic-jobs", 1), on("8", STATE, 1))
    assert made.refusal is not None
    assert [way.command for way in made.ways[:2]] == [
        "aicrun gc lab --dry-run",
        f"aicrun exec lab -- du -xd1 -h {STATE}",
    ]
    other = planned(big_tree(2), on("9", "~/aic-jobs", 1), on("8", STATE))
    assert other.ways[0].command == "aicrun exec lab -- du -xd1 -h /home/ana/aic-jobs"
    # Of a folder that is not there yet, the nearest one above it.
    new = planned(big_tree(2, workspace="/srv/new/jobs"), on("9", "/srv/new/jobs", 1, place="/srv"), on("8", STATE))
    assert new.ways[0].command == "aicrun exec lab -- du -xd1 -h /srv"
    few = planned(big_tree(0.1), on("9", "~/aic-jobs", free_inodes=9), on("8", STATE))
    assert few.ways[0].command == "aicrun exec lab -- du -xd1 --inodes /home/ana/aic-jobs"


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ({"free_inodes": 2999}, ["inodes: asks 3,000 free inodes on /home/ana/aic-jobs, has 2,999"]),
        ({"free_inodes": 3000}, []),
        ({"free_inodes": 0, "total_inodes": 0, "filesystem": "btrfs"}, []),
        ({"free_inodes": 0, "total_inodes": 0, "filesystem": "ext4"}, []),
    ],
)
def test_files_need_inodes_where_there_is_a_number_of_them(counts: dict[str, Any], told: list[str]) -> None:
    assert reasons(planned(big_tree(0.1), on("9", "~/aic-jobs", **counts), on("8", STATE))) == told


def test_a_full_state_folder_refuses_a_run_that_writes_elsewhere() -> None:
    made = planned(wish(spec()), on("9", "~/aic-jobs"), on("8", STATE, 0.0005))
    assert [line.partition(":")[0] for line in reasons(made)] == ["disk"]
    assert STATE in reasons(made)[0]
    few = planned(wish(spec()), on("9", "~/aic-jobs"), on("8", STATE, free_inodes=INODES_LEAST - 1))
    assert [line.partition(":")[0] for line in reasons(few)] == ["inodes"]


@pytest.mark.parametrize(
    ("setup", "driver", "least"),
    [
        (SetupSpec(packages=("torch==2.8.0", "peft")), "570.1", TORCH_CUDA),
        (SetupSpec(packages=("torch",)), "", TORCH),
        (SetupSpec(packages=("torch",), torch_backend="cpu"), "570.1", TORCH),
        (SetupSpec(packages=("torch",), torch_backend="cu128"), "", TORCH_CUDA),
        (SetupSpec(packages=("torchmetrics", "torch-geometric")), "570.1", 0),
    ],
)
def test_an_environment_that_is_to_be_built_needs_room_and_one_that_is_ready_needs_none(
    setup: SetupSpec, driver: str, least: int
) -> None:
    one = wish(spec(setup=setup))
    cards = Cards("devices", driver=driver, cuda="12.8")
    view = answered("lab", cards, machine("lab"), pythons=PYTHONS)
    assert view.reading is not None
    found = [room for room in needed_room(one, view.machine, view.reading) if room.env]
    assert [room.path for room in found] == ["/data/aicrun/envs"]
    assert found[0].bytes - least < 64 << 20
    ready = answered("lab", cards, machine("lab"), pythons=PYTHONS, envs_ready=(found[0].env,))
    assert ready.reading is not None
    assert [room for room in needed_room(one, ready.machine, ready.reading) if room.env] == []


PACKAGE = """
[[package]]
name = "{}"
version = "{}"
source = {{ registry = "https://pypi.org/simple" }}
{}wheels = [
{}]
"""
WHEEL = '    {{ url = "https://files.org/{}.whl", hash = "sha256:00", size = {} }},\n'


def test_a_lock_tells_how_much_it_brings_at_least() -> None:
    arm, amd = ("torch-2-cp312-cp312-manylinux_2_28_" + name for name in ("aarch64", "x86_64"))
    needs = 'dependencies = [\n    { name = "nvidia-cudnn-cu12", marker = "sys_platform == \'linux\'" },\n]\n'
    lock = locked("{project: true}").files["uv.lock"].partition('[[package]]\nname = "torch"')[0]
    lock += PACKAGE.format("torch", "2", needs, WHEEL.format(arm, 90) + WHEEL.format(amd, 800))
    lock += PACKAGE.format("nvidia-cudnn-cu12", "9", "", WHEEL.format("c-9-py3-none-manylinux1_x86_64", 600))
    lock += PACKAGE.format("pytest", "8", "", WHEEL.format("pytest-8-py3-none-any", 5000))
    assert download_bytes(lock, "x86_64") == 1400
    assert download_bytes(lock, "aarch64") == 90
    # Of a package in two builds, only what both need is sure.
    cpu = PACKAGE.format("torch", "2+cpu", "", WHEEL.format(amd, 200))
    assert download_bytes(lock + cpu, "x86_64") == 200
    head, _, rest = lock.partition('\n[[package]]\nname = "torch"')
    assert download_bytes(f'{head}{cpu}\n[[package]]\nname = "torch"{rest}', "x86_64") == 200
    assert download_bytes("", "x86_64") == 0


def test_a_lock_that_brings_more_than_there_is_is_refused_before_anything_is_fetched() -> None:
    lock = locked("{project: true}").files["uv.lock"]
    big = lock.replace('hash = "sha256:00" }', 'hash = "sha256:00", size = 3000000000 }')
    wide = locked("{project: true}", big)
    assert "the environment" in reasons(planned(wide, on("9", "/data/aicrun", 2)))[0]
    assert planned(wide, on("9", "/data/aicrun", 4)).sign.value == "+"


def test_what_is_nearly_full_is_told_once_for_each_file_system_with_its_inodes() -> None:
    low = planned(wish(spec()), on("9", "/data", 0.5), on("9", "/data/aicrun", 0.5), on("7", "~/aic-jobs"))
    assert low.warnings == ("lab: only 512.0 MiB free on /data, where this run writes",)
    few = planned(wish(spec()), on("9", "~/.cache", free_inodes=40), on("7", "~/aic-jobs"), data="")
    assert few.warnings == ("lab: only 40 free inodes on /home/ana/.cache, where this run writes",)
    state = planned(wish(spec()), on("9", "/data"), on("7", "~/aic-jobs"), on("8", STATE, 0.5))
    assert state.warnings == (f"lab: only 512.0 MiB free on {STATE}, where this run writes",)
