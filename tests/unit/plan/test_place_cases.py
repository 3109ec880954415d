"""Every rule of choice is a file in `tests/cases/place`: a fleet, runs, which card each gets and why others lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from support import REPOSITORY
from unit.plan.worlds import GIB, answered, card, demand, disk, fleet, held, job, machine, reading, spec, stranger, wish

from aicrun.plan.decide import plan
from aicrun.plan.model import Fleet, MachineView, Options, Plan, RunPlan, Wanted
from aicrun.plan.nearest import place_name
from aicrun.spec.model import Bounds, DiskDemand, Selector, SetupSpec
from aicrun.wire.facts import Card, CardProcess, Cards, Drain, Python

CASES = sorted((REPOSITORY / "tests/cases/place").glob("*.yaml"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_card_chosen_and_every_rejection(path: Path) -> None:
    case = yaml.safe_load(path.read_text("utf-8"))
    made = plan(_wishes(case), _fleet(case), Options(**case.get("options", {})))
    for item in made.runs:
        told = case["chosen"][item.run]
        assert [place_name(one) for one in item.chosen] == told, (item.headline, _rejections(item))
        if item.run in case.get("rejections", {}):
            assert _rejections(item) == case["rejections"][item.run]
        _compare_the_rest(case, item)
        assert (item.draft is not None) is bool(told)


def _compare_the_rest(case: dict[str, Any], item: RunPlan) -> None:
    unknown = [place_name(one.candidate) for one in item.verdicts if one.unknown]
    assert unknown == case.get("unknown", {}).get(item.run, [])
    if item.run in case.get("warnings", {}):
        assert list(item.warnings) == case["warnings"][item.run]
    refused = item.refusal.exit if item.refusal is not None else None
    assert refused == case.get("exit", {}).get(item.run)
    expected = case.get("sign", {}).get(item.run, "+" if item.chosen else "x")
    assert item.sign.value == expected
    for place, remark in case.get("remarks", {}).get(item.run, {}).items():
        verdict = next(one for one in item.verdicts if place_name(one.candidate) == place)
        assert remark in verdict.remarks


def _rejections(item: RunPlan) -> dict[str, list[str]]:
    return {
        place_name(one.candidate): [f"{why.token} {'lasting' if why.lasting else 'now'}" for why in one.rejections]
        for one in item.verdicts
        if one.rejections
    }


def _fleet(case: dict[str, Any]) -> Fleet:
    return fleet(*(_machine(dict(entry)) for entry in case["machines"]))


def _machine(entry: dict[str, Any]) -> MachineView:
    name, state = entry.pop("name"), entry.pop("state", "answered")
    own = {key: entry.pop(key) for key in ("labels", "data", "max_jobs", "shared_memory") if key in entry}
    found = machine(name, keep_free=tuple(entry.pop("keep_free", ())), **own)
    if state != "answered":
        return MachineView(found, state, why=state)
    cards = tuple(_card(place, dict(one)) for place, one in enumerate(entry.pop("cards", ())))
    found_cards: Any = cards
    more: dict[str, Any] = {key: entry.pop(key) for key in ("cpus", "cpus_free", "active_jobs") if key in entry}
    versions = {key: entry.pop(key) for key in ("driver", "cuda") if key in entry}
    if "memory" in entry:
        more["memory_mib"] = entry.pop("memory") * GIB
        more["memory_free_mib"] = entry.pop("memory_free", 8000) * GIB
    if "pythons" in entry:
        more["pythons"] = tuple(Python(f"/usr/bin/python{text}", text) for text in entry.pop("pythons"))
    if "drain" in entry:
        more["drain"] = Drain(entry.pop("drain"), True, 7200.0, "new power supply")
    if "disk" in entry:
        path, free, total = entry.pop("disk")
        more["disks"] = (disk(path, free, total), disk("/home/ana/aic-jobs", 200))
    if "volume" in entry:
        more["disks"] = (disk("/home/ana/aic-jobs", 200, **entry.pop("volume")),)
    if versions:
        found_cards = Cards("devices", cards=cards, **{"driver": "570.1", "cuda": "12.8", **versions})
    if "cards_unknown" in entry:
        found_cards = Cards("unknown", "probe_failed", entry.pop("cards_unknown"))
    assert not entry, f"{name}: {entry} is not understood"
    return answered(name, found_cards, found, **more)


def _card(place: int, one: dict[str, Any]) -> Card:
    is_told = one.get("free", 0) is not None
    total, free = one.pop("total", 24), one.pop("free", None)
    holder = one.pop("holder", "")
    processes = [stranger(*row) for row in one.pop("compute", ())]
    processes += [
        CardProcess(pid, "graphics", round(gib * GIB), user, name) for pid, name, user, gib in one.pop("graphics", ())
    ]
    if "reserved_mib" in one:
        one["vram_reserved_mib"] = one.pop("reserved_mib")
    if holder:
        run, _, account = holder.partition(" of ")
        one["holder"] = held(run, account, 3600.0)
    if total is None:
        one |= {"vram_total_mib": None, "vram_free_mib": None}
    elif not is_told:
        one["vram_free_mib"] = None
    return card(one.pop("index", place), one.pop("model"), total or 24, free, processes=tuple(processes), **one)


def _wishes(case: dict[str, Any]) -> tuple[Wanted, ...]:
    return tuple(_wish(dict(one)) for one in case["runs"])


def _wish(one: dict[str, Any]) -> Wanted:
    gpu = one.pop("gpu", None)
    selector = Selector(
        names=tuple(one.pop("names", ())),
        labels=one.pop("labels", {}),
        gpu=_demand(dict(gpu)) if gpu else None,
        cpus=one.pop("cpus", None),
        memory_mib=one["memory"] * GIB if "memory" in one else None,
        disk=DiskDemand("/data", one["disk"] * GIB**3) if "disk" in one else None,
    )
    more: dict[str, Any] = {"machine": selector}
    if "wait" in one:
        more["queue_wait_s"] = one.pop("wait")
    if "python" in one:
        more["setup"] = SetupSpec(one.pop("python"), ("torch",))
    if "command" in one:
        more["command"] = (one.pop("command"),)
    return wish(spec(one["name"], **more))


def _demand(gpu: dict[str, Any]) -> Any:
    more: dict[str, Any] = {}
    for key in ("driver", "cuda", "compute_capability"):
        if key in gpu:
            low, high = gpu.pop(key)
            more[key] = Bounds(tuple(low) if low else None, tuple(high) if high else None)
    if "total_vram" in gpu:
        low, high = gpu.pop("total_vram")
        more["total_vram_mib"] = Bounds(low * GIB, high * GIB)
    if "models" in gpu:
        more["models"] = tuple(gpu.pop("models"))
    return demand(gpu.pop("vram"), gpu.pop("headroom", None), **gpu, **more)


def test_a_reading_without_a_single_card_still_gives_one_verdict() -> None:
    bare = MachineView(machine("odd"), "answered", reading("odd", cards=()))
    made: Plan = plan((wish(spec(machine=Selector(gpu=demand()))),), fleet(bare), Options())
    assert [place_name(one.candidate) for one in made.runs[0].verdicts] == ["odd"]


def test_a_card_is_held_by_its_identity_though_a_reboot_has_swapped_the_numbers() -> None:
    cards = (card(0, "RTX A6000", 48), card(1, "RTX 3090", 24))
    wanted = wish(spec("mine", machine=Selector(gpu=demand(8))))
    ours = job(wish(spec("other")), cards=(cards[1].uuid,), card_indexes=(0,))
    made = plan((wanted,), fleet(answered("lab", cards, jobs=(ours,))), Options())
    assert [place_name(one) for one in made.runs[0].chosen] == ["lab[0]"]
    assert _rejections(made.runs[0]) == {"lab[1]": ["held now"]}
