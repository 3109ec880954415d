"""The group for real cards, checked where there is none: how it reads nvidia-smi, its program, all of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest
from fake_nvml.driver import FakeDriver, can_be_built
from gpu.real import Row, allocate, rows
from support import REPOSITORY

ONE, TWO = (f"GPU-{digit * 8}-{digit * 4}-{digit * 4}-{digit * 4}-{digit * 12}" for digit in "1b")
STATE = f"""driver 570.124.06
cuda 12080
card {ONE} NVIDIA GeForce RTX 3090
  total 24576
  reserved 300
  power 30
  temperature 40
  bus 00000000:01:00.0
card {TWO} NVIDIA RTX A6000
  total 49140
  reserved 600
  power 60
  temperature 33
  bus 00000000:41:00.0
"""
pytestmark = pytest.mark.skipif(not can_be_built(), reason="no C compiler for the simulated driver")


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    found = FakeDriver(tmp_path / "driver", STATE)
    found.with_cuda()
    return found


def test_its_rows_are_what_nvidia_smi_prints() -> None:
    cards = f"0, {ONE}, NVIDIA GeForce RTX 3090, 24576, 570.124.06\n1, {TWO}, NVIDIA GB10, [N/A], 570.124.06\n"
    assert rows(cards, f"{TWO}, 4711\n") == (
        Row(0, ONE, "NVIDIA GeForce RTX 3090", 24576, "570.124.06"),
        Row(1, TWO, "NVIDIA GB10", None, "570.124.06", busy=True),
    )


@pytest.mark.parametrize(
    ("visible", "devices", "uuid"),
    [({}, 2, ONE), ({"CUDA_VISIBLE_DEVICES": "1"}, 1, TWO), ({"CUDA_VISIBLE_DEVICES": TWO}, 1, TWO)],
)
def test_its_program_takes_memory_on_device_0(
    driver: FakeDriver, visible: dict[str, str], devices: int, uuid: str
) -> None:
    env = {**os.environ, **driver.env, **visible}
    said = json.loads(subprocess.run(allocate(512, 0), env=env, capture_output=True, check=True, timeout=60).stdout)
    assert (said["devices"], said["uuid"], said["mib"]) == (devices, uuid, 512)


def test_its_program_says_which_call_failed(driver: FakeDriver) -> None:
    env = {**os.environ, **driver.env, "CUDA_VISIBLE_DEVICES": ""}
    failed = subprocess.run(allocate(512, 0), env=env, capture_output=True, text=True, check=False, timeout=60)
    assert (failed.returncode, failed.stderr.strip()) == (1, "cuInit answered 100")


@pytest.mark.slow
def test_the_whole_group_holds_on_simulated_cards(driver: FakeDriver, tmp_path: Path) -> None:
    tools, locks = tmp_path / "bin", tmp_path / "locks"
    tools.mkdir()
    locks.mkdir()
    locks.chmod(0o1777)
    shutil.copy(pynvml.__file__, tools)
    shutil.copy(REPOSITORY / "tests/fake_nvml/simulated_smi.py", tools / "smi.py")
    (tools / "nvidia-smi").write_text(f'#!/bin/sh\nexec {sys.executable} {tools}/smi.py "$@"\n')
    (tools / "nvidia-smi").chmod(0o755)
    env = {**os.environ, **driver.env, "PATH": f"{tools}:{os.environ['PATH']}", "AICRUN_TEST_LOCKS": str(locks)}
    argv = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "tests/gpu"]
    ran = subprocess.run(argv, cwd=REPOSITORY, env=env, capture_output=True, text=True, check=False, timeout=500)
    assert ran.returncode == 0, ran.stdout[-6000:]
    assert "6 passed" in ran.stdout, ran.stdout[-3000:]
