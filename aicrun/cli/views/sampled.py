"""The figures of one sample in words. What was not measured is not shown; it is no zero."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from aicrun.plan.words import gib, size


def sample_words(sample: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """(label, figure with its unit) of a running command: as it is now, with the peak where that was higher."""
    peaks = sample.get("peaks")
    peak: Mapping[str, Any] = peaks if isinstance(peaks, Mapping) else {}
    rows = (
        ("vram", _with_peak(_number(sample, "vram_mib"), _number(peak, "vram_peak_mib"))),
        ("util", _figure(_number(sample, "utilization_percent"), "%")),
        ("memory", _with_peak(_number(sample, "memory_mib"), _number(peak, "memory_peak_mib"))),
        ("power", _figure(_number(sample, "power_w"), " W")),
        ("temperature", _figure(_number(sample, "temperature_c"), " C")),
        ("energy", _figure(_number(peak, "energy_wh"), " Wh")),
        ("output_free", _bytes(_number(sample, "output_free_bytes"))),
    )
    return tuple((label, told) for label, told in rows if told)


def _number(values: Mapping[str, Any], key: str) -> float | None:
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _with_peak(now: float | None, peak: float | None) -> str:
    if now is None:
        return ""
    higher = f", peak {gib(int(peak))}" if peak is not None and peak > now else ""
    return gib(int(now)) + higher


def _figure(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.0f}{unit}"


def _bytes(value: float | None) -> str:
    return "" if value is None else size(int(value))
