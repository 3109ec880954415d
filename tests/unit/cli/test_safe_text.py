"""Text of a host never moves a cursor, changes a title or turns a line around."""

from __future__ import annotations

import pytest

from aicrun.cli.safe_text import Bare, Lines, line


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("a\x00b\x08c", "abc"),
        ("abc\u202edef\u2066", "abcdef"),
        ("tab\there", "tab here"),
        ("\ue003not our red", "not our red"),
        ("10%\r50%\r100%", "100%"),
        ("99%\r", "99%"),
    ],
)
def test_a_line_is_only_printable_text(hostile: str, shown: str) -> None:
    assert line(hostile) == shown


def test_lines_come_whole_whatever_the_slices() -> None:
    data = "é 1\n\x1b[1mzwei\x1b[0m\ndrei".encode()
    for size in range(1, len(data)):
        lines = Lines()
        got = [text for at in range(0, len(data), size) for text in lines.feed(data[at : at + size])]
        assert got + lines.rest() == ["é 1", "zwei", "drei"]


def test_bytes_that_are_no_utf8_become_the_replacement_character() -> None:
    lines = Lines()
    assert lines.feed(b"\xff\xfe\n") == ["\ufffd\ufffd"]


def test_an_endless_line_is_given_out_in_pieces() -> None:
    lines = Lines()
    assert sum(len(text) for text in lines.feed(b"x" * 100_000)) == 100_000


def test_a_bare_log_keeps_its_line_ends_and_loses_its_sequences() -> None:
    bare = Bare()
    got = bare.feed(b"10%\r20%\r\n\x1b[") + bare.feed(b"31mred\n") + bare.feed(b"end") + bare.rest()
    assert got == "10%\r20%\r\nred\nend"
