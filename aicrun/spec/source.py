"""From the bytes of a file to a tree of nodes: the only door to YAML.

It must not build objects: the events of PyYAML's parser become plain values by our own rules (`scalars.py`), so that
no tag can run code and no alias can grow. Faults are collected and reading goes on, unless the text itself ends it.
"""

from __future__ import annotations

import re
from typing import Any

from aicrun.spec.compose import REST, Composer, Stopped
from aicrun.spec.findings import Finding, Range, range_of
from aicrun.spec.nodes import Mark, Node, Place, Text
from aicrun.spec.scalars import resolved
from aicrun.spec.syntax import Broken, syntax_finding

# A text command has at most 64 KiB, so four times that holds every sensible spec.
MOST_BYTES = 256 * 1024

# What YAML allows, without the byte-order mark, which the two parsers see differently inside a text.
_UNUSABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_UTF_16_32 = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_UTF_8_MARK = b"\xef\xbb\xbf"


class Reading:
    """What reading gave: the text, the root node (None where there is none), the faults found on the way."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.root: Node | None = None
        self.findings: list[Finding] = []

    @property
    def broken(self) -> bool:
        """True when the text could not be read to its end."""
        return any(finding.alone for finding in self.findings)


def read(raw: bytes, file: str) -> Reading:
    """The tree in `raw`, and every fault of the text itself; `file` is its name as people typed it. Never raises."""
    try:
        text = _decoded(raw, file)
    except Stopped as stopped:
        return _ended(Reading(stopped.finding.where.text), stopped)
    return read_text(text)


def read_text(text: Text) -> Reading:
    """As `read`, for a text that is decoded already (an override, say)."""
    reading = Reading(text)
    composer = Composer(text, resolved)
    try:
        _check_characters(text)
        _compose(text, composer)
    except Stopped as stopped:
        reading.findings += composer.findings
        return _ended(reading, stopped)
    reading.findings += composer.findings
    _settle(reading, composer.roots)
    return reading


def _ended(reading: Reading, stopped: Stopped) -> Reading:
    reading.findings.append(stopped.finding)
    return reading


def _decoded(raw: bytes, file: str) -> Text:
    empty = Range(Text(file, ""), Place(0, 0, 0), 0)
    if len(raw) > MOST_BYTES:
        message = f"the file has {len(raw):,} bytes, a spec has at most {MOST_BYTES:,}"
        raise Stopped(Finding("AIC-E106", message, empty, notes=(REST,), alone=True))
    if raw.startswith(_UTF_16_32):
        raise Stopped(_not_utf8(empty, 0, "a byte-order mark of UTF-16 or UTF-32"))
    if raw[:64].count(0) > 8:
        raise Stopped(_not_utf8(empty, raw.index(0), "zero bytes as UTF-16 has them"))
    try:
        return Text(file, raw.removeprefix(_UTF_8_MARK).decode("utf-8"))
    except UnicodeDecodeError as error:
        position = error.start + (len(_UTF_8_MARK) if raw.startswith(_UTF_8_MARK) else 0)
        before = Text(file, raw[:position].removeprefix(_UTF_8_MARK).decode("utf-8"))
        where = Range(before, before.place(len(before.raw)))
        raise Stopped(_not_utf8(where, position, f"0x{raw[position]:02x}")) from error


def _not_utf8(where: Range, position: int, what: str) -> Finding:
    message = f"the file is not UTF-8: {what} at byte {position:,}"
    return Finding("AIC-E100", message, where, notes=(REST,), helps=("save it as UTF-8",), alone=True)


def _check_characters(text: Text) -> None:
    found = _UNUSABLE.search(text.raw)
    if found:
        message = f"the character U+{ord(found.group()):04X} cannot stand in a file"
        where = Range(text, text.place(found.start()))
        raise Stopped(Finding("AIC-E109", message, where, notes=(REST,), helps=("remove it",), alone=True))


def _compose(text: Text, composer: Composer) -> None:
    import yaml  # most commands read no spec, and yaml is a good part of a start

    handlers = {getattr(yaml, name): handler for name, handler in composer.handlers().items()}
    end = yaml.StreamEndEvent
    try:
        parser = _parser(text.raw)
        kind = None
        while kind is not end:
            event = parser.get_event()
            kind = type(event)
            handler = handlers.get(kind)
            if handler is not None:
                handler(event)
    except yaml.MarkedYAMLError as error:
        raise Stopped(syntax_finding(text, _broken(error))) from error


def _parser(text: str) -> Any:
    """Libyaml's parser where it is there; the one in Python for texts with tabs, which libyaml lets pass."""
    import yaml  # see `_compose`

    if yaml.__with_libyaml__ and "\t" not in text:
        from yaml._yaml import CParser  # absent where PyYAML was built without libyaml

        return CParser(text)
    return yaml.SafeLoader(text)


def _broken(error: Any) -> Broken:
    marks: list[Mark] = [mark for mark in (error.problem_mark, error.context_mark) if mark is not None]
    return Broken(error.problem or "", error.context or "", marks[0] if marks else Place(0, 0, 0), error.context_mark)


def _settle(reading: Reading, roots: list[Node]) -> None:
    """The first document that is not empty is the root; each further one is a fault."""
    filled = [root for root in roots if root.text != "" or not root.plain]
    reading.root = filled[0] if filled else None
    for extra in filled[1:]:
        helps = ("one file holds one: move it into a file of its own",)
        reading.findings.append(Finding("AIC-E103", "a second document in one file", range_of(extra), helps=helps))
