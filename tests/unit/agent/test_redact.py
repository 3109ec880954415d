"""Secret values taken out of a stream: the same for every way the bytes are cut, and nothing else is touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicrun.agent.redact import Redactor
from aicrun.wire.secrets import LEAST_CHARACTERS

# A small alphabet, so that values begin within one another and marks could look like values.
PIECES = st.text(alphabet="ab*%", min_size=LEAST_CHARACTERS, max_size=14)
VALUES = st.lists(PIECES, max_size=3)
NOISE = st.text(alphabet="ab*%\n", max_size=6)


@st.composite
def texts(draw: st.DrawFn) -> tuple[tuple[str, ...], bytes]:
    """Some values, and a text in which they and parts of them stand."""
    values = tuple(draw(VALUES))
    parts = draw(st.lists(st.one_of(NOISE, *([st.sampled_from(values)] if values else [])), max_size=12))
    cut = draw(st.integers(0, LEAST_CHARACTERS))
    return values, "".join(part[cut:] if draw(st.booleans()) else part for part in parts).encode()


def streamed(redactor: Redactor, text: bytes, sizes: list[int], quiet: list[bool]) -> bytes:
    """`text` in pieces of `sizes`, taken in turn; after each a silence where `quiet` says so."""
    out, kept, shown, at, turn = b"", b"", 0, 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        passed = redactor.passed(kept + text[at : at + size], shown)
        out, kept, shown, at = out + passed.out, passed.kept, passed.shown, at + size
        assert len(kept) < max(1, redactor.longest)
        if quiet[turn % len(quiet)]:
            passed = redactor.let_go(kept, shown)
            out, kept, shown = out + passed.out, passed.kept, passed.shown
        turn += 1
    return out + redactor.whole(kept, shown)


SIZES = st.lists(st.integers(1, 20), min_size=1, max_size=5)


@given(texts(), SIZES)
def test_any_cut_gives_the_redaction_of_the_whole(case: tuple[tuple[str, ...], bytes], sizes: list[int]) -> None:
    values, text = case
    redactor = Redactor(values)
    assert streamed(redactor, text, sizes, [False]) == redactor.whole(text)


@given(texts(), SIZES, st.lists(st.booleans(), min_size=1, max_size=4))
def test_no_value_stands_in_the_output(
    case: tuple[tuple[str, ...], bytes], sizes: list[int], quiet: list[bool]
) -> None:
    values, text = case
    out = streamed(Redactor(values), text, sizes, quiet)
    assert not any(value.encode() in out for value in values)


@given(texts(), st.integers(0, 40))
def test_whoever_begins_in_the_middle_shows_no_end_of_a_value(case: tuple[tuple[str, ...], bytes], begin: int) -> None:
    values, text = case
    redactor = Redactor(values)
    passed = redactor.passed(text[begin:], redactor.longest)
    out = bytes(passed.out) + redactor.whole(passed.kept, passed.shown)
    assert not any(value.encode() in out for value in values)
    if not values:
        assert out == text[begin:]


def test_no_mark_is_shown_of_a_value_that_ended_before() -> None:
    redactor = Redactor(("hf_abcdefgh",))
    assert redactor.whole(b"hf_abcdefgh and more", 11) == b" and more"
    assert redactor.whole(b"hf_abcdefgh and more", 10) == b"*** and more"


@given(st.binary(max_size=100), SIZES)
def test_without_values_nothing_changes(text: bytes, sizes: list[int]) -> None:
    assert streamed(Redactor(), text, sizes, [True]) == text
    assert not Redactor()


@given(st.binary(max_size=300))
def test_other_bytes_stay_as_they_are(text: bytes) -> None:
    value = "a-value-that-is-in-no-test"
    assert Redactor((value,)).whole(text + value.encode() + text) == text + b"***" + text


def test_the_longest_value_that_begins_at_a_place_counts() -> None:
    redactor = Redactor(("password", "password-of-ana", "d-of-ana and more"))
    assert redactor.whole(b"password-of-ana and more") == b"*** and more"
    assert redactor.passed(b"is: password-of").out == b"is: "
    assert redactor.passed(b"is: password-of").kept == b"password-of"
    assert redactor.passed(b"is: password of").out == b"is: *** of"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("p/ss w+rd?", "https://host/?key=p%2Fss%20w%2Brd%3F"),
        ('say "abc"\nor else', '{"key": "say \\"abc\\"\\nor else"}'),
        ("grüße-an-alle", '{"key": "gr\\u00fc\\u00dfe-an-alle"}'),
        ("grüße-an-alle", '{"key": "grüße-an-alle"}'),
    ],
)
def test_a_value_is_known_in_an_address_and_in_a_quoted_text_too(value: str, shown: str) -> None:
    out = Redactor((value,)).whole(shown.encode()).decode()
    assert out == f"{shown[: shown.index('=') + 1]}***" if "=" in shown else out == '{"key": "***"}'


def test_the_mark_can_never_be_taken_for_a_value() -> None:
    redactor = Redactor(("*secret*of*ana*", "ana*****bea"))
    out = redactor.whole(b"ana*secret*of*ana*bea")
    assert b"*" not in out
    assert out == b"ana###bea"


def test_a_beginning_that_is_too_short_to_be_a_secret_is_let_go_and_its_value_hidden_all_the_same() -> None:
    redactor = Redactor(("hf_abcdefghij",))
    first = redactor.passed(b"loss: hf_")
    assert (first.out, first.kept) == (b"loss: ", b"hf_")
    gone = redactor.let_go(first.kept, first.shown)
    assert (gone.out, gone.shown) == (b"hf_", 3)
    assert redactor.passed(gone.kept + b"abcdefghij!", gone.shown).out == b"***!"
    assert redactor.passed(gone.kept + b"other", gone.shown).out == b"other"
    assert redactor.passed(gone.kept + b"no, hf_abcdefghij!", gone.shown).out == b"no, ***!"
    assert redactor.let_go(b"hf_abcdef", 0).out == b""
    assert redactor.whole(b"hf_abcdef", 0) == b"hf_abcdef"


def test_a_whole_text_is_hidden_in() -> None:
    assert Redactor(("abcdefgh", "a b c d e")).text("x=abcdefgh y=a%20b%20c%20d%20e") == "x=*** y=***"
