"""Faults of files as lines and as documents: the plain form is the spec's, the colours are added here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from aicrun.cli.screen import styled
from aicrun.spec.diagnostics import Diagnostic
from aicrun.spec.render import render

_HEAD = re.compile(r"(error|warning)(\[AIC-[EW]\d+\])(: .*)\Z")
_CARETS = re.compile(r"(\s*\|\s*)(\^+)(.*)\Z")


def as_lines(diagnostics: Iterable[Diagnostic]) -> list[str]:
    """All faults, parted by empty lines, with the words `error` and `warning` and their carets coloured."""
    shown: list[str] = []
    colour = ""
    for line in render(tuple(diagnostics)):
        if head := _HEAD.match(line):
            colour = "red" if head.group(1) == "error" else "yellow"
            line = styled(colour, head.group(1) + head.group(2)) + head.group(3)
        elif carets := _CARETS.match(line):
            line = carets.group(1) + styled(colour, carets.group(2) + carets.group(3))
        shown.append(line)
    return shown


def as_documents(diagnostics: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    """Each fault with its place, in the order given."""
    return [
        {
            "severity": item.severity,
            "code": item.code,
            "message": item.message,
            "file": item.span.file,
            "line": item.span.line,
            "column": item.span.column,
            "length": item.span.length,
            "path": item.path,
            "notes": list(item.notes),
            "helps": list(item.helps),
        }
        for item in diagnostics
    ]
