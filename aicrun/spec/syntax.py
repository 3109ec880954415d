"""What a YAML parser says about a broken text, in our words and with the likely cause.

The words of PyYAML's two parsers differ a little, so each row matches both. It must not import them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from aicrun.spec.findings import Finding, Range
from aicrun.spec.nodes import Mark, Text

_REST = "the rest of the file could not be checked"
_NO_SPACE = re.compile(r"^\s*(?:- )?([A-Za-z_][\w-]*):([^\s:/].*)$")
_COLON_INSIDE = re.compile(r"^(\s*(?:- )?[\w.-]+:\s+)(.*\S)\s*$")


@dataclass(frozen=True)
class Broken:
    """Where and why a parser gave up: its own words, the place, and the place of what it was reading (may be None)."""

    problem: str
    context: str
    mark: Mark
    context_mark: Mark | None = None


@dataclass(frozen=True)
class _Cause:
    """What to say: the words, the way out, and which place to show besides (the start of what was read)."""

    words: str
    help: str
    opened: str = ""


def syntax_finding(text: Text, broken: Broken) -> Finding:
    """The one finding of a text that is no YAML: E105 for a tag's handle, else E101."""
    cause = _cause(text, broken)
    mark = _within(text, _at_escape(text, broken))
    also = None
    if cause.opened and broken.context_mark is not None:
        also = (Range(text, broken.context_mark), cause.opened)
    elif mark.line > 0 and cause.help.startswith(f"line {mark.line} "):
        previous = text.place(text.starts[mark.line - 1])
        also = (Range(text, previous, 0), "")
    code = "AIC-E105" if "tag" in broken.problem + broken.context else "AIC-E101"
    prefix = "this is no YAML: " if code == "AIC-E101" else ""
    helps = (cause.help,) if cause.help else ()
    where = Range(text, mark)
    words = prefix + cause.words
    return Finding(code, words, where, label="read this far", notes=(_REST,), helps=helps, also=also, alone=True)


def _at_escape(text: Text, broken: Broken) -> Mark:
    """The place of the backslash of a broken escape, which one of the two parsers passes by."""
    at = broken.mark.index
    passed = "escape" in broken.problem and text.raw[at - 1 : at] == "\\" and text.raw[at : at + 1] != "\\"
    return text.place(at - 1) if passed else broken.mark


def _within(text: Text, mark: Mark) -> Mark:
    """The mark, or the end of the last line with words when it stands behind all of them."""
    if mark.line < len(text.lines) and text.lines[mark.line].strip():
        return mark
    last = max((at for at in range(min(mark.line, len(text.lines))) if text.lines[at].strip()), default=0)
    return text.end_of(last)


def _cause(text: Text, broken: Broken) -> _Cause:
    for pattern, cause in _CAUSES:
        if re.search(pattern, f"{broken.context}: {broken.problem}"):
            return cause(text, broken)
    return _Cause("it cannot be read", "look at this place and the line before it")


def _line(text: Text, number: int) -> str:
    return text.lines[number] if 0 <= number < len(text.lines) else ""


def _colon(text: Text, broken: Broken) -> _Cause:
    words = 'a ":" where no key can stand'
    line, before = _line(text, broken.mark.line), _line(text, broken.mark.line - 1)
    unspaced = _NO_SPACE.match(before)
    if unspaced and ": " not in before:
        return _Cause(words, f'line {broken.mark.line} has no space after its ":"; write "{_spaced(unspaced)}"')
    inside = _COLON_INSIDE.match(line)
    if inside and broken.mark.column >= inside.end(1):
        return _Cause(words, "text with \": \" inside goes into quotes: '…', or below the key behind a |")
    if before.strip() and _indent(line) > _indent(before):
        return _Cause(
            words,
            f"line {broken.mark.line + 1} stands further in than line {broken.mark.line}; begin both at one column",
        )
    return _Cause(words, "a key stands alone at the start of its line")


