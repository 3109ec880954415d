"""A fault as the checks find it, before its excerpt is drawn; and what makes a `Diagnostic` of it.

Excerpts are drawn last, because a secret found anywhere must be masked in the excerpt of every other fault. It must
not decide what is a fault.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from aicrun.spec.diagnostics import Diagnostic, Excerpt, Span
from aicrun.spec.nodes import Mark, Node, Path, Text, dotted
from aicrun.spec.secrets import Mask


@dataclass(frozen=True)
class Range:
    """A piece of one line of a text: from `start`, `length` characters; 0 shows the line without a caret."""

    text: Text
    start: Mark
    length: int = 1


@dataclass(frozen=True)
class Finding:
    """One fault or lint. `also` is a second place with its label; `alone` True: the rest could not be checked."""

    code: str
    message: str
    where: Range
    path: Path = ()
    label: str = ""
    notes: tuple[str, ...] = ()
    helps: tuple[str, ...] = ()
    also: tuple[Range, str] | None = None
    alone: bool = False

    @property
    def severity(self) -> str:
        """`warning` for W codes, else `error`."""
        return "warning" if self.code.startswith("AIC-W") else "error"


def range_of(node: Node) -> Range:
    """Where a node's value stands, as far as its first line goes."""
    start = node.first()
    end = node.end
    line_end = node.origin.end_of(start.line)
    last = end.column if end.line == start.line else len(node.origin.lines[start.line].rstrip())
    if start.index >= len(node.origin.raw.rstrip()):
        return Range(node.origin, start)
    return Range(node.origin, start, max(1, min(last, line_end.column) - start.column))


def part_of(node: Node, words: str, nth: int = 0) -> Range:
    """Where the `nth` occurrence of `words` stands inside the node's source, or the node where escapes hide it."""
    first = node.first()
    index = first.index - 1
    for _ in range(nth + 1):
        index = node.origin.raw.find(words, index + 1, node.end.index)
        if index < 0:
            return range_of(node)
    place = node.origin.place(index)
    return Range(node.origin, place, len(words))


def diagnostics_of(findings: Iterable[Finding], mask: Mask, *, strict: bool = False) -> tuple[Diagnostic, ...]:
    """The findings as diagnostics with masked excerpts, each once, sorted by file, line and column.

    With `strict` warnings have the severity of errors.
    """
    made: dict[tuple[str, Span, str], Diagnostic] = {}
    for finding in findings:
        diagnostic = _diagnostic(finding, mask)
        if strict:
            diagnostic = replace(diagnostic, severity="error")
        made.setdefault((diagnostic.code, diagnostic.span, diagnostic.message), diagnostic)
    return tuple(sorted(made.values(), key=lambda one: (one.span.file, one.span.line, one.span.column, one.code)))


def _diagnostic(finding: Finding, mask: Mask) -> Diagnostic:
    where = finding.where
    excerpts = [_excerpt(where, mask, finding.label, primary=True)]
    if finding.also:
        other, label = finding.also
        excerpts.append(_excerpt(other, mask, label, primary=False))
    span = Span(where.text.file, where.start.line + 1, where.start.column + 1, max(1, where.length))
    return Diagnostic(
        finding.severity,
        finding.code,
        mask.words(finding.message),
        span,
        mask.words(dotted(finding.path)),
        tuple(sorted(excerpts, key=lambda one: (one.line, one.column))),
        tuple(mask.words(note) for note in finding.notes),
        tuple(mask.words(help_) for help_ in finding.helps),
        finding.alone,
    )


def _excerpt(where: Range, mask: Mask, label: str, *, primary: bool) -> Excerpt:
    line = where.text.lines[where.start.line]
    shown = mask.line(line, where.start.column, where.length)
    text = shown.text
    if not text.isprintable():
        text = "".join(char if char.isprintable() else " " for char in text)
    return Excerpt(where.start.line + 1, text, shown.column + 1, shown.length, label, primary)
