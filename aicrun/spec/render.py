"""Diagnostics as lines of text, as the screens show them, and as data for `--json`.

Each line is a row of pieces with a role, so that the command line can colour them; it must not colour or print.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from aicrun.spec.diagnostics import Diagnostic, Excerpt

WIDTH = 80
LONGEST_EXCERPT = 74
# Past this many each fault is one line, until a person asks for more.
MOST_OPEN = 10


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a line; `role` is `plain`, `error`, `warning` or `place`."""

    text: str
    role: str = "plain"


Line = tuple[Piece, ...]


def screen(diagnostics: Iterable[Diagnostic], *, verbose: bool = False, ascii: bool = False) -> tuple[Line, ...]:
    """All diagnostics, parted by empty lines; one line each where there are more than ten and not `verbose`.

    `ascii` replaces `…` by `..`, for terminals that have no other.
    """
    rows = tuple(diagnostics)
    if len(rows) > MOST_OPEN and not verbose:
        lines = [line for row in rows for line in (_brief(row),)]
        lines.append((Piece(f"  all of each, with its place: -v ({len(rows)} in all)"),))
    else:
        lines = []
        for row in rows:
            lines += [()] if lines else []
            lines += open_lines(row)
    return tuple(_ascii(line) for line in lines) if ascii else tuple(lines)


def text(diagnostics: Iterable[Diagnostic], *, verbose: bool = False, ascii: bool = False) -> str:
    """The same as one text that ends with a line break; empty when there are none."""
    rows = ("".join(piece.text for piece in line) for line in screen(diagnostics, verbose=verbose, ascii=ascii))
    return "".join(f"{row}\n" for row in rows)


def summary(file: str, diagnostics: Iterable[Diagnostic]) -> str:
    """The last line of a check: `run.yaml: 2 errors, 1 warning. No machine was asked.`"""
    severities = [row.severity for row in diagnostics]
    counts = [(severities.count(kind), kind) for kind in ("error", "warning")]
    words = ", ".join(f"{count:,} {kind}{'' if count == 1 else 's'}" for count, kind in counts if count)
    return f"{file}: {words or '0 warnings'}. No machine was asked."


def document(diagnostics: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    """The diagnostics as plain data for `--json`, with the field names of `Diagnostic`."""
    return [asdict(row) for row in diagnostics]


def open_lines(diagnostic: Diagnostic) -> list[Line]:
    """One diagnostic with its place, excerpt, notes and helps."""
    role = diagnostic.severity
    span = diagnostic.span
    width = max([2, *(len(str(excerpt.line)) for excerpt in diagnostic.excerpts)])
    gutter = " " * width
    lines: list[Line] = list(_wrapped(f"{role}[{diagnostic.code}]", role, f": {diagnostic.message}"))
    lines.append((Piece(f"{gutter}--> {span.file}:{span.line}:{span.column}", "place"),))
    shown = [excerpt for excerpt in diagnostic.excerpts if excerpt.text.strip()]
    if shown:
        lines.append((Piece(f"{gutter} |"),))
    for excerpt in shown:
        drawn = _excerpt(excerpt, width, role)
        # Two places on one line share it.
        lines += drawn[1:] if drawn[0] in lines else drawn
    advice = [("note", note) for note in diagnostic.notes] + [("help", help_) for help_ in diagnostic.helps]
    if diagnostic.alone:
        # What ended the reading is helped first; that the rest was not checked comes last.
        advice.sort(key=lambda row: row[0])
    if advice and shown:
        lines.append((Piece(f"{gutter} |"),))
    for kind, words in advice:
        lead = f"{gutter} = {kind}: "
        lines += [(Piece(row),) for row in _paragraph(lead, words)]
    return lines


def _brief(diagnostic: Diagnostic) -> Line:
    span = diagnostic.span
    place = Piece(f"{span.file}:{span.line}:{span.column}: ", "place")
    return (
        place,
        Piece(f"{diagnostic.severity}[{diagnostic.code}]", diagnostic.severity),
        Piece(f": {diagnostic.message}"),
    )


def _wrapped(head: str, role: str, rest: str) -> Iterable[Line]:
    rows = textwrap.wrap(head + rest, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    yield Piece(head, role), Piece(rows[0][len(head) :])
    for row in rows[1:]:
        yield (Piece(row),)


def _paragraph(lead: str, words: str) -> list[str]:
    indent = " " * len(lead)
    return textwrap.wrap(
        words, WIDTH, initial_indent=lead, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _excerpt(excerpt: Excerpt, width: int, role: str) -> list[Line]:
    shown, column, length = _cut(excerpt.text.rstrip(), excerpt.column - 1, excerpt.length)
    lines: list[Line] = [(Piece(f"{excerpt.line:>{width}} | {shown}"),)]
    if excerpt.length:
        sign = "^" if excerpt.primary else "-"
        label = f" {excerpt.label}" if excerpt.label else ""
        carets = Piece(sign * length + label, role if excerpt.primary else "plain")
        lines.append((Piece(f"{' ' * width} | {' ' * column}"), carets))
    return lines


def _cut(line: str, column: int, length: int) -> tuple[str, int, int]:
    """The line cut to the longest excerpt around its mark, with the mark's column and length in what is left."""
    if len(line) > LONGEST_EXCERPT:
        begin = 0
        if column + min(length, 20) > LONGEST_EXCERPT - 1:
            begin = max(0, min(column - 8, column + length + 8 - LONGEST_EXCERPT))
            begin = min(begin, max(0, len(line) - LONGEST_EXCERPT))
        end = begin + LONGEST_EXCERPT
        left, right = ("…" if begin else ""), ("…" if end < len(line) else "")
        line = left + line[begin + len(left) : end - len(right)] + right
        column -= begin
    return line, column, max(1, min(length, LONGEST_EXCERPT - column))


def _ascii(line: Line) -> Line:
    return tuple(Piece(piece.text.replace("…", "..").encode("ascii", "replace").decode(), piece.role) for piece in line)
