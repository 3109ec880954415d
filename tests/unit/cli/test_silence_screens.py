"""What a person reads when a machine falls silent in the middle of a start, in 80 columns, with the command to type."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.cli.test_screens import held
from unit.plan.worlds import spec

from aicrun.cli.views.trouble import lines as error_lines
from aicrun.errors import Exit, HostUnreachable
from aicrun.lifecycle import silence
from aicrun.wire.jobs import Client, JobRequest

WHO = Client("ana", "laptop", "0.1.0")
REQUEST = JobRequest(
    "7e5f44ef4f530583",
    "sft-run",
    "1" * 16,
    "5" * 16,
    "d",
    WHO,
    {},
    "/w",
    ("true",),
    machine="lab",
    spec_file="sft.yaml",
)
SPEC = replace(spec(), file="sft.yaml")
LOST = HostUnreachable("AIC-E511", "the connection to lab ended")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("silent_not_known", silence.not_known(REQUEST, SPEC, LOST)),
        ("silent_not_started", silence.not_started(REQUEST, SPEC, LOST)),
        ("silent_started", silence.started(REQUEST, LOST)),
        ("silent_may_hold", silence.may_hold(REQUEST, SPEC, "home", "the connection to home ended")),
        ("silent_unreadable", silence.may_hold(REQUEST, SPEC, "home", "a record of this run cannot be read there")),
        ("silent_old", silence.old_not_known(REQUEST, SPEC, ("6c276aade4156ca2", "home"), LOST)),
    ],
)
def test_each_silence_says_what_is_known_and_what_to_type(name: str, error: HostUnreachable) -> None:
    held(f"error_{name}", error_lines(error))
    assert error.exit is Exit.UNREACHABLE
    assert all(way.command.startswith("aicrun ") for way in error.ways)


def test_what_is_typed_next_is_what_was_typed() -> None:
    asked = replace(SPEC, overrides=("name=other",), said=(("--again",), ("--machines", "lab.yaml")))
    whole = "sft.yaml --set name=other --again --machines lab.yaml"
    assert silence.not_known(REQUEST, asked, LOST).ways[0].command == f"aicrun apply {whole}"
    assert silence.may_hold(REQUEST, asked, "home", "gone").ways[1].command == f"aicrun apply {whole} --except home"
