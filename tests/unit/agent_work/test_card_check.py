"""What a job finds of its cards: their places in PCI order, whatever order the driver, a program or a reboot gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from aicrun.agent.card_check import environment
from aicrun.agent.cards import is_module
from aicrun.wire.facts import Card, Cards

SMALL = Card(0, "GPU-small", "NVIDIA T400", pci_bus_id="00000000:05:00.0")
BIG = Card(1, "GPU-big", "NVIDIA RTX A6000", pci_bus_id="00000000:41:00.0")


def moved(card: Card, index: int, bus: str) -> Card:
    return Card(index, card.uuid, card.model, pci_bus_id=bus)


@pytest.mark.parametrize(
    ("cards", "wanted", "visible"),
    [
        ((SMALL, BIG), ("GPU-big",), "1"),
        # The driver's own order is no place on the bus: a hexadecimal one, and a longer domain.
        ((moved(BIG, 0, "00000000:C1:00.0"), moved(SMALL, 1, "00000000:9:00.0")), ("GPU-big",), "1"),
        ((moved(BIG, 0, "0000:41:00.0"), moved(SMALL, 1, "00000000:05:00.0")), ("GPU-big",), "1"),
        # After a reboot the two have changed places: the same card, another number.
        ((moved(BIG, 0, "00000000:05:00.0"), moved(SMALL, 1, "00000000:41:00.0")), ("GPU-big",), "0"),
        # Several are named in the order of their places, so that device 0 is the first of them.
        ((moved(BIG, 0, "00000000:41:00.0"), moved(SMALL, 1, "00000000:05:00.0")), ("GPU-big", "GPU-small"), "0,1"),
        # A place that cannot be told: then by identity, for a wrong number would be another's card.
        ((SMALL, moved(BIG, 1, "")), ("GPU-big",), "GPU-big"),
    ],
)
def test_the_card_is_found_by_its_identity_and_named_by_its_place(
    cards: tuple[Card, ...], wanted: tuple[str, ...], visible: str
) -> None:
    found = environment(wanted, Cards("devices", cards=cards))
    assert (found["CUDA_DEVICE_ORDER"], found["CUDA_VISIBLE_DEVICES"]) == ("PCI_BUS_ID", visible)
    assert sorted(found["AICRUN_GPU_UUIDS"].split(",")) == sorted(wanted)
    assert found["AICRUN_GPU_COUNT"] == str(len(wanted))


def test_an_embedded_module_is_told_by_the_machine_s_own_table(tmp_path: Path) -> None:
    table = tmp_path / "compatible"
    assert not is_module(str(table))
    table.write_bytes(b"raspberrypi,4-model-b\0brcm,bcm2711\0")
    assert not is_module(str(table))
    table.write_bytes(b"nvidia,p3737-0000+p3701-0005\0nvidia,tegra234\0")
    assert is_module(str(table))
