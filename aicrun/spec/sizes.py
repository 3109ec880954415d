"""Sizes, durations, percentages, ranges and the short form of `gpu`: from text to numbers. Pure.

Each function gives None for text that is no such measure; the schema refuses it with its place, so nothing is raised.
"""

from __future__ import annotations

import math
import re

from aicrun.spec.model import Bounds

# IEC 80000-13 for the binary units, SI for the decimal ones.
_UNITS = {
    "B": 1,
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)},
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", 1)},
    "kB": 1000,
}
_SECONDS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]iB|[kKMGT]B|B)")
_DURATION = re.compile("".join(rf"(?:([0-9]{{1,6}}){unit})?" for unit in _SECONDS))
_CARDS = re.compile(r"(?:([1-9][0-9]?) ?x ?)?(.+)")
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)*")
MIB = 1024 * 1024

# Free for what a driver and its context take besides the run's own memory.
LEAST_HEADROOM_MIB = 512
DEFAULT_HEADROOM_PERCENT = 5.0


def size_bytes(text: str) -> int | None:
    """Bytes of `20GiB`, `1.5TB`, `512 MiB`, rounded to the nearest."""
    found = _SIZE.fullmatch(text)
    return round(float(found[1]) * _UNITS[found[2]]) if found else None


def size_mib(text: str) -> int | None:
    """The same in MiB (2**20 bytes), rounded to the nearest, at least 1 for any size above zero."""
    size = size_bytes(text)
    return None if size is None else max(round(size / MIB), 1 if size else 0)


def duration_s(text: str) -> int | None:
    """Seconds of `90s`, `30m`, `1h30m`, `2d`, and of `0`."""
    if text == "0":
        return 0
    found = _DURATION.fullmatch(text)
    if not text or not found:
        return None
    return sum(int(number) * _SECONDS[unit] for number, unit in zip(found.groups(), _SECONDS, strict=True) if number)


def percent(text: str) -> float | None:
    """The number of `10%`."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)%", text)
    return float(found[1]) if found else None


def headroom_mib(text: str | None, vram_mib: int) -> int:
    """MiB to keep free on top of `vram_mib`: as written, or 5% of it and at least 512 MiB; a share is rounded up."""
    share = DEFAULT_HEADROOM_PERCENT if text is None else percent(text)
    if share is None:
        return size_mib(text or "") or 0
    # 20 GiB * 5% must be 1024 and not 1025, whatever floats make of it.
    wanted = math.ceil(round(vram_mib * share / 100, 6))
    return max(wanted, LEAST_HEADROOM_MIB) if text is None else wanted


def cards(text: str) -> tuple[int, str] | None:
    """Count and size of the short form: `20GiB` is (1, `20GiB`), `2 x 20GiB` is (2, `20GiB`)."""
    found = _CARDS.fullmatch(text)
    if not found or size_bytes(found[2]) is None:
        return None
    return int(found[1] or 1), found[2]


def size_range_mib(text: str) -> Bounds | None:
    """MiB of `24GB..48GB`; an absent side does not bound."""
    low, dots, high = text.partition("..")
    if not dots or not (low or high):
        return None
    sides = [size_mib(side) if side else None for side in (low, high)]
    if any(side and number is None for side, number in zip((low, high), sides, strict=True)):
        return None
    return Bounds(*sides)


def version_range(text: str) -> Bounds | None:
    """Tuples of numbers of `8.0..9.0`; an absent side does not bound."""
    low, dots, high = text.partition("..")
    if not dots or not (low or high) or any(side and not _VERSION.fullmatch(side) for side in (low, high)):
        return None
    return Bounds(*(tuple(int(part) for part in side.split(".")) if side else None for side in (low, high)))
