"""What `aicrun explain` tells: a field of the grammar or a code, as data. It must not print.

Texts of fields are the schema's, texts of codes are the register's, so that there is one place for each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from aicrun.codes import CODES, Code
from aicrun.errors import UsageError, Way
from aicrun.spec.grammar import Grammar, grammar, nearest
from aicrun.spec.unsupported import meanwhile
from aicrun.spec.validity import Schema
from aicrun.spec.values import as_yaml

_CODES = (
    "A number means one thing for ever. E0 is the command line, E1 files and fields, E5 machines, E6 plans and what a "
    "machine refuses, W2 warnings. Each has its own page: aicrun explain AIC-E121."
)
# Whoever types a number that is none is not helped by the nearest one.
_CODE = re.compile(r"(?:AIC-?)?[EW]\d*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A topic explained: `kind` is `field`, `file`, `code` or `codes`, which has every code for a key.

    `wants` is what the value is (`a size or a mapping`), empty for codes. `examples` are YAML or shell text, one each.
    `meanwhile` is what to do while this version refuses the field, else empty. `keys` are (name, first sentence) of the
    keys below, in the schema's order; `required` the names that must be there.
    """

    topic: str
    kind: str
    title: str
    text: str
    wants: str = ""
    examples: tuple[str, ...] = ()
    meanwhile: str = ""
    keys: tuple[tuple[str, str], ...] = ()
    required: tuple[str, ...] = ()


def explain(topic: str) -> Explanation:
    """The explanation of `topic`: a field (`machine.gpu`, `machines.keep_free`), `run`, `machines`, a code, `codes`.

    Raises `UsageError` for anything else, with the nearest topic.
    """
    word = topic.strip()
    code = CODES.get(word.upper()) or CODES.get(f"AIC-{word.upper()}")
    if code is not None:
        return _of_code(code)
    if word == "codes":
        return Explanation(
            word, "codes", "Codes of messages", _CODES, keys=tuple((one.number, one.title) for one in CODES.values())
        )
    field = _field(word)
    if field is None:
        raise _unknown(topic)
    return field


def _of_code(code: Code) -> Explanation:
    """An example may show a field that is not built yet; then that is told beside it."""
    key = code.example.partition(":")[0]
    instead = meanwhile(key)
    told = f"{key}: is not supported yet; {instead}" if instead else ""
    examples = (code.example,) if code.example else ()
    return Explanation(code.number, "code", code.title, code.explanation, examples=examples, meanwhile=told)


def topics() -> tuple[str, ...]:
    """Every topic: the files, all fields by path, all codes."""
    machines = tuple(path for path in grammar("machines").paths() if path.startswith("machines"))
    return ("run", *grammar("run").paths(), *machines, "codes", *CODES)


def _field(word: str) -> Explanation | None:
    steps = tuple(word.split("."))
    if word == "run":
        return _explained(grammar("run"), word, grammar("run").schema, "file")
    if word == "machines":
        known = grammar("machines")
        return _explained(known, word, known.field(("machines", 0)) or known.schema, "file")
    if steps[0] == "run":
        steps = steps[1:]
    if steps[0] == "machines":
        known = grammar("machines")
        schema = known.field(("machines", 0, *steps[1:])) or known.field(steps[1:])
    else:
        known = grammar("run")
        schema = known.field(steps)
    return _explained(known, word, schema, "field") if schema is not None and all(steps) else None


def _explained(known: Grammar, topic: str, schema: Schema, kind: str) -> Explanation:
    branches = known.branches(schema)
    path = () if kind == "file" or topic.startswith("machines.") else tuple(topic.removeprefix("run.").split("."))
    keys = tuple(
        (key, _summary(known.resolved(inner), meanwhile(*path, key)))
        for branch in branches
        for key, inner in branch.get("properties", {}).items()
    )
    values = [value for branch in branches for value in branch.get("enum", ())]
    wants = f"one of {', '.join(values)}" if values else known.noun(schema)
    required = tuple(key for branch in branches for key in branch.get("required", ()))
    key = topic.rpartition(".")[2]
    lead = "" if kind == "file" else f"{key}: "
    examples = tuple(f"{lead}{as_yaml(example)}" for example in schema.get("examples", ()))
    title = topic if kind == "field" else str(known.schema["title"])
    return Explanation(
        topic, kind, title, str(schema.get("description", "")), wants, examples, meanwhile(*path), keys, required
    )


def _summary(schema: Schema, later: str) -> str:
    mark = " (not supported yet)" if later else ""
    # A range such as 8.0.. is no end of a sentence: the next one begins with a capital.
    return re.split(r"\. (?=[A-Z])", str(schema.get("description", "")))[0].rstrip(".") + mark


def _unknown(topic: str) -> UsageError:
    is_code = bool(_CODE.fullmatch(topic.strip()))
    known = topics()
    near = "" if is_code else nearest(topic, known)
    if not near and not is_code:
        last = topic.rpartition(".")[2]
        ending = [one for one in known if one.rpartition(".")[2] == last]
        near = ending[0] if ending else ""
    ways = [Way("the nearest", f"aicrun explain {near}")] if near else []
    ways.append(Way("all codes", "aicrun explain codes") if is_code else Way("all fields", "aicrun explain run"))
    return UsageError("AIC-E182", f"there is nothing to explain under {topic}", ways=tuple(ways))
