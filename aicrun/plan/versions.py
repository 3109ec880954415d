"""Versions and their ranges as a spec writes them (`>=3.10,<3.13`, `3.11`, `3.10..3.12`) against what a host has.

It must not know what the versions are of.
"""

from __future__ import annotations

import re

from aicrun.spec.model import Bounds

Version = tuple[int, ...]
_TERM = re.compile(r"\s*(>=|<=|==|!=|~=|>|<)?\s*(\d+(?:\.\d+)*)(\.\*)?\s*\Z")


def parse(text: str) -> Version:
    """The leading numbers of `text`: `570.124.06` is (570, 124, 6); empty when there are none."""
    found = re.match(r"\s*(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in found.group(1).split(".")) if found else ()


def within(version: Version, bounds: Bounds) -> bool:
    """Whether `version` lies in the closed range; a side is compared as far as it is written (`..12` admits 12.4)."""
    low, high = bounds.low, bounds.high
    above = low is None or _padded(version, len(low)) >= tuple(low)
    return above and (high is None or _padded(version, len(high)) <= tuple(high))


def admits(wanted: str, version: str) -> bool:
    """Whether the range `wanted` admits `version`; the empty range admits all, a bare `3.11` means 3.11.x."""
    have = parse(version)
    if ".." in wanted:
        low, _, high = wanted.partition("..")
        return within(have, Bounds(parse(low) or None, parse(high) or None))
    return all(_term_admits(term, have) for term in wanted.split(",") if term.strip())


def _term_admits(term: str, have: Version) -> bool:
    found = _TERM.match(term)
    if not found:
        return False
    sign, written, star = found.groups()
    want = parse(written)
    length = max(len(want), len(have))
    ours, theirs = _padded(have, length), _padded(want, length)
    is_prefix = _padded(have, len(want)) == want
    return {
        None: is_prefix,
        "==": is_prefix if star or len(want) < 3 else ours == theirs,
        "!=": not (is_prefix if star or len(want) < 3 else ours == theirs),
        ">=": ours >= theirs,
        "<=": ours <= theirs or is_prefix,
        ">": ours > theirs and not is_prefix,
        "<": ours < theirs,
        "~=": ours >= theirs and _padded(have, len(want) - 1) == want[:-1],
    }[sign]


def _padded(version: Version, length: int) -> Version:
    return (version + (0,) * length)[:length]
