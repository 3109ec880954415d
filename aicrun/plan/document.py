"""Frozen values of plan, spec and wire to JSON and back, whole: what a saved plan is made of.

It must not know what a plan means. A member of a union carries its kind under `is`; keys that a reader does not know
are passed over, so that a document may also hold what is only told.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from aicrun.plan.model import CardOn, HostOn, KindOn
from aicrun.spec.model import LocalReach, SlurmReach, SshReach

T = TypeVar("T")

_KINDS: dict[type, str] = {
    CardOn: "card",
    KindOn: "kind",
    HostOn: "host",
    LocalReach: "local",
    SshReach: "ssh",
    SlurmReach: "slurm",
}
_CLASSES = {name: kind for kind, name in _KINDS.items()}
_HINTS: dict[type, dict[str, Any]] = {}


def encoded(value: Any) -> Any:
    """Plain JSON values for `value`; fields without a value are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        out: dict[str, Any] = {"is": _KINDS[type(value)]} if type(value) in _KINDS else {}
        for item in dataclasses.fields(value):
            held = getattr(value, item.name)
            if held is not None:
                out[item.name] = encoded(held)
        return out
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): encoded(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [encoded(item) for item in value]
    return value


def decoded(kind: type[T], data: Any) -> T:
    """A `kind` from what `encoded` gave; raises `ValueError` naming the place of what does not match."""
    return typing.cast(T, _decoded(kind, data, kind.__name__))


def _decoded(kind: Any, data: Any, where: str) -> Any:
    if kind is Any:
        # Ranges hold tuples of numbers, and JSON knows only lists.
        return tuple(data) if isinstance(data, list) and where.endswith((".low", ".high")) else data
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _one_of(args, data, where)
    if origin is tuple:
        return _tuple(args, data, where)
    if origin is not None and issubclass(origin, Mapping):
        _expect(isinstance(data, dict), where, "an object")
        return {key: _decoded(args[1], item, f"{where}.{key}") for key, item in data.items()}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        _expect(data in [item.value for item in kind], where, "a known value")
        return kind(data)
    if dataclasses.is_dataclass(kind):
        return _record(kind, data, where)
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    right = isinstance(data, kind) and (kind is bool or not isinstance(data, bool))
    _expect(right, where, kind.__name__)
    return data


def _one_of(args: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in args:
        return None
    kinds = [kind for kind in args if kind is not type(None)]
    if len(kinds) == 1:
        return _decoded(kinds[0], data, where)
    if not isinstance(data, (dict, bool)) and type(data) in kinds:
        return data
    _expect(isinstance(data, dict) and _CLASSES.get(data.get("is", "")) in kinds, where, "one of the known kinds")
    return _decoded(_CLASSES[data["is"]], data, where)


def _tuple(args: tuple[Any, ...], data: Any, where: str) -> Any:
    _expect(isinstance(data, list), where, "a list")
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(_decoded(args[0], item, f"{where}[{place}]") for place, item in enumerate(data))
    _expect(len(args) == len(data), where, f"{len(args)} items")
    pairs = zip(args, data, strict=True)
    return tuple(_decoded(kind, item, f"{where}[{place}]") for place, (kind, item) in enumerate(pairs))


def _record(kind: Any, data: Any, where: str) -> Any:
    _expect(isinstance(data, dict), where, "an object")
    hints = _HINTS.get(kind)
    if hints is None:
        hints = _HINTS[kind] = typing.get_type_hints(kind)
    known = {}
    for item in dataclasses.fields(kind):
        if item.name in data:
            known[item.name] = _decoded(hints[item.name], data[item.name], f"{where}.{item.name}")
        elif hints[item.name] is Any or type(None) in typing.get_args(hints[item.name]):
            # `encoded` leaves out what has no value.
            known[item.name] = None
        elif item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
            raise ValueError(f"{where}.{item.name} is missing")
    return kind(**known)


def _expect(holds: bool, where: str, what: str) -> None:
    if not holds:
        raise ValueError(f"{where}: {what} is expected")
