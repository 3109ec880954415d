"""The part of `dataclasses` that records use, ready in microseconds: an agent starts for every command of a client.

The real module brings `inspect` along and compiles methods for every class, which took most of an agent's start. To a
type checker these are the real ones, and to code that asks the real module (`dataclasses.replace`, `fields`, `asdict`)
a class made here is a dataclass. It must not grow options that no record needs: no inheritance of fields, no order.
"""

from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Tuple

MISSING = object()


class Slot:
    """One field of a class made here: how it is called and what stands in it when nothing is given."""

    def __init__(self, default: Any, default_factory: Any, is_shown: bool) -> None:
        self.name = ""
        self.default = default
        self.default_factory = default_factory
        self.is_shown = is_shown

    @property
    def is_required(self) -> bool:
        """True when a value must be given."""
        return self.default is MISSING and self.default_factory is MISSING


def slots_of(kind: type) -> Tuple[Slot, ...]:
    """The fields of a class made here, in order; () for any other class."""
    found: Tuple[Slot, ...] = kind.__dict__.get("_lean_slots", ())
    return found


def _field(*, default: Any = MISSING, default_factory: Any = MISSING, repr: bool = True) -> Slot:
    """`dataclasses.field`."""
    return Slot(default, default_factory, repr)


def _dataclass(given: Any = None, *, frozen: bool = False) -> Any:
    """`dataclasses.dataclass`, with equality, and a hash where it is frozen."""

    def made(kind: Any) -> Any:
        slots = tuple(_slot(kind, name) for name in kind.__annotations__)
        given_to: Dict[str, Any] = {
            "_lean_slots": slots,
            "__match_args__": tuple(slot.name for slot in slots),
            "__dataclass_fields__": _AsReal(),
            "__init__": _init(kind.__qualname__, slots),
            "__repr__": _shown,
            "__eq__": _equal,
            "__hash__": _hash if frozen else None,
        }
        if frozen:
            given_to.update(__setattr__=_refuse, __delattr__=_refuse)
        for name, value in given_to.items():
            setattr(kind, name, value)
        return kind

    return made if given is None else made(given)


def _replace(value: Any, **changes: Any) -> Any:
    """`dataclasses.replace`."""
    return type(value)(**dict(value.__dict__, **changes))


def _asdict(value: Any) -> Dict[str, Any]:
    """`dataclasses.asdict` of a record: tuples stay tuples, records in them become dictionaries too."""
    return {name: _plain(value.__dict__[name]) for name in value.__match_args__}


def _plain(value: Any) -> Any:
    if slots_of(type(value)):
        return _asdict(value)
    if type(value) in (list, tuple):
        return type(value)(_plain(item) for item in value)
    return {key: _plain(item) for key, item in value.items()} if type(value) is dict else value


def _slot(kind: Any, name: str) -> Slot:
    default = kind.__dict__.get(name, MISSING)
    slot = default if isinstance(default, Slot) else Slot(default, MISSING, True)
    slot.name = name
    if slot is default:
        if slot.default is MISSING:
            delattr(kind, name)
        else:
            setattr(kind, name, slot.default)
    if type(slot.default) in (list, dict, set):
        raise TypeError("%s: a default that can change would be shared" % name)
    return slot


def _init(title: str, slots: Tuple[Slot, ...]) -> Callable[..., None]:
    names = tuple(slot.name for slot in slots)
    defaults = {slot.name: slot.default for slot in slots if slot.default is not MISSING}
    makers = [(slot.name, slot.default_factory) for slot in slots if slot.default_factory is not MISSING]

    def init(self: Any, *args: Any, **given: Any) -> None:
        values = self.__dict__
        values.update(defaults)
        values.update(zip(names, args))
        values.update(given)
        for name, maker in makers:
            if name not in values:
                values[name] = maker()
        if len(values) != len(names) or len(args) > len(names) or (args and _twice(given, names[: len(args)])):
            wrong = sorted(set(given).symmetric_difference(names) - set(defaults) - set(names[: len(args)]))
            raise TypeError("%s: fields missing, unknown or given twice: %s" % (title, ", ".join(wrong)))

    return init


def _twice(given: Dict[str, Any], placed: Tuple[str, ...]) -> bool:
    return any(name in given for name in placed)


def _shown(self: Any) -> str:
    return "%s(%s)" % (type(self).__qualname__, ", ".join(_pairs(self)))


def _pairs(value: Any) -> Iterator[str]:
    for slot in slots_of(type(value)):
        if slot.is_shown:
            yield "%s=%r" % (slot.name, value.__dict__[slot.name])


def _equal(self: Any, other: object) -> Any:
    return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(tuple(self.__dict__[name] for name in self.__match_args__))


def _refuse(self: Any, name: str, *_: Any) -> None:
    raise AttributeError("cannot change the field %r of a frozen %s" % (name, type(self).__qualname__))


class _AsReal:
    """What the real module looks for in a class, made when somebody asks."""

    def __get__(self, value: Any, kind: Any) -> Any:
        import dataclasses

        twin: Dict[str, Any] = {"__annotations__": dict(kind.__annotations__)}
        for slot in slots_of(kind):
            if slot.default_factory is not MISSING:
                twin[slot.name] = dataclasses.field(default_factory=slot.default_factory, repr=slot.is_shown)
            elif slot.default is not MISSING:
                twin[slot.name] = dataclasses.field(default=slot.default, repr=slot.is_shown)
            elif not slot.is_shown:
                twin[slot.name] = dataclasses.field(repr=False)
        made: Any = dataclasses.dataclass(init=False, repr=False, eq=False)(type(kind.__name__, (), twin))
        kind.__dataclass_fields__ = made.__dataclass_fields__
        return made.__dataclass_fields__


if TYPE_CHECKING:
    from dataclasses import asdict as asdict
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import replace as replace
else:
    asdict, dataclass, field, replace = _asdict, _dataclass, _field, _replace
