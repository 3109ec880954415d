"""What a series of samples comes to, and that its file never exceeds its cap."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from aicrun.agent.outlook import sample
from aicrun.agent.telemetry import Measured, Peaks, Series, Warnings, facts_of, measured
from aicrun.wire.jobs import Client, JobRequest


def test_peaks_and_means_of_a_series() -> None:
    peaks = Peaks()
    peaks.add({"t_s": 0.0, "memory_mib": 10, "vram_mib": 100, "utilization_percent": 50, "power_w": 100})
    peaks.add({"t_s": 36.0, "memory_mib": 30, "vram_mib": 90, "utilization_percent": 100, "power_w": 300})
    peaks.add({"t_s": 72.0, "memory_mib": 20, "output_free_bytes": 7})
    assert peaks.facts() == {
        "samples": 3,
        "memory_peak_mib": 30,
        "vram_peak_mib": 100,
        "utilization_mean_percent": 75.0,
        "power_mean_w": 200.0,
        "energy_wh": 3.0,
        "output_free_least_bytes": 7,
    }


def test_what_was_never_measured_is_absent() -> None:
    assert Peaks().facts() == {"samples": 0}


def test_the_file_stays_below_its_cap_and_keeps_first_and_last(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.jsonl"
    series = Series(str(path), 2000)
    for number in range(1000):
        series.add({"t_s": number})
        assert path.stat().st_size <= 2000
    times = [json.loads(line)["t_s"] for line in path.read_text().splitlines()]
    assert times[0] == 0
    assert times[-1] == 999
    assert times == sorted(times)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_torn_summary_measures_nothing(tmp_path: Path) -> None:
    assert facts_of(str(tmp_path)) == {}
    (tmp_path / "telemetry.json").write_text("{")
    assert facts_of(str(tmp_path)) == {}


def test_a_run_without_cards_asks_no_driver(tmp_path: Path) -> None:
    request = JobRequest("0" * 16, "a-run", "0" * 16, "", "", Client("", "", ""), {}, str(tmp_path), ("true",))
    found = measured(request, frozenset(), 1.0)
    assert sorted(found.sample) == ["memory_mib", "output_free_bytes", "t_s"]
    assert (found.strays, found.model, found.is_on_cards) == ((), "", None)


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        ([(False, 299.0), (False, 300.0), (False, 900.0)], ["card_unused"]),
        ([(True, 5.0), (False, 300.0), (False, 900.0)], []),
        ([(None, 5.0), (False, 900.0)], []),
        ([(False, 299.0)], []),
    ],
)
def test_a_card_that_was_never_used_is_told_once(
    tmp_path: Path, looks: list[tuple[bool | None, float]], told: list[str]
) -> None:
    warnings = Warnings(str(tmp_path))
    for is_on_cards, passed_s in looks:
        warnings.look(Measured({"t_s": passed_s}, is_on_cards=is_on_cards))
    path = tmp_path / "events.jsonl"
    seen = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    assert [one["event"] for one in seen] == told
    assert all(one["detail"] == "no process of it was seen on its cards in 300 s" for one in seen)


def test_what_a_command_takes_now_has_an_age_and_its_peaks_and_no_part_in_the_facts(tmp_path: Path) -> None:
    assert sample(str(tmp_path), 0.0) == {}
    path = tmp_path / "telemetry.json"
    path.write_text(
        json.dumps({"schema": 1, "samples": 2, "memory_peak_mib": 30, "last": {"t_s": 9.0, "memory_mib": 8}})
    )
    os.utime(path, (1000.0, 1000.0))
    told = {"t_s": 9.0, "memory_mib": 8, "age_s": 15.5, "peaks": {"samples": 2, "memory_peak_mib": 30}}
    assert sample(str(tmp_path), 1015.5) == told
    # A clock that went back makes nothing younger than now.
    assert sample(str(tmp_path), 10.0)["age_s"] == 0.0
    assert facts_of(str(tmp_path)) == {"samples": 2, "memory_peak_mib": 30}
    # An older version wrote no sample beside its peaks.
    path.write_text('{"schema": 1, "samples": 2}')
    assert sample(str(tmp_path), 10.0) == {}
