"""Sizes, durations and ranges: what they are worth, and that the schema's patterns admit exactly what is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicrun.spec import sizes
from aicrun.spec.grammar import grammar
from aicrun.spec.model import Bounds
from aicrun.spec.validity import compiled

RUN = grammar("run").schema


@pytest.mark.parametrize(
    ("text", "mib"),
    [("20GiB", 20480), ("20GB", 19073), ("512MiB", 512), ("1.5 TiB", 1572864), ("1B", 1), ("0GiB", 0), ("1kB", 1)],
)
def test_size_mib(text: str, mib: int) -> None:
    assert sizes.size_mib(text) == mib


@pytest.mark.parametrize("text", ["", "20", "20G", "20gib", "-1GiB", "20  GiB", "GiB", "1e3GiB", "20GiB\n"])
def test_no_size(text: str) -> None:
    assert sizes.size_bytes(text) is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("1h30m", 5400), ("2d", 172800), ("1w1s", 604801), ("0", 0)]
)
def test_duration(text: str, seconds: int) -> None:
    assert sizes.duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "12", "30m1h", "1.5h", "-3h", "1h 30m", "90 s", "h"])
def test_no_duration(text: str) -> None:
    assert sizes.duration_s(text) is None


@pytest.mark.parametrize(
    ("written", "vram", "mib"),
    [
        (None, 20480, 1024),
        (None, 4096, 512),
        (None, 81920, 4096),
        ("5%", 4096, 205),
        ("0%", 20480, 0),
        ("1GiB", 1, 1024),
    ],
)
def test_headroom(written: str | None, vram: int, mib: int) -> None:
    assert sizes.headroom_mib(written, vram) == mib


def test_short_form_of_cards() -> None:
    assert sizes.cards("20GiB") == (1, "20GiB")
    assert sizes.cards("2 x 20GiB") == sizes.cards("2x20GiB") == (2, "20GiB")
    assert sizes.cards("0 x 20GiB") is None
    assert sizes.cards("2 x 20") is None


def test_ranges() -> None:
    assert sizes.size_range_mib("24GiB..48GiB") == Bounds(24576, 49152)
    assert sizes.size_range_mib("..48GiB") == Bounds(None, 49152)
    assert sizes.version_range("8.0..") == Bounds((8, 0), None)
    assert sizes.version_range("12.4..12.8") == Bounds((12, 4), (12, 8))
    assert sizes.version_range("..") is sizes.size_range_mib("24GiB") is sizes.version_range("8..x") is None


def definition(name: str) -> object:
    return compiled({"$defs": RUN["$defs"], "$ref": f"#/$defs/{name}"})


@given(
    st.one_of(
        st.from_regex(r"[0-9wdhms. ]{0,9}", fullmatch=True), st.from_regex(r"[0-9]{1,3}[wdhms]{1,2}[0-9mhs]{0,3}")
    )
)
def test_the_schema_admits_exactly_the_durations_that_are_read(text: str) -> None:
    admitted = definition("duration")(text)  # type: ignore[operator]  # a function of one value
    assert admitted == bool(sizes.duration_s(text) and text != "0")


@given(st.from_regex(r"[0-9]{0,3}(\.[0-9]?)? ?[kKMGTiB]{0,3}", fullmatch=True))
def test_the_schema_admits_exactly_the_sizes_that_are_read(text: str) -> None:
    zero = not any(char in "123456789" for char in text)
    assert definition("size")(text) == (sizes.size_bytes(text) is not None and not zero)  # type: ignore[operator]  # so


@given(st.from_regex(r"[0-9.]{0,5}(\.\.)?[0-9.]{0,5}", fullmatch=True))
def test_the_schema_admits_exactly_the_version_ranges_that_are_read(text: str) -> None:
    assert definition("version_range")(text) == (sizes.version_range(text) is not None)  # type: ignore[operator]  # so
