"""What a plain scalar is: the few that are typed, and all that stay text because YAML readers disagree about them."""

from __future__ import annotations

import pytest

from aicrun.spec.scalars import resolved


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("null", None),
        ("true", True),
        ("false", False),
        ("0", 0),
        ("-12", -12),
        ("+3", 3),
        ("0x1F", 31),
        ("1.5", 1.5),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e-4", 0.0001),
        ("2e1", 20.0),
        ("1.0e-4", 0.0001),
        ("-0.5E+2", -50.0),
    ],
)
def test_typed(text: str, value: object) -> None:
    assert resolved(text) == value
    assert type(resolved(text)) is type(value)


LOOK_TYPED = (
    "no off on yes NO True FALSE Null ~ 012 00 0o7 0b1 1_000 12:30 2024-05-01 .inf -.inf .nan 1e999 0x 1e - . +. 0x1g",
    "01.5 = << " + "9" * 5000 + " " + "1" * 31,
)


@pytest.mark.parametrize("text", [*" ".join(LOOK_TYPED).split(), "1 2"])
def test_text(text: str) -> None:
    assert resolved(text) == text
