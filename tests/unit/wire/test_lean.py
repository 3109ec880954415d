"""`wire.lean` keeps what `dataclasses` promises: each claim is asked of a class of either kind."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from aicrun.wire import lean


@lean.dataclass(frozen=True)
class Lean:
    """One of ours."""

    name: str
    size: int = 3
    parts: tuple[Any, ...] = ()
    more: dict[str, int] = lean.field(default_factory=dict)
    secret: str = lean.field(default="", repr=False)


@dataclasses.dataclass(frozen=True)
class Real:
    """The same as the real module makes it."""

    name: str
    size: int = 3
    parts: tuple[Any, ...] = ()
    more: dict[str, int] = dataclasses.field(default_factory=dict)
    secret: str = dataclasses.field(default="", repr=False)


@lean.dataclass
class Open:
    """One that can change."""

    name: str


BOTH = pytest.mark.parametrize("kind", (Lean, Real))


@BOTH
def test_fields_are_given_by_place_by_name_or_not_at_all(kind: Any) -> None:
    one = kind("a", more={"b": 1})
    assert (one.name, one.size, one.parts, one.more, one.secret) == ("a", 3, (), {"b": 1}, "")
    assert kind("a").more is not kind("a").more
    assert kind.size == 3
    assert not hasattr(kind, "name")


@BOTH
@pytest.mark.parametrize(
    ("args", "given"),
    [((), {}), (("a",), {"name": "b"}), (("a",), {"odd": 1}), (("a", 1, (), {}, "", 6), {}), ((), {"size": 1})],
)
def test_what_is_missing_unknown_or_given_twice_is_refused(kind: Any, args: Any, given: Any) -> None:
    with pytest.raises(TypeError):
        kind(*args, **given)


@BOTH
def test_what_is_frozen_cannot_change(kind: Any) -> None:
    one = kind("a")
    with pytest.raises(AttributeError):
        one.name = "b"
    with pytest.raises(AttributeError):
        del one.name
    with pytest.raises(AttributeError):
        one.odd = 1
    assert one.name == "a"


@BOTH
def test_equal_is_what_has_equal_fields_and_one_class(kind: Any) -> None:
    assert kind("a") == kind("a", 3)
    assert kind("a") != kind("a", 4)
    assert kind("a") != Open("a")
    assert hash(kind("a", more=())) == hash(kind("a", more=()))


@BOTH
def test_it_is_shown_copied_and_carried_over_a_pipe(kind: Any) -> None:
    one = kind("a", parts=(1,), secret="s" * 8)
    assert repr(one) == kind.__name__ + "(name='a', size=3, parts=(1,), more={})"
    assert copy.deepcopy(one) == one == pickle.loads(pickle.dumps(one))


@BOTH
def test_the_real_module_knows_it(kind: Any) -> None:
    one = kind("a", parts=(kind("b"),))
    assert dataclasses.is_dataclass(one)
    assert [field.name for field in dataclasses.fields(kind)] == ["name", "size", "parts", "more", "secret"]
    assert [field.default for field in dataclasses.fields(kind)][1:3] == [3, ()]
    assert dataclasses.fields(kind)[3].default_factory is dict
    assert dataclasses.fields(kind)[0].default is dataclasses.MISSING
    assert dataclasses.replace(one, size=5) == kind("a", 5, one.parts)
    assert dataclasses.asdict(one)["parts"][0]["name"] == "b"


def test_what_it_replaces_is_as_the_real_ones() -> None:
    one = Lean("a", parts=(Lean("b"),), more={"c": 1})
    assert lean.replace(one, size=5) == dataclasses.replace(one, size=5)
    assert lean.asdict(one) == dataclasses.asdict(one)
    with pytest.raises(TypeError):
        lean.replace(one, odd=1)


def test_what_can_change_is_changed_and_has_no_hash() -> None:
    one = Open("a")
    one.name = "b"
    assert one == Open("b")
    with pytest.raises(TypeError):
        hash(one)


def test_a_default_that_can_change_is_refused() -> None:
    def made() -> object:
        @lean.dataclass(frozen=True)
        class Shared:
            """Its instances would share the list."""

            rows: list[int] = []  # noqa: RUF012  the fault

        return Shared

    with pytest.raises((TypeError, ValueError)):
        made()
