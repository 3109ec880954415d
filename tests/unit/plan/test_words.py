"""Numbers, sizes, durations and names, as every screen prints them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicrun.plan import words


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (0, "0 MiB"),
        (309, "309 MiB"),
        (1023, "1,023 MiB"),
        (1024, "1.0 GiB"),
        (24564, "24.0 GiB"),
        (1 << 21, "2,048.0 GiB"),
    ],
)
def test_memory_is_in_gib_with_one_decimal_and_in_mib_below(amount: int, shown: str) -> None:
    assert words.gib(amount) == shown


def test_two_figures_of_one_sentence_that_print_alike_are_both_in_mib() -> None:
    assert words.apart(24564, 24576) == ("24,564 MiB", "24,576 MiB")
    assert words.apart(20480, 24576) == ("20.0 GiB", "24.0 GiB")
    assert words.apart(20480, 20480) == ("20.0 GiB", "20.0 GiB")


@given(st.integers(0, 1 << 22), st.integers(0, 1 << 22))
def test_different_amounts_never_read_the_same(first: int, second: int) -> None:
    assert first == second or len(set(words.apart(first, second))) == 2


@pytest.mark.parametrize(("amount", "shown"), [(20480, "20 GiB"), (1536, "1.5 GiB"), (512, "512 MiB"), (0, "0 MiB")])
def test_what_was_typed_is_shown_as_typed(amount: int, shown: str) -> None:
    assert words.asked(amount) == shown


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (512, "512 B"),
        (1023, "1,023 B"),
        (217_088, "212 KiB"),
        (1_258_291, "1.2 MiB"),
        (17_287_243_366, "16.1 GiB"),
        (1_539_316_278_887, "1.4 TiB"),
    ],
)
def test_sizes(amount: int, shown: str) -> None:
    assert words.size(amount) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (43.9, "43s"),
        (64, "1m 04s"),
        (540, "9m"),
        (721, "12m"),
        (3599, "59m"),
        (3600, "1h"),
        (11_280, "3h 08m"),
        (18_720, "5h 12m"),
        (86_400, "1d"),
        (93_600, "1d 2h"),
        (86_400 * 1234, "1,234d"),
        (-5, "0s"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float, shown: str) -> None:
    assert words.duration(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(12, "12s ago"), (840, "14m ago"), (9 * 3600, "9h ago"), (3e5, "3d ago")]
)
def test_ages_have_one_unit(seconds: float, shown: str) -> None:
    assert words.ago(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(86400, "24h"), (43200, "12h"), (120, "2m"), (90, "90s"), (259_200, "3d"), (0, "0s")]
)
def test_limits_are_shown_as_typed(seconds: int, shown: str) -> None:
    assert words.typed(seconds) == shown


@pytest.mark.parametrize(("seconds", "shown"), [(0.04, "0.0s"), (0.81, "0.8s"), (9.96, "9s"), (75.2, "1m 15s")])
def test_what_was_measured_has_tenths_while_short(seconds: float, shown: str) -> None:
    assert words.took(seconds) == shown


def test_counts_have_a_comma_and_a_plural() -> None:
    assert [words.counted(n, "card") for n in (0, 1, 2, 1234)] == ["0 cards", "1 card", "2 cards", "1,234 cards"]
    assert words.counted(2, "copy", "copies") == "2 copies"


def test_lists_in_a_sentence() -> None:
    assert [words.joined(list(text)) for text in ("", "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]


def test_of_many_names_the_first_three_stand_for_all() -> None:
    assert words.some("abc") == "a, b and c"
    assert words.some("abcdefgh") == "a, b, c, d, e, f, g and h"
    assert words.some("abcdefghi") == "a, b, c and 6 more"
    assert words.some([str(number) for number in range(2003)]) == "0, 1, 2 and 2,000 more"


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("a\x00b\nc\x9bd", "ab cd"),
        ("abc\u202edef\u200b", "abcdef"),
        ("\ue003ours", "ours"),
        ("ünïcödé 漢字", "ünïcödé 漢字"),
    ],
)
def test_text_of_hosts_is_one_harmless_line(hostile: str, shown: str) -> None:
    assert words.harmless(hostile) == shown


@given(st.text(), st.integers(3, 40), st.sampled_from(("…", "..")))
def test_a_cut_never_takes_more_columns_than_it_may(text: str, width: int, mark: str) -> None:
    shown = words.cut(words.harmless(text), width, mark)
    assert words.cells(shown) <= width


def test_wide_characters_take_two_columns() -> None:
    assert words.cells("漢字") == 4
    assert words.cut("漢字漢字", 5) == "漢字…"


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("Tesla T4", "T4"),
        ("A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA\x1b[2J L40S", "L40S"),
    ],
)
def test_a_model_goes_without_its_vendor(told: str, shown: str) -> None:
    assert words.card_model(told) == shown


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (21, "21st"), (113, "113th")],
)
def test_places_in_line(number: int, text: str) -> None:
    assert words.ordinal(number) == text