def _spaced(unspaced: re.Match[str]) -> str:
    return f"{unspaced[1]}: {unspaced[2]}"


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _character(text: Text, broken: Broken) -> _Cause:
    line = _line(text, broken.mark.line)
    char = line[broken.mark.column : broken.mark.column + 1]
    if char == "\t":
        indents = not line[: broken.mark.column].strip()
        what = "a tab is used for indentation" if indents else "a tab stands between words"
        return _Cause(what, f"use spaces in line {broken.mark.line + 1}")
    return _Cause(f"a value cannot start with {char}", "put the value into quotes: '…'")


def _tab(_text: Text, broken: Broken) -> _Cause:
    return _Cause("a tab is used for indentation", f"use spaces in line {broken.mark.line + 1}")


def _quote(_text: Text, _broken: Broken) -> _Cause:
    return _Cause("a quote is never closed", "close the quote that opens here", "opened here")


def _bracket(_text: Text, broken: Broken) -> _Cause:
    closing = "]" if "sequence" in broken.context else "}"
    return _Cause(f'a "," or "{closing}" is missing', f'close the list or mapping with "{closing}"', "opened here")


def _simple_key(text: Text, broken: Broken) -> _Cause:
    line = _line(text, broken.context_mark.line if broken.context_mark else broken.mark.line)
    unspaced = _NO_SPACE.match(line)
    if unspaced:
        number = (broken.context_mark or broken.mark).line + 1
        return _Cause("a key has no value", f'line {number} has no space after its ":"; write "{_spaced(unspaced)}"')
    return _Cause('a line has no ":" behind its key', 'write "key: value"', "this line")


def _block_end(text: Text, broken: Broken) -> _Cause:
    line = _line(text, broken.mark.line)
    if line.lstrip().startswith("- ") or "collection" in broken.context:
        return _Cause("a list and a mapping at one place", "indent the items below their key, all alike")
    before = line[: broken.mark.column].rstrip()
    if before.endswith(('"', "'")):
        return _Cause("text goes on behind a closing quote", "put the whole value into one pair of quotes: '…'")
    if before.strip():
        return _Cause("something stands behind a value that was complete", "put the whole value into quotes: '…'")
    return _Cause("the line is indented like none before it", "indent keys of one mapping alike")


def _says(words: str, help_: str = "") -> Callable[[Text, Broken], _Cause]:
    return lambda _text, _broken: _Cause(words, help_)


_CAUSES: tuple[tuple[str, Callable[[Text, Broken], _Cause]], ...] = (
    (r"mapping values are not allowed", _colon),
    (r"tab character", _tab),
    (r"cannot start any token", _character),
    (r"quoted scalar.*(unexpected end of stream|document separator|document indicator)", _quote),
    (r"unknown escape character", _says("an unknown escape behind a \\", "write \\\\ for the sign itself, or use '…'")),
    (r"quoted scalar", _says("an escape that is no character", "write \\\\ for the sign itself, or use '…'")),
    (r"flow (sequence|mapping)", _bracket),
    (r"(could not find|could not found) expected ':'", _simple_key),
    (
        r"sequence entries are not allowed",
        _says('a "-" where no item can stand', "start the list on its own line"),
    ),
    (r"mapping keys are not allowed", _says('a "?" where no key can stand', "put the text into quotes")),
    (r"block (collection|mapping).*(expected <block end>|did not find expected)", _block_end),
    (r"node content", _says("a value is missing here", "write a value, or put the sign into quotes")),
    (r"block scalar", _says("something stands behind | or >", "begin the text on the next line, indented by spaces")),
    (r"undefined tag handle|scanning a tag|duplicate tag", _says("tags are not used here", "remove the word behind !")),
    (r"anchor|alias", _says("an & or * without a name", "put the text into quotes: '…'")),
    (r"document start", _says("text behind the end of the document", "one file holds one document: remove the …")),
    (r"incompatible YAML document", _says("this YAML version is not known", "remove the line %YAML")),
    (r"directive", _says("a line that starts with %", "remove it, or put the text into quotes")),
)
