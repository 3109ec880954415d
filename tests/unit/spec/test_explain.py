"""`explain`: everything that a schema or the register names is explained, and a slip finds its neighbour."""

from __future__ import annotations

import pytest

from aicrun.codes import CODES
from aicrun.errors import UsageError
from aicrun.spec.explain import explain, topics
from aicrun.spec.grammar import grammar
from aicrun.spec.unsupported import ANY, NOT_YET


@pytest.mark.parametrize("topic", topics())
def test_every_topic_is_explained(topic: str) -> None:
    told = explain(topic)
    assert told.topic == topic
    assert len(told.text) > 10 or topic in ("run", "machines")
    assert told.title


def test_a_field_comes_from_the_schema() -> None:
    told = explain("machine.gpu")
    assert told.wants == "a size or a mapping"
    assert "gpu: 2 x 20GiB" in told.examples
    assert ("vram", "Free memory the run needs on each card when it starts") in told.keys
    assert told.required == ("vram",)


def test_a_range_is_no_end_of_a_sentence() -> None:
    assert dict(explain("machine.gpu").keys)["compute_capability"].endswith("8.0.. is Ampere and newer")


def test_a_choice_names_its_words() -> None:
    assert explain("shell").wants == "one of bash, sh"


def test_what_is_refused_is_told_with_what_to_do_meanwhile() -> None:
    assert explain("notify").meanwhile == "use aicrun wait"
    assert explain("notify.webhook").meanwhile
    assert explain("setup.requirements").meanwhile == ""
    assert dict(explain("run").keys)["notify"].endswith("(not supported yet)")


def test_the_schema_and_the_table_refuse_the_same_fields() -> None:
    told = {topic for topic in grammar("run").paths() if "supported yet" in explain(topic).text}
    # The repository of a revision is refused; below free names the schema has no path of its own.
    assert {".".join(map(str, path)) for path, _, _ in NOT_YET if ANY not in path} == told - {"source.revision"}
    for path in (path for path, _, _ in NOT_YET if ANY in path):
        found = explain(".".join(map(str, path)).replace(ANY, "x"))
        assert "supported yet" in found.text and found.meanwhile


@pytest.mark.parametrize("word", ["AIC-E102", "aic-e102", "E102", "e102"])
def test_a_code_in_any_spelling(word: str) -> None:
    assert explain(word).topic == "AIC-E102"


@pytest.mark.parametrize(("slip", "meant"), [("machine.gpus", "machine.gpu"), ("keep_free", "machines.keep_free")])
def test_a_slip_finds_its_neighbour(slip: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        explain(slip)
    assert caught.value.code == "AIC-E182"
    assert f"aicrun explain {meant}" in [way.command for way in caught.value.ways]


@pytest.mark.parametrize("nonsense", ["", ".", "run.", "..", "machine..gpu", "x" * 5000, "ü"])
def test_nonsense_is_a_wrong_usage(nonsense: str) -> None:
    with pytest.raises(UsageError):
        explain(nonsense)


@pytest.mark.parametrize("code", CODES.values(), ids=CODES.keys())
def test_a_code_has_sentences_and_an_example(code: object) -> None:
    told = CODES[code.number]  # type: ignore[attr-defined]  # a Code
    assert told.severity == ("warning" if "-W" in told.number else "error")
    assert told.explanation.endswith((".", "…"))
    assert told.example


@pytest.mark.parametrize("word", ["AIC-E999", "e1", "W999"])
def test_a_number_that_is_none_leads_to_all_of_them_and_to_no_other_number(word: str) -> None:
    with pytest.raises(UsageError) as raised:
        explain(word)
    assert [way.command for way in raised.value.ways] == ["aicrun explain codes"]
    assert dict(explain("codes").keys)["AIC-E102"] == CODES["AIC-E102"].title
