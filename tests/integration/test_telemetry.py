"""What a run used is measured while it runs, and the next plan shows it beside the demand."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_nvml.driver import FakeDriver, can_be_built
from integration.project import Project
from private_locks import made_private
from support import processes_with, until

CARDS = """
driver 570.124.06
card GPU-acac NVIDIA RTX A6000
  total 49140
  utilization 80
  power 250
  temperature 71
  bus 00000000:41:00.0
card GPU-bcbc NVIDIA RTX A6000
  total 24000
  bus 00000000:42:00.0
"""


def test_a_run_without_a_card_has_its_memory_measured(project: Project) -> None:
    project.write("python3 work.py 1")
    assert project.run("apply", "run.yaml", "--yes", "--follow").returncode == 0
    assert project.job("quick")["job"]["facts"]["memory_peak_mib"] > 0


@pytest.mark.skipif(not can_be_built(), reason="no C compiler for the simulated driver")
def test_the_peak_on_the_card_reaches_facts_notes_and_the_next_plan(project: Project, tmp_path: Path) -> None:
    if not made_private():
        pytest.skip("the machine's own lock folder cannot be kept out of the test")
    driver = FakeDriver(tmp_path / "driver", CARDS)
    project.person.env.update(driver.env)
    project.write("python3 work.py 12", more="machine: {gpu: {vram: 8GiB, uuid: GPU-acac}}\n")
    assert project.run("apply", "run.yaml", "--yes").returncode == 0
    job = project.job("quick")["job_id"]
    pid = until(lambda: processes_with(f"AICRUN_JOB_ID={job}"))[0]
    state = CARDS.replace("  bus 00000000:41", f"  holder {pid} compute 5000\n  bus 00000000:41")
    # The same process on a card that is not the job's: told, never killed.
    driver.write(state + f"  holder {pid} compute 100\n")
    until(lambda: project.job("quick")["job"]["sample"].get("vram_mib") == 5000, 60)
    shown = project.run("inspect", "quick").stdout
    now = next(line for line in shown.splitlines() if line.startswith("now: "))
    assert 'vram: "4.9 GiB", util: "80%"' in now
    assert 'power: "250 W", temperature: "71 C"' in now
    assert now.endswith("s ago")
    assert project.run("wait", "quick").returncode == 0
    facts = project.job("quick")["job"]["facts"]
    assert (facts["vram_peak_mib"], facts["utilization_mean_percent"]) == (5000, 80.0)
    assert (facts["temperature_peak_c"], facts["card_model"]) == (71, "NVIDIA RTX A6000")
    assert (facts["power_mean_w"], facts["energy_wh"] > 0) == (250.0, True)
    assert project.job("quick")["job"]["sample"] == {}
    assert "pin_violated" in [event["event"] for event in project.job("quick")["job"]["events"]]
    assert "peak 4.9 GiB" in project.run("notes").stdout
    driver.write(CARDS)
    planned = project.run("plan", "run.yaml", "--again").stdout
    assert "peak 4.9 GiB by quick on RTX A6000" in planned
