"""The endings that `retry.when` names, and the pause of `retry.backoff`: what the schema cannot say of them.

It must not decide whether anything is tried again: that is the host's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from aicrun.spec.findings import Finding, range_of
from aicrun.spec.grammar import nearest
from aicrun.spec.nodes import Node, Path
from aicrun.spec.sizes import duration_s
from aicrun.spec.values import short

# Signals of Linux that end a process, by name: the run's machine is Linux, this client may be another system.
SIGNALS = (
    *("HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM"),
    *("TERM", "STKFLT", "XCPU", "XFSZ", "VTALRM", "PROF", "IO", "PWR", "SYS"),
)
WORDS = ("exit", "signal", "oom_kill", "timeout", "reboot", "unknown")
_OTHER_WORDS = {
    "oom": "oom_kill",
    "out_of_memory": "oom_kill",
    "max_duration": "timeout",
    "deadline": "timeout",
    "restart": "reboot",
    "failure": "exit",
    "failed": "exit",
    "error": "exit",
    "lost": "unknown",
}
# What the schema lets through: numbers with units, in whatever order.
_PAUSE = re.compile(r"(?=.*[1-9])([0-9]+[smhdw])+(\.\.([0-9]+[smhdw])+)?")
_WHEN: Path = ("retry", "when")
_BACKOFF: Path = ("retry", "backoff")


def ending_help(text: str) -> str:
    """What was meant by a word that is no ending, as a sentence; empty when nothing is near."""
    word = text.strip().lower().replace("-", "_")
    head, colon, tail = word.partition(":")
    if head in ("exit", "exit_code", "code", "signal") and colon and tail:
        return f"did you mean exit:{tail}?" if head != "signal" else _signal_help(tail)
    if word.isdigit():
        return f"did you mean exit:{word}?"
    if word.upper().removeprefix("SIG") in SIGNALS:
        return f"did you mean signal:{word.upper().removeprefix('SIG')}?"
    near = _OTHER_WORDS.get(word) or nearest(word, WORDS)
    return f"did you mean {near}?" if near else ""


def ending_findings(root: Node) -> Iterator[Finding]:
    """A finding for every ending that no command can have, and for a pause that never grows from nothing."""
    when = root.at(*_WHEN)
    for number, item in enumerate(when.elements() if when is not None and when.children is not None else ()):
        text = item.text or ""
        head, colon, tail = text.partition(":")
        path: Path = (*_WHEN, number)
        if head == "exit" and colon and tail.isdigit() and len(tail) <= 3 and not 1 <= int(tail) <= 255:
            zero = int(tail) == 0
            message = f'"retry.when" has {text}: ' + ("code 0 is a success" if zero else "exit codes end at 255")
            help_ = "remove it" if zero else "write exit:1 to exit:255"
            yield Finding("AIC-E117", message, range_of(item), path, helps=(help_,))
        elif head == "signal" and colon and tail and tail not in SIGNALS:
            message = f'"retry.when" has {short(text)}, and Linux has no such signal that ends a process'
            yield Finding("AIC-E118", message, range_of(item), path, helps=(_signal_help(tail),))
    yield from _backoff(root.at(*_BACKOFF))


def backoff_s(text: str) -> tuple[int, int] | None:
    """First and longest pause in seconds of `1m..15m`, or of `1m`, which stays; None for text that is neither."""
    low, dots, high = text.partition("..")
    first, longest = duration_s(low), duration_s(high if dots else low)
    return None if first is None or longest is None else (first, longest)


def _backoff(node: Node | None) -> Iterator[Finding]:
    if node is None or not _PAUSE.fullmatch(node.text or "") or node.text is None:
        return
    found = backoff_s(node.text)
    if found is None:
        message = f'"retry.backoff" is a duration or a range of durations, and "{short(node.text)}" is none'
        notes = ("durations use w, d, h, m and s, in this order: 1h30m",)
        yield Finding("AIC-E122", message, range_of(node), _BACKOFF, notes=notes, helps=("write 1m..15m",))
    elif found[0] == 0:
        message = f'"retry.backoff" begins above zero, here it is {node.text}'
        high = node.text.partition("..")[2]
        yield Finding(
            "AIC-E117", message, range_of(node), _BACKOFF, helps=(f"write 1s..{high}" if high else "write 1s",)
        )


def _signal_help(tail: str) -> str:
    name = tail.upper().removeprefix("SIG")
    near = name if name in SIGNALS else nearest(name, SIGNALS)
    return f"did you mean signal:{near}?" if near else "write signal:KILL, signal:SEGV or another by its name"
