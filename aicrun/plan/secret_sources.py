"""Where a run's secrets come from, as its spec or a job's record says it; never a value.

The names, and the one step that sees a value, belong to the execution fields; where a value is fetched from does not:
it may change while the run stays the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SecretSource:
    """One secret: from `file` on the machine, from what `command` prints on this client, else from its environment.

    `step` is the only step that sees it, "" for every one.
    """

    name: str
    step: str = ""
    file: str = ""
    command: str = ""

    @property
    def is_from_environment(self) -> bool:
        """True when the caller's environment must have it."""
        return not self.file and not self.command


def secret_sources(execution: Mapping[str, Any], supervision: Mapping[str, Any]) -> tuple[SecretSource, ...]:
    """The secrets in the order of the spec; `execution` and `supervision` are those of a spec or of a job's report."""
    found = []
    fetched = _mapping(supervision.get("secrets"))
    items = execution.get("secrets")
    for item in items if isinstance(items, list) else ():
        name, more = next(iter(item.items())) if isinstance(item, Mapping) and item else (item, {})
        source = _mapping(fetched.get(name))
        texts = (_mapping(more).get("for"), source.get("file"), source.get("command"))
        found.append(SecretSource(str(name), *(str(text or "") for text in texts)))
    return tuple(found)


def secret_words(sources: tuple[SecretSource, ...], unset: tuple[str, ...]) -> str:
    """What a plan says of them: each name once, under where it comes from; empty for none."""
    places: dict[str, list[str]] = {}
    for one in sources:
        where = "your environment"
        if one.file:
            where = f"{one.file} there"
        elif one.command:
            where = f"`{one.command}` here"
        places.setdefault(where, []).append(f"{one.name} (not set here)" if one.name in unset else one.name)
    return "; ".join(f"{', '.join(names)}, from {where}" for where, names in places.items())


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
