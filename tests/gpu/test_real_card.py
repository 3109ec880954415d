"""On a machine with a card: what the driver really says and does. `make gpu` runs it; elsewhere it is skipped.

It takes 512 MiB of a card that nobody computes on, for seconds, under the machine's own locks.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest
from agent_rig import Refusal, Rig, lives
from gpu.real import Row, allocate, environment, idle, listed
from support import until

from aicrun.wire.codec import from_json, to_json
from aicrun.wire.facts import Card, Cards
from aicrun.wire.seen import InLine
from aicrun.wire.status import Status

pytestmark = pytest.mark.skipif(not listed()[0], reason=listed()[1] or "a driver without a card")

MIB = 512
# What a context of CUDA takes beside what was asked for, on the largest cards.
CONTEXT_MIB = 2048


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A host with the real agent and the driver of this machine."""
    host = Rig(tmp_path)
    shutil.copy(pynvml.__file__, host.agent / "pynvml.py")
    host.env.update(environment())
    yield host
    host.close()


@pytest.fixture
def card() -> Row:
    """A card that nobody computes on."""
    found = idle()
    if not found:
        pytest.skip("somebody computes on every card here")
    return found[0]


def cards_of(rig: Rig) -> Cards:
    question = {"runs": [], "paths": [], "data": ""}
    return from_json(Cards, rig.call("survey", question=question)["reading"]["cards"])


def one_of(rig: Rig, uuid: str) -> Card:
    return next(card for card in cards_of(rig).cards if card.uuid == uuid)


def start(rig: Rig, run: str, command: tuple[str, ...], *cards: Row, **more: Any) -> str:
    name, _, value = rig.mark.partition("=")
    env = {name: value, **environment(), **more.pop("env", {})}
    request = rig.request(run, command, cards=tuple(row.uuid for row in cards), env=env, **more)
    assert rig.call("reserve", request=to_json(request), confirm=True)["answer"] == "ok"
    return request.job_id


def said(rig: Rig, job_id: str) -> Any:
    """What the program said once it had its memory."""
    rig.running(job_id)
    return json.loads(until(lambda: rig.log(job_id).decode().partition("\n")[0], 60))


@contextlib.contextmanager
def stranger(row: Row) -> Iterator[subprocess.Popen[bytes]]:
    """Somebody who computes on the card and stands in no line."""
    env = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": row.uuid}
    process = subprocess.Popen(allocate(MIB, 300), env=env, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["uuid"] == row.uuid
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_inventory_is_what_nvidia_smi_tells(rig: Rig) -> None:
    found = cards_of(rig)
    rows = listed()[0]
    assert (found.state, found.source, found.driver) == ("devices", "nvml", rows[0].driver)
    assert found.cuda
    assert [(card.index, card.uuid, card.model) for card in found.cards] == [
        (row.index, row.uuid, row.model) for row in rows
    ]
    for card, row in zip(found.cards, rows, strict=True):
        assert card.state == "ok"
        assert abs((card.vram_total_mib or 0) - (row.total_mib or 0)) <= 1
        assert card.pci_bus_id
        assert card.compute_capability


def test_nvidia_smi_alone_tells_the_same(rig: Rig) -> None:
    by_nvml = cards_of(rig)
    rig.close()
    (rig.agent / "pynvml.py").unlink()
    by_tool = cards_of(rig)
    assert (by_tool.state, by_tool.source) == ("devices", "nvidia-smi")
    assert (by_tool.driver, by_tool.cuda) == (by_nvml.driver, by_nvml.cuda)
    for one, other in zip(by_tool.cards, by_nvml.cards, strict=True):
        assert (one.index, one.uuid, one.model, one.pci_bus_id.lower()) == (
            other.index,
            other.uuid,
            other.model,
            other.pci_bus_id.lower(),
        )
        assert (one.vram_total_mib, one.mig, one.compute_mode) == (
            other.vram_total_mib,
            other.mig,
            other.compute_mode,
        )
        assert one.compute_capability in (other.compute_capability, "")


def test_the_leased_card_is_device_0_its_memory_is_measured_and_it_is_free_afterwards(rig: Rig, card: Row) -> None:
    job = start(rig, "gpu-lease", allocate(MIB, 8), card)
    told = said(rig, job)
    assert (told["devices"], told["uuid"]) == (1, card.uuid)
    holder = one_of(rig, card.uuid).holder
    assert holder is not None
    assert (holder.run, holder.yours) == ("gpu-lease", True)
    report = rig.ended(job, 60)
    assert rig.standing(job).status is Status.SUCCEEDED
    facts = until(lambda: rig.report(job).facts, 60)
    assert MIB <= facts["vram_peak_mib"] <= MIB + CONTEXT_MIB
    assert facts["card_model"] == card.model
    assert not [one for one in report.events if one.event in ("pin_violated", "card_busy")]
    assert one_of(rig, card.uuid).holder is None
    assert card.uuid in [row.uuid for row in idle(len(listed()[0]))]


def test_a_stranger_on_the_card_is_named_and_waited_for(rig: Rig, card: Row) -> None:
    with stranger(card) as process:
        seen = one_of(rig, card.uuid)
        if not seen.processes_listed:
            pytest.skip("nobody can list the processes on a card here (a container)")
        assert process.pid in [one.pid for one in seen.processes]
        with pytest.raises(Refusal) as refused:
            start(rig, "gpu-now", ("true",), card, queue_wait_s=0)
        assert refused.value.token == "gpu_busy"
        job = start(rig, "gpu-later", ("true",), card)
        until(lambda: f"pid {process.pid}" in (rig.report(job).line or InLine(())).why, 60)
        assert rig.standing(job).status is Status.ENQUEUED
    assert rig.ended(job, 60).card_allocated


def test_a_job_that_goes_to_another_card_is_told(rig: Rig) -> None:
    cards = idle(2)
    if len(cards) < 2:
        pytest.skip("one idle card only")
    job = start(rig, "gpu-strays", ("env", f"CUDA_VISIBLE_DEVICES={cards[1].uuid}", *allocate(MIB, 8)), cards[0])
    assert said(rig, job)["uuid"] == cards[1].uuid
    if not one_of(rig, cards[0].uuid).processes_listed:
        pytest.skip("nobody can list the processes on a card here (a container)")
    report = rig.ended(job, 60)
    assert [one.event for one in report.events if one.event == "pin_violated"] == ["pin_violated"]


def test_a_killed_run_gives_its_card_to_the_next_when_its_process_is_gone(rig: Rig, card: Row) -> None:
    first = start(rig, "gpu-killed", allocate(MIB, 300), card)
    said(rig, first)
    pid = rig.running(first)
    second = start(rig, "gpu-next", ("true",), card)
    until(lambda: rig.standing(second).status is Status.ENQUEUED, 60)
    os.kill(rig.keeper(first), signal.SIGKILL)
    assert rig.standing(second).status is Status.ENQUEUED
    os.kill(pid, signal.SIGKILL)
    until(lambda: not lives(pid), 60)
    assert rig.ended(second, 90).card_allocated
    assert rig.standing(second).status is Status.SUCCEEDED
