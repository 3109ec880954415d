"""Dataclass <-> JSON, tolerant of keys of newer versions. It must not know any particular record.

A record class may own a field `extra: Dict[str, Any]`: keys this version does not know are kept there and written
back, so that an older client never strips what a newer one wrote.
"""

import enum
import json
from typing import Any, Dict, Optional, Tuple, Type, TypeVar, Union, get_type_hints

from aicrun.wire import lean

T = TypeVar("T")


_PLAIN = frozenset((str, int, float, bool, type(None)))
_PLAINLY, _BEGINS = json.JSONDecoder(), ("{", "[")
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


@lean.dataclass(frozen=True)
class _Field:
    name: str
    hint: Any
    is_required: bool


_SHAPES: Dict[type, Optional[Tuple[_Field, ...]]] = {}


class WireError(ValueError):
    """Bytes or JSON that do not have the agreed shape; the message names the place."""


def to_json(value: Any) -> Any:
    """Plain JSON values (dict, list, str, int, float, bool, None) for `value`; None-valued fields are left out."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict:
        return {str(key): to_json(item) for key, item in value.items()}
    shape = _shape(kind)
    if shape is not None:
        out = {}
        for field in shape:
            item = getattr(value, field.name)
            if item is not None and field.name != "extra":
                out[field.name] = to_json(item)
        for key, item in getattr(value, "extra", {}).items():
            out.setdefault(key, item)
        return out
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value


def from_json(kind: Type[T], data: Any, where: str = "") -> T:
    """A `kind` built from `data` as `to_json` gives it; raises `WireError` naming the place of what does not match."""
    return _decode(kind, data, where or getattr(kind, "__name__", str(kind)))  # type: ignore[no-any-return]  # one door


def _decode(kind: Any, data: Any, where: str) -> Any:
    if kind is Any:
        return data
    origin = getattr(kind, "__origin__", None)
    args: Tuple[Any, ...] = getattr(kind, "__args__", ())
    if origin is Union:
        if data is None and type(None) in args:
            return None
        inner = [arg for arg in args if arg is not type(None)]
        return _decode(inner[0], data, where)
    if origin is tuple:
        if not isinstance(data, (list, tuple)):
            raise WireError("%s: a list is expected" % where)
        if len(args) == 2 and args[1] is Ellipsis:
            each = args[0]
            return tuple(
                [
                    item if type(item) is each else _decode(each, item, "%s[%d]" % (where, i))
                    for i, item in enumerate(data)
                ]
            )
        if len(args) != len(data):
            raise WireError("%s: %d items are expected" % (where, len(args)))
        return tuple(_decode(arg, item, "%s[%d]" % (where, i)) for i, (arg, item) in enumerate(zip(args, data)))
    if origin is dict:
        if not isinstance(data, dict):
            raise WireError("%s: an object is expected" % where)
        return {str(key): _decode(args[1], item, "%s.%s" % (where, key)) for key, item in data.items()}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        try:
            return kind(data)
        except ValueError as error:
            raise WireError("%s: %r is not a known value" % (where, data)) from error
    shape = _shape(kind)
    if shape is not None:
        return _decode_record(kind, shape, data, where)
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if not isinstance(data, kind) or (kind in (int, float) and isinstance(data, bool)):
        raise WireError("%s: %s is expected, here it is %s" % (where, kind.__name__, type(data).__name__))
    return data


def _decode_record(kind: Any, shape: Tuple[_Field, ...], data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise WireError("%s: an object is expected" % where)
    known: Dict[str, Any] = {}
    keeps = False
    for field in shape:
        if field.name == "extra":
            keeps = True
        elif field.name in data:
            item = data[field.name]
            # Most are a text or a number where one is meant: nothing is to be done, and no place to be told of.
            if type(item) is not field.hint:
                item = _decode(field.hint, item, "%s.%s" % (where, field.name))
            known[field.name] = item
        elif field.is_required:
            raise WireError("%s.%s is missing" % (where, field.name))
    if keeps:
        known["extra"] = {key: item for key, item in data.items() if key not in known}
    return kind(**known)


def _shape(kind: Any) -> Optional[Tuple[_Field, ...]]:
    """The fields of a class of records, looked up once; None for every other class."""
    if kind not in _SHAPES:
        slots = lean.slots_of(kind)
        if slots:
            _SHAPES[kind] = tuple(_Field(one.name, kind.__annotations__[one.name], one.is_required) for one in slots)
        else:
            _SHAPES[kind] = _real(kind) if hasattr(kind, "__dataclass_fields__") else None
    return _SHAPES[kind]


def _real(kind: Any) -> Tuple[_Field, ...]:
    """The fields of a class that the real module made: records of a client are such."""
    import dataclasses

    hints, none = get_type_hints(kind), dataclasses.MISSING
    fields = dataclasses.fields(kind)
    return tuple(
        _Field(one.name, hints[one.name], one.default is none and one.default_factory is none) for one in fields
    )


def dump(value: Any) -> bytes:
    """Compact UTF-8 JSON of a record or plain value; strict: NaN and infinities are refused with `ValueError`.

    The bytes of a file name that are no UTF-8 (lone surrogates in Python's text) become JSON escapes and come back
    as they were.
    """
    return _JSON.encode(to_json(value)).encode("utf-8", "backslashreplace")


def load(raw: bytes) -> Any:
    """The JSON value in `raw`; raises `WireError` for anything that is not UTF-8 JSON."""
    try:
        text = raw.decode("utf-8")
        value, end = _PLAINLY.raw_decode(text) if text[:1] in _BEGINS else (None, -1)
        # What `dump` wrote has nothing around it; all else is for the slower, exact way.
        return value if end == len(text) else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError("not JSON: %s" % error) from error


def replace(value: T, **changes: Any) -> T:
    """`dataclasses.replace`, typed: a copy of a frozen record with some fields changed."""
    return lean.replace(value, **changes)  # type: ignore[type-var]  # any record of ours
