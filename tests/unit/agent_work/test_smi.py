"""Cards as `nvidia-smi` prints them: recorded answers as case files, then a tool of that name where NVML is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_nvml.tool import ROW, Tool
from support import P38, REPOSITORY

from aicrun.agent import smi
from aicrun.agent.smi import FIELDS, Said
from aicrun.wire.codec import from_json, load
from aicrun.wire.facts import Cards

CASES = sorted((REPOSITORY / "tests/cases/smi").glob("*.yaml"))
NAMES = tuple(FIELDS)
ASK = (
    "import sys, os; sys.path[:0] = [sys.argv[1]]; from aicrun.agent import cards; from aicrun.wire.codec import dump; "
)
ASK += "sys.stdout.buffer.write(dump(cards.cards(os.environ, float(sys.argv[2]))))"


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_recorded_answer_is_read_as_it_is(path: Path) -> None:
    case = yaml.safe_load(path.read_text("utf-8"))
    found = smi.read_cards(Said(case.get("code", 0), case["gpus"]), NAMES)
    assert {key: getattr(found, key) for key in case["expect"]} == case["expect"]
    wanted = case.get("cards", [])
    assert len(found.cards) == len(wanted)
    for card, values in zip(found.cards, wanted, strict=True):
        assert {key: getattr(card, key) for key in values} == values
    assert found.state == "devices" or found.detail


@pytest.mark.parametrize("nothing", ["[N/A]", "[Not Supported]", "[Unknown Error]", "N/A", "ERR!", "", "[GPU is lost]"])
@pytest.mark.parametrize("field", [name for name in NAMES if name not in ("index", "driver_version")])
def test_no_value_is_made_up_for_one_that_is_missing(field: str, nothing: str) -> None:
    values = dict(zip(NAMES, ROW.split(", "), strict=True), **{field: nothing})
    (card,) = smi.read_cards(Said(0, ", ".join(values.values())), NAMES).cards
    assert getattr(card, FIELDS[field]) in (None, "", "unknown", "unsupported", False)
    assert FIELDS[field] in card.unreadable or card.mig == "unsupported"
    assert (card.state == "lost") is (nothing == "[GPU is lost]")


@pytest.mark.parametrize(
    ("said", "rows"),
    [
        (Said(0, ""), {}),
        (Said(0, "GPU-a, 4711, 900\nGPU-a, 12, [N/A]\nGPU-b, 4711, [Insufficient Permissions]\n"), "three"),
        (Said(0, "No running processes found\n"), None),
        (Said(0, "GPU-a, [N/A], 900\n"), None),
        (Said(9, "GPU-a, 4711, 900\n"), None),
        (Said(None), None),
    ],
)
def test_a_process_table_that_cannot_be_read_is_not_empty(said: Said, rows: Any) -> None:
    three = {"GPU-a": [(4711, "compute", 900), (12, "compute", None)], "GPU-b": [(4711, "compute", None)]}
    assert smi.read_processes(said) == (three if rows == "three" else rows)


def cards_by(tool: Tool, deadline_s: float = 20.0, python: str = sys.executable) -> Cards:
    """What the agent's probe makes of it, in a process of its own."""
    argv = [python, "-I", "-S", "-c", ASK, str(REPOSITORY), str(deadline_s)]
    said = subprocess.run(argv, env=tool.env, capture_output=True, check=True, timeout=60).stdout
    return from_json(Cards, load(said))


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return Tool(tmp_path / "bin")


@pytest.mark.parametrize("python", [sys.executable, *([str(P38)] if P38 else [])])
def test_where_nvml_cannot_be_had_the_tool_is_asked(tool: Tool, python: str) -> None:
    (tool.folder / "apps").write_text(f"GPU-aaaa, {os.getpid()}, 900\n")
    found = cards_by(tool, python=python)
    assert (found.state, found.source, found.driver, found.cuda) == ("devices", "nvidia-smi", "550.54.14", "12.4")
    assert found.detail.startswith("NVML could not be asked: ")
    (card,) = found.cards
    assert (card.uuid, card.vram_free_mib, card.utilization_percent) == ("GPU-aaaa", 48539, 7)
    (process,) = card.processes
    assert (process.pid, process.vram_mib, process.kind) == (os.getpid(), 900, "compute")
    assert process.user == (os.environ.get("USER") or "root")


def test_an_older_tool_is_asked_for_what_it_knows(tool: Tool) -> None:
    (tool.folder / "lacking").write_text("compute_cap memory.reserved")
    (card,) = cards_by(tool).cards
    assert (card.vram_free_mib, card.vram_reserved_mib, card.compute_capability) == (48539, None, "")
    assert card.unreadable == {}


def test_a_tool_that_hangs_is_given_up_with_the_probe_and_does_not_stay(tool: Tool) -> None:
    (tool.folder / "hang").touch()
    began = time.monotonic()
    found = cards_by(tool, deadline_s=1.0)
    assert (found.state, found.reason) == ("unknown", "timeout")
    assert time.monotonic() - began < 10
    assert not [pid for pid in _pids() if b"sleep\x0060" in _words(pid) and str(tool.folder).encode() in _path_of(pid)]


def test_a_tool_that_fails_takes_nothing_away_from_what_was_known(tool: Tool) -> None:
    (tool.folder / "broken").write_text(
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    )
    found = cards_by(tool)
    # pynvml may lie in this interpreter or not; either way no driver and no card were found before.
    assert (found.state, found.reason) == ("none", "no_driver")


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _words(pid: int) -> bytes:
    return _read(f"/proc/{pid}/cmdline")


def _path_of(pid: int) -> bytes:
    return _read(f"/proc/{pid}/environ")


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
