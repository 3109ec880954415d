"""How a spec differs from the job that a host holds, field by field, in the classes that decide what it costs.

It must not know what the fields mean: both sides are as written, and scalars are compared by their text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aicrun.plan.draft import execution_of
from aicrun.plan.model import FieldChange, Wanted
from aicrun.plan.words import counted, harmless, short
from aicrun.wire.hashes import canonical
from aicrun.wire.jobs import JobReport, Source

SOURCE_TREE = "source_tree"
INPUT_TREES = "input_trees."
# Fields that a living keeper takes up. The others it was given at its start, and a plan must not say otherwise.
IN_PLACE = ("limits", "retry", "labels", "description")


def changes_of(wanted: Wanted, job: JobReport) -> tuple[FieldChange, ...]:
    """Every field that differs, as written: those that need a new start, that change in place, that act later."""
    execution = [_told(item, wanted.source, job.source) for item in _execution(wanted, job)]
    supervision = [_classed(item) for item in _differences("supervision", job.supervision, wanted.spec.supervision)]
    return tuple(execution + sorted(supervision, key=lambda item: item.kind == "later"))


def delivered(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The supervision fields of a living job after a change in place: what acts is new, the rest stays as it is."""
    kept = {key: value for key, value in old.items() if key not in IN_PLACE}
    return {**kept, **{key: value for key, value in new.items() if key in IN_PLACE}}


def only_source(changes: tuple[FieldChange, ...]) -> bool:
    """Whether the source tree is the only execution field that differs."""
    execution = [item.path for item in changes if item.kind == "execution"]
    return execution == ["source"]


def source_words(source: Source | None) -> str:
    """A source tree as people tell it: branch and commit, changed files, size in files."""
    if source is None:
        return "none"
    if source.git:
        return _fetched_words(source)
    files = counted(source.files, "file")
    if not source.commit:
        return f"{files}, tree {short(source.tree)}"
    place = f"{source.branch} at {source.commit[:7]}" if source.branch else source.commit[:7]
    dirty = f" and {counted(len(source.dirty), 'changed file')}" if source.dirty else ""
    return f"{place}{dirty}, {files}"


def files_words(files: tuple[str, ...], most: int) -> str:
    """`3 files: + cfg2.yaml, ~ sft.py and 1 more`, at most `most` of them by name."""
    shown = ", ".join(harmless(one) for one in files[:most])
    more = f" and {len(files) - most} more" if len(files) > most else ""
    return f"{counted(len(files), 'file')}: {shown}{more}"


def _fetched_words(source: Source) -> str:
    at = source.commit[:12] or "a commit that is not known"
    name = harmless(source.branch or ("" if source.commit.startswith(source.revision) else source.revision))
    return f"{name} at {at} of {harmless(source.git)}" if name else f"{at} of {harmless(source.git)}"


def _execution(wanted: Wanted, job: JobReport) -> Iterator[FieldChange]:
    return _differences("execution", job.execution, execution_of(wanted))


def _classed(change: FieldChange) -> FieldChange:
    if change.path.partition(".")[0] in IN_PLACE:
        return change
    return FieldChange(change.path, "later", change.old, change.new)


def _told(change: FieldChange, new: Source | None, old: Source | None) -> FieldChange:
    if change.path.startswith(INPUT_TREES):
        then, now = (f"files {short(str(tree))}" if tree else "none" for tree in (change.old, change.new))
        return FieldChange("inputs." + change.path[len(INPUT_TREES) :], change.kind, then, now)
    if change.path != SOURCE_TREE:
        return change
    before, after = source_words(old), source_words(new)
    if before == after:
        before, after = f"tree {short(str(change.old))}", f"tree {short(str(change.new))}"
    return FieldChange("source", change.kind, before, after)


def _differences(kind: str, old: Mapping[str, Any], new: Mapping[str, Any], above: str = "") -> Iterator[FieldChange]:
    for key in dict.fromkeys((*new, *old)):
        before, after = old.get(key), new.get(key)
        path = f"{above}{key}"
        if canonical(before) == canonical(after):
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _differences(kind, before, after, path + ".")
        elif isinstance(before, Mapping) and after is None:
            yield from _differences(kind, before, {}, path + ".")
        elif isinstance(after, Mapping) and before is None:
            yield from _differences(kind, {}, after, path + ".")
        else:
            yield FieldChange(path, kind, before, after)
