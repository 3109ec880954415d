"""The compiled check and jsonschema are of one mind, both schemas are valid themselves, every field is described."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.spec.documents import FULL, MACHINES, VALUES, spoiled

from aicrun.spec.check import is_valid, schema_faults, schema_text
from aicrun.spec.grammar import Grammar, grammar
from aicrun.spec.source import read
from aicrun.spec.validity import compiled

RUN = read(FULL.encode(), "run.yaml").root
INVENTORY = read(MACHINES.encode(), "machines.yaml").root
assert RUN is not None
assert INVENTORY is not None


@pytest.mark.parametrize("name", ["run", "machines"])
def test_a_schema_is_valid_by_its_own_meta_schema(name: str) -> None:
    schema = json.loads(schema_text(name))
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("name", ["run", "machines"])
def test_every_field_is_described_and_every_mapping_is_closed(name: str) -> None:
    known = grammar(name)
    for path in known.paths():
        field = known.field(_steps(known, path))
        assert field is not None, path
        assert len(field.get("description", "")) > 10, path
        for branch in known.branches(field):
            if branch.get("type") == "object":
                assert "additionalProperties" in branch, path


@pytest.mark.parametrize("name", ["run", "machines"])
def test_every_example_of_a_field_is_valid_there(name: str) -> None:
    known = grammar(name)
    reserved = ("nodes", "share", "after")
    for path in known.paths():
        field = known.field(_steps(known, path)) or {}
        assert field.get("examples") or path in reserved, path
        check = compiled({**field, "$defs": known.schema["$defs"]})
        for example in field.get("examples", ()):
            assert check(example), (path, example)


def _steps(known: Grammar, path: str) -> tuple[str | int, ...]:
    words = path.split(".")
    return tuple(words) if known.name == "run" or len(words) == 1 else ("machines", 0, *words[1:])


def _agree(value: Any, name: str) -> None:
    faults = list(schema_faults(value, name))
    assert is_valid(value, name) == (not faults), faults


@settings(max_examples=300, deadline=None)
@given(spoiled(RUN.value))
def test_both_checks_agree_on_spoiled_runs(value: Any) -> None:
    _agree(value, "run")


@settings(max_examples=150, deadline=None)
@given(spoiled(INVENTORY.value))
def test_both_checks_agree_on_spoiled_inventories(value: Any) -> None:
    _agree(value, "machines")


@settings(max_examples=150, deadline=None)
@given(VALUES, st.sampled_from(["run", "machines"]))
def test_both_checks_agree_on_anything(value: Any, name: str) -> None:
    _agree(value, name)


def test_the_full_documents_are_valid_for_plain_jsonschema_too() -> None:
    for text, name in ((FULL, "run"), (MACHINES, "machines")):
        jsonschema.Draft202012Validator(json.loads(schema_text(name))).validate(yaml.safe_load(text))


@pytest.mark.parametrize("items", [[1, True], [1, "1"], [[1], [1, 2]], [{"a": 1}, {"a": 2}]])
def test_different_items_differ(items: list[Any]) -> None:
    check = compiled({"type": "array", "uniqueItems": True})
    assert check(items)
    assert not check([*items, items[0]])


def test_a_line_break_behind_a_name_is_no_name() -> None:
    assert not is_valid({"version": 1, "name": "sft-run\n", "command": "x"}, "run")


def test_an_unknown_keyword_is_an_error_when_the_check_is_made() -> None:
    with pytest.raises(ValueError, match="contains"):
        compiled({"contains": {}})
