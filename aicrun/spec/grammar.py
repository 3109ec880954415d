"""The schemas as a table of fields: which keys a place knows, what a field is called, where a key belongs.

It must not validate (see `check.py`). The schema files lie beside the package in a checkout and inside it in a wheel.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterator

from aicrun.spec.nodes import Path
from aicrun.spec.validity import Schema, is_kind

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_FOLDERS = (os.path.join(_PACKAGE, "schemas"), os.path.join(os.path.dirname(_PACKAGE), "schemas"))

_NOUNS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}
# What people write who come from other tools, and what it is here; a path where the key belongs elsewhere.
_OTHER_WORDS = {
    "cmd": "command",
    "run": "command",
    "script": "command",
    "entrypoint": "command",
    "environment": "env",
    "envs": "env",
    "resources": "machine",
    "host": "machine.name",
    "hosts": "machine.name",
    "accelerators": "machine.gpu",
    "vram_gb": "vram",
    "vram_gib": "vram",
    "memory_gb": "memory",
    "workdir": "cwd",
    "working_dir": "cwd",
    "timeout": "limits.max_duration",
    "max_time": "limits.max_duration",
    "requirements": "setup.requirements",
    "retries": "retry.max",
    "upload_target": "checkpoints.upload.to",
    "destination": "to",
    "nickname": "name",
    "hostname": "ssh",
}


def schema_text(name: str) -> str:
    """The text of the schema `name` (`run`, `machines`, `plan`), as published; raises `FileNotFoundError`."""
    for folder in _FOLDERS:
        path = os.path.join(folder, f"{name}.schema.json")
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                return file.read()
    raise FileNotFoundError(f"{name}.schema.json is in neither of {', '.join(_FOLDERS)}")


class Grammar:
    """One schema, and questions about its fields."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.schema: Schema = json.loads(schema_text(name))

    def resolved(self, schema: Schema) -> Schema:
        """The schema with its `$ref` followed; what stands beside the `$ref` goes before."""
        target = schema.get("$ref")
        if target is None:
            return schema
        return {**self.schema["$defs"][target.removeprefix("#/$defs/")], **schema}

    def branches(self, schema: Schema) -> list[Schema]:
        """The alternatives of a field, each resolved; the field itself where it has none."""
        schema = self.resolved(schema)
        return [self.resolved(branch) for branch in schema.get("anyOf", ())] or [schema]

    def field(self, path: Path) -> Schema | None:
        """The field at `path`, resolved; None where the grammar has none."""
        schema: Schema | None = self.schema
        for step in path:
            schema = self._below(schema, step) if schema is not None else None
        return self.resolved(schema) if schema is not None else None

    def _below(self, schema: Schema, step: str | int) -> Schema | None:
        for branch in self.branches(schema):
            if isinstance(step, int):
                if branch.get("type") == "array":
                    return dict(branch.get("items", {}))
            elif branch.get("type") == "object":
                found = branch.get("properties", {}).get(step, branch.get("additionalProperties"))
                if isinstance(found, dict):
                    return found
        return None

    def keys(self, path: Path) -> tuple[str, ...]:
        """The keys that the mapping at `path` knows by name; empty where names are free or there is no mapping."""
        field = self.field(path)
        branches = self.branches(field) if field is not None else []
        return tuple(key for branch in branches for key in branch.get("properties", ()))

    def admits(self, path: Path, kind: str) -> bool:
        """True when the field at `path` takes values of the JSON Schema type `kind`."""
        field = self.field(path)
        return field is not None and any(kind in kinds_of(branch) for branch in self.branches(field))

    def noun(self, schema: Schema) -> str:
        """What a field's value is, as people say it: `a size or a mapping`."""
        nouns = [branch.get("title") or _noun_of_type(branch) for branch in self.branches(schema)]
        return schema.get("title") or " or ".join(dict.fromkeys(nouns))

    @functools.cached_property
    def places(self) -> dict[str, tuple[str, ...]]:
        """For each key name the paths where it stands, shortest first."""
        found: dict[str, list[str]] = {}
        for path in self.paths():
            found.setdefault(path.rpartition(".")[2], []).append(path)
        return {key: tuple(sorted(paths, key=lambda one: one.count("."))) for key, paths in found.items()}

    def paths(self) -> Iterator[str]:
        """Every field's path by name, parents first: `machine`, `machine.name`, …"""
        yield from self._paths(self.schema, "")

    def _paths(self, schema: Schema, above: str) -> Iterator[str]:
        for branch in self.branches(schema):
            for key, inner in branch.get("properties", {}).items():
                yield f"{above}{key}"
                yield from self._paths(inner, f"{above}{key}.")
            items = branch.get("items")
            if isinstance(items, dict) and self.branches(items)[-1].get("properties"):
                yield from self._paths(items, above)

    def meant(self, path: Path, key: str) -> str:
        """What was meant by the unknown `key` at `path`: a key of that place, a path elsewhere, or empty."""
        known = self.keys(path)
        other = _OTHER_WORDS.get(key.lower(), "")
        if other and (other in known or (not path and self.field(tuple(other.split("."))))):
            return other
        near = nearest(key, known)
        if near:
            return near
        elsewhere = self.places.get(key) or self.places.get(other.rpartition(".")[2]) or ()
        return elsewhere[0] if elsewhere else ""


@functools.cache
def grammar(name: str) -> Grammar:
    """The grammar of `run` or `machines`, read once."""
    return Grammar(name)


def kinds_of(schema: Schema) -> tuple[str, ...]:
    """The JSON Schema types a resolved schema without alternatives admits."""
    if "type" in schema:
        kinds = schema["type"]
        return (kinds,) if isinstance(kinds, str) else tuple(kinds)
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    kinds = [kind for kind in ("boolean", "integer", "string") for value in values if is_kind(kind, value)]
    return tuple(dict.fromkeys(kinds))


def _noun_of_type(schema: Schema) -> str:
    return " or ".join(_NOUNS[kind] for kind in kinds_of(schema) if kind in _NOUNS) or "any value"


def nearest(word: str, known: tuple[str, ...]) -> str:
    """The known word nearest to `word`, or empty when none is near."""
    import difflib  # only a fault needs it

    if len(word) > 60:
        return ""
    folded = {re.sub(r"[-_]", "", one).lower(): one for one in reversed(known)}
    matches = difflib.get_close_matches(re.sub(r"[-_]", "", word).lower(), folded, 1, 0.7)
    return folded[matches[0]] if matches else ""
