"""A fault of a file, with its place and its way out. It must not print: views do.

Diagnostics are collected, so that a person sees all faults of a file in one pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from aicrun.errors import SpecInvalid


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a file: 1-based line and column of its first character, and the number of characters."""

    file: str
    line: int
    column: int
    length: int = 1


@dataclass(frozen=True, slots=True)
class Excerpt:
    """One line of the file as shown (tabs as one space, secrets masked), with the caret and what it says."""

    line: int
    text: str
    column: int
    length: int = 1
    label: str = ""
    primary: bool = True


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One fault; `severity` is `error` or `warning`, `code` an `AIC-E…`/`AIC-W…` number of `codes.py`.

    `path` is the key path (`machine.gpu`), empty for faults of the text itself. `notes` and `helps` are sentences.
    `alone` True: reading ended here, the rest of the file could not be checked.
    """

    severity: str
    code: str
    message: str
    span: Span
    path: str = ""
    excerpts: tuple[Excerpt, ...] = ()
    notes: tuple[str, ...] = ()
    helps: tuple[str, ...] = ()
    alone: bool = False


class DocumentInvalid(SpecInvalid):
    """One or more files with errors; `diagnostics` has all of them, warnings too, sorted by file and line."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        errors = [item for item in diagnostics if item.severity == "error"]
        first = errors[0] if errors else diagnostics[0]
        super().__init__(first.code, first.message)
        self.diagnostics = diagnostics
