"""Faults of files as lines and as documents: the form is the spec's, the colours are added here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aicrun.cli.screen import styled
from aicrun.spec.diagnostics import Diagnostic
from aicrun.spec.render import document, screen

_STYLES = {"plain": "", "error": "red", "warning": "yellow", "place": "dim"}


def as_lines(diagnostics: Iterable[Diagnostic], verbose: bool = False) -> list[str]:
    """All faults, parted by empty lines; past ten one line each, unless `verbose`."""
    lines = screen(diagnostics, verbose=verbose)
    return ["".join(styled(_STYLES.get(piece.role, ""), piece.text) for piece in line) for line in lines]


def as_documents(diagnostics: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    """Each fault with its place, in the order given."""
    return document(diagnostics)
