"""Patterns that are compiled late: they are what `re.compile` gives, and each one that the agent has is sound."""

from __future__ import annotations

import importlib
import pkgutil
import re
from types import ModuleType

import pytest

import aicrun.agent
import aicrun.wire
from aicrun.wire import patterns


def test_it_is_the_pattern_itself() -> None:
    late, real = patterns.pattern("(a+)B", re.IGNORECASE), re.compile("(a+)B", re.IGNORECASE)
    assert (late.pattern, late.flags, late.groups) == (real.pattern, real.flags, real.groups)
    assert [match.group(1) for match in late.finditer("aab aB")] == ["aa", "a"]
    assert late.sub("-", "xaab") == "x-"
    assert late.match("b") is None


def test_what_was_found_once_is_found_at_once() -> None:
    late = patterns.pattern(rb"\d+")
    assert late.match == late.match
    assert "match" in vars(late)


def test_a_faulty_one_raises_when_it_is_used() -> None:
    late = patterns.pattern("(")
    with pytest.raises(re.error):
        late.match("")


def modules() -> list[ModuleType]:
    found = [aicrun.agent, aicrun.wire]
    return [
        importlib.import_module(f"{package.__name__}.{one.name}")
        for package in found
        for one in pkgutil.iter_modules(package.__path__)
    ]


def test_every_pattern_of_the_agent_can_be_compiled() -> None:
    late = [value for module in modules() for value in vars(module).values() if isinstance(value, patterns.Later)]
    assert len(late) > 10
    for one in late:
        assert one.pattern
