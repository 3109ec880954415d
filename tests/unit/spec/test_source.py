"""Reading bytes: what is tolerated, what bombs cost, and that nothing in a file can surprise the reader."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.spec.documents import FULL, MACHINES

from aicrun.spec import render, source
from aicrun.spec.compose import MOST_NODES
from aicrun.spec.diagnostics import DocumentInvalid
from aicrun.spec.load import Loaded, load_inventory_text, load_run_text
from aicrun.spec.nodes import Node

LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{key}: &{key} [{','.join(['*' + before] * 9)}]\n" for before, key in zip("abcdefgh", "bcdefghi", strict=True)
)
BOMBS = {
    "laughs": LAUGHS,
    "wide": "a: [" + "x," * 100_000 + "]",
    "many keys": "".join(f"k{number}: 1\n" for number in range(20_000)),
    "deep list": "[" * 100_000,
    "deep mapping": "{a: " * 50_000,
    "deep dashes": "- " * 100_000,
    "deep questions": "? " * 100_000,
    "deep by aliases": "".join(f"a{n}: &a{n} [{'*a' + str(n - 1) if n else 'x'}]\n" for n in range(40)),
    "file": "#" * (source.MOST_BYTES + 1),
    "recursive": "a: &a [*a, {b: *a}]",
    "aliases": "a: &a x\nb: [" + "*a," * 40_000 + "]",
}


def events_of(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many events of the parser were taken until the reading ended."""
    counted = 0
    real = source._parser

    class Counting:
        def __init__(self, text: str) -> None:
            self.parser = real(text)

        def get_event(self) -> object:
            nonlocal counted
            counted += 1
            return self.parser.get_event()

    monkeypatch.setattr(source, "_parser", Counting)
    source.read(raw, "run.yaml")
    return counted


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_a_bomb_is_refused_before_it_grows(bomb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = bomb.encode()
    assert events_of(raw, monkeypatch) <= 2 * MOST_NODES + 10
    with pytest.raises(DocumentInvalid) as caught:
        load_run_text(raw, "run.yaml", "")
    codes = {row.code for row in caught.value.diagnostics}
    assert codes & {"AIC-E101", "AIC-E106", "AIC-E107"}
    assert len(render.text(caught.value.diagnostics)) < 20_000


def test_an_alias_costs_what_it_stands_for() -> None:
    root = source.read(b"a: &a [1, 2, 3]\nb: [*a, *a]\n", "run.yaml").root
    assert root is not None
    assert root.weight == 1 + 2 + 4 + (1 + 4 + 4)
    assert root.at("b", 0) is root.at("b", 1)


def test_a_mark_crlf_and_markers_are_tolerated() -> None:
    plain = load_run_text(FULL.encode(), "run.yaml", "")
    for raw in (b"\xef\xbb\xbf" + FULL.encode(), FULL.replace("\n", "\r\n").encode(), f"---\n{FULL}---\n".encode()):
        assert load_run_text(raw, "run.yaml", "").specs == plain.specs


def test_places_are_those_of_the_file_whatever_ends_its_lines() -> None:
    for ending in ("\n", "\r\n", "\r"):
        root = source.read(ending.join(["a: 1", "b:", "  c: [x, yy]", ""]).encode(), "run.yaml").root
        assert root is not None
        node = root.at("b", "c", 1)
        assert isinstance(node, Node)
        assert (node.start.line, node.start.column) == (2, 9)
        assert node.origin.lines[2] == "  c: [x, yy]"


def test_an_anchor_is_no_part_of_the_place() -> None:
    root = source.read(b"a: &x  20\n", "run.yaml").root
    node = root.at("a") if root else None
    assert node is not None
    assert node.first().column == 7


def outcome(raw: bytes, how: str) -> object:
    try:
        if how == "machines":
            return load_inventory_text(raw, "machines.yaml")
        return load_run_text(raw, "run.yaml", "", strict=how == "strict")
    except DocumentInvalid as invalid:
        assert invalid.diagnostics
        assert any(row.severity == "error" for row in invalid.diagnostics)
        assert render.text(invalid.diagnostics, verbose=True)
        return invalid


HOW = st.sampled_from(["run", "machines", "strict"])


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), HOW)
def test_any_bytes_are_loaded_or_refused(raw: bytes, how: str) -> None:
    outcome(raw, how)


SIGNS = (
    "\n| |  |:|: |- |[|]|{|}|&a |*a|!t |>|'|\"|\\|\t|#|? |%|---\n|...\n|<<: |${run.nane}|cuda:1|0|\0|\ufeff|\u2028|é"
)
PIECES = st.sampled_from(["|", "version", "hf_" + "a1" * 20, *SIGNS.split("|")])
# Where, how many characters go, what comes.
EDITS = st.lists(st.tuples(st.integers(0, 1600), st.integers(0, 6), PIECES), max_size=4)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.one_of(PIECES, st.text(max_size=3)), max_size=20), HOW)
def test_any_text_of_yaml_signs_is_loaded_or_refused(pieces: list[str], how: str) -> None:
    outcome("".join(pieces).encode("utf-8", "surrogatepass"), how)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from([FULL, MACHINES]),
    st.lists(st.tuples(st.integers(0, 1600), st.integers(0, 6), PIECES), max_size=4),
    HOW,
)
def test_any_edit_of_a_valid_file_is_loaded_or_refused(text: str, edits: list[tuple[int, int, str]], how: str) -> None:
    for at, removed, put in edits:
        text = text[:at] + put + text[at + removed :]
    outcome(text.encode("utf-8", "surrogatepass"), how)


# Known to be read differently: a ? inside a flow list, a # right behind a |, a second : behind a key.
SAME = EDITS.filter(lambda edits: not any(set(put) & set("?#:|") for _, _, put in edits))


@settings(max_examples=150, deadline=None)
@given(SAME)
def test_both_parsers_agree_whether_a_file_is_valid(edits: list[tuple[int, int, str]]) -> None:
    text = FULL
    for at, removed, put in edits:
        text = text[:at] + put + text[at + removed :]
    results = []
    with_libyaml = yaml.__with_libyaml__
    try:
        for present in (with_libyaml, False):
            yaml.__with_libyaml__ = present
            result = outcome(text.encode("utf-8", "surrogatepass"), "run")
            results.append(result.specs if isinstance(result, Loaded) else None)
    finally:
        yaml.__with_libyaml__ = with_libyaml
    assert results[0] == results[1]
