"""What is frozen of the wire: names, tokens, records, bytes and hashes. Other versions on other hosts rely on it."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import pytest
from frozen import frozen
from unit.wire.examples import bare, filled, records

from aicrun.wire import calls, codec, facts, fetch, hashes, jobs, names, patterns, room, seen, source, status, upload

RECORDS = (*records(jobs), *records(seen), *records(source), *records(fetch), *records(room), *records(upload))
READINGS = records(facts)
KEPT = tuple(kind for kind in RECORDS if "schema" in {field.name for field in dataclasses.fields(kind)})


def _constants(module: Any) -> dict[str, Any]:
    ours = (str, int, tuple, dict, patterns.Later)
    found = {name: value for name, value in vars(module).items() if name.isupper() and isinstance(value, ours)}
    return {
        name: value.pattern if isinstance(value, patterns.Later) else value
        for name, value in sorted(found.items())
        if not name.startswith("_")
    }


def test_names_of_files_and_variables() -> None:
    frozen("names", _constants(names))


def test_calls_refusals_and_limits_of_the_wire() -> None:
    frozen("calls", codec.to_json(_constants(calls)))


def test_statuses_reasons_and_events() -> None:
    frozen(
        "status",
        {
            "statuses": [one.value for one in status.Status],
            "terminal": sorted(one.value for one in status.TERMINAL),
            "reasons": list(status.REASONS),
            "unknown_reasons": list(status.UNKNOWN_REASONS),
            "events": list(status.EVENTS),
            "steps": list(jobs.STEPS),
            "transitions": {a.value: sorted(b.value for b in after) for a, after in status.TRANSITIONS.items()},
        },
    )


def test_the_bytes_of_hello() -> None:
    marker = "0123456789abcdef0123456789abcdef"
    asked, answered = io.BytesIO(), io.BytesIO()
    calls.write_request(asked, "hello", {"marker": marker, "protocol": [1, 1], "digest": "ab" * 32})
    calls.write_request(asked, "store_put", {"hash": "cd" * 32}, b"\x00\xff\n")
    calls.write_reply(answered, marker, {"answer": {"protocol": 1, "digest": "ab" * 32}})
    calls.write_reply(
        answered, marker, {"refused": {"token": "not_found", "message": "kein Lauf „ü“", "facts": {}}}, b"\x00\xff\n"
    )
    written = {"requests": asked.getvalue(), "replies": answered.getvalue()}
    frozen("wire", {name: raw.decode("latin-1") for name, raw in written.items()})


@pytest.mark.parametrize("kind", (*RECORDS, *READINGS), ids=lambda kind: kind.__name__)
def test_a_record_comes_back_as_it_was(kind: type[Any]) -> None:
    value = filled(kind)
    assert codec.from_json(kind, codec.load(codec.dump(value))) == value


def test_the_shape_of_every_record() -> None:
    frozen("records", {kind.__name__: codec.to_json(filled(kind)) for kind in RECORDS})
    frozen("readings", {kind.__name__: codec.to_json(filled(kind)) for kind in READINGS})


@pytest.mark.parametrize("kind", (*RECORDS, *READINGS), ids=lambda kind: kind.__name__)
def test_a_record_of_the_first_version_is_still_read(kind: type[Any]) -> None:
    """It has the required fields alone; which they are is frozen, for none may join them."""
    assert isinstance(codec.from_json(kind, bare(kind)), kind)


def test_which_fields_are_required() -> None:
    frozen("required", {kind.__name__: sorted(bare(kind)) for kind in (*RECORDS, *READINGS)})


@pytest.mark.parametrize("kind", KEPT, ids=lambda kind: kind.__name__)
def test_keys_of_a_newer_version_are_kept_and_its_schema_is_seen(kind: type[Any]) -> None:
    data = dict(codec.to_json(filled(kind)), schema=2, invented={"deep": [1, None]})
    record = codec.from_json(kind, data)
    assert record.schema == 2
    assert codec.to_json(record) == data
    assert codec.to_json(codec.replace(record, schema=1))["invented"] == {"deep": [1, None]}


def test_every_record_that_lies_on_a_disk_has_a_schema() -> None:
    on_disk = ("JobRequest", "RunRecord", "Decision", "StepStart", "StepExit", "StopIntent", "UploadResult", "End")
    assert set(on_disk) <= {kind.__name__ for kind in KEPT}


# Two wishes that must never change their digest, the second with all that scalars can be.
WISHES: tuple[dict[str, Any], ...] = (
    {"command": "python train.py"},
    {
        "command": ["python", "train.py", "--name", "Grüße"],
        "env": {"LR": "1e-4", "B": "", "A": "no"},
        "gpu": {"vram": "20GiB", "count": 2, "same_model": True, "total_vram": "24GB..48GB"},
        "params": {"lr": 0.0001, "none": None},
        "source_tree": "0" * 64,
    },
)
TREE = (
    ("b/run me.sh", "x", "11" * 32),
    ("a.py", "f", "22" * 32),
    ("a", "l", "../elsewhere"),
    ("ü.txt", "f", "33" * 32),
)


def test_hashes_that_both_sides_compute() -> None:
    frozen(
        "hashes",
        {
            "canonical": [hashes.canonical(wish).decode() for wish in WISHES],
            "digest": [hashes.digest(wish) for wish in WISHES],
            "tree_hash": [hashes.tree_hash(()), hashes.tree_hash(TREE)],
            "env_key": [hashes.env_key(wish) for wish in WISHES],
        },
    )


def test_order_and_the_spelling_of_scalars_change_no_digest() -> None:
    assert hashes.digest({"a": 1, "b": True}) == hashes.digest({"b": "true", "a": "1"})
    assert hashes.tree_hash(TREE) == hashes.tree_hash(tuple(reversed(TREE)))


@pytest.mark.parametrize("other", ({"a": "2"}, {"a": ["1"]}, {"a": None}, {"b": "1"}, {}, {"a": "1", "b": ""}))
def test_another_wish_is_another_digest(other: dict[str, Any]) -> None:
    assert hashes.digest(other) != hashes.digest({"a": "1"})


@pytest.mark.parametrize(
    "entry", (("a.py", "x", "22" * 32), ("a.py", "l", "22" * 32), ("a.py", "f", "23" * 32), ("A.py", "f", "22" * 32))
)
def test_mode_kind_content_and_name_each_change_a_tree(entry: tuple[str, str, str]) -> None:
    assert hashes.tree_hash([entry]) != hashes.tree_hash([("a.py", "f", "22" * 32)])
