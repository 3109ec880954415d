"""What is frozen of the two files people write: every key, and what it takes. Words may change, meanings may not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from frozen import frozen

from aicrun.spec.check import schema_text

WORDS = frozenset(("$schema", "$id", "title", "description", "examples", "$comment"))


def _meaning(node: Any, named: bool = False) -> Any:
    """The schema without what is only for people; `named`: the keys of `node` are names, not words of the language."""
    if isinstance(node, dict):
        kept = {key: value for key, value in node.items() if named or key not in WORDS}
        return {key: _meaning(kept[key], key in ("properties", "$defs") and not named) for key in sorted(kept)}
    if isinstance(node, list):
        return [_meaning(item) for item in node]
    return node


@pytest.mark.parametrize("name", ["run", "machines"])
def test_the_grammar_of_a_file(name: str) -> None:
    frozen(f"grammar_{name}", _meaning(json.loads(schema_text(name))))


def test_words_for_people_are_no_part_of_it() -> None:
    schema = {"description": "x", "properties": {"description": {"type": "string", "description": "y"}}}
    assert _meaning(schema) == {"properties": {"description": {"type": "string"}}}
