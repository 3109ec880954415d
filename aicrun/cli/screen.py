"""The two streams of a command: results on stdout, the story on stderr, and what the terminal can show.

Words carry their colour as private-use characters, which `harmless` never lets through from a host; here they become
colours or vanish. It must not know what is being shown.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from textwrap import wrap
from typing import IO, Any

from aicrun.errors import AicrunError, Way

_STYLES = {
    "bold": ("\ue001", "1"),
    "dim": ("\ue002", "2"),
    "red": ("\ue003", "31"),
    "green": ("\ue004", "32"),
    "yellow": ("\ue005", "33"),
}
_OFF = "\ue000"
PROSE_COLUMNS = 80
# The variable by which a shell asks for completions.
COMPLETE = "_AICRUN_COMPLETE"


def styled(style: str, text: str) -> str:
    """`text` in one of `bold`, `dim`, `red`, `green`, `yellow`; an empty style changes nothing."""
    return f"{_STYLES[style][0]}{text}{_OFF}" if style and text else text


def plain(text: str) -> str:
    """`text` without its style marks."""
    for mark, _ in _STYLES.values():
        text = text.replace(mark, "")
    return text.replace(_OFF, "")


def _coloured(text: str) -> str:
    for mark, code in _STYLES.values():
        text = text.replace(mark, f"\x1b[{code}m")
    return text.replace(_OFF, "\x1b[0m")


@contextmanager
def writing() -> Iterator[None]:
    """Whatever stdout cannot take becomes an `AicrunError`, said once; a reader who left stays `BrokenPipeError`."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        # Files are named, stdout is not; what it did not take is still held, so that one more try tells.
        if error.filename is None and not _takes(sys.stdout):
            raise _unwritable(error) from error
        raise


def _takes(stream: IO[str]) -> bool:
    try:
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError:
        return False
    return True


def _unwritable(error: OSError) -> AicrunError:
    # Nothing more may reach it, also not when Python closes it at the end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return AicrunError(
        "AIC-E016",
        f"stdout takes nothing more: {error.strerror or type(error).__name__}",
        facts=(("done", "what is not shown may have happened all the same"),),
        ways=(Way("see how the runs stand", "aicrun list"),),
    )


@dataclass
class Screen:
    """What one command prints to; `json` and `debug` are set by the options of that name.

    `typed` is the whole command line, to be typed again.
    """

    width: int = PROSE_COLUMNS
    ascii: bool = False
    out_colour: bool = False
    err_colour: bool = False
    out_terminal: bool = False
    err_terminal: bool = False
    in_terminal: bool = False
    json: bool = False
    debug: bool = False
    typed: str = "aicrun"
    interrupted: tuple[str, ...] = ()
    # The exit code of what fails on our side, where a program's own code is passed on; 0: by the table.
    ours: int = 0
    _rewriting: bool = field(default=False, repr=False)

    @property
    def mark(self) -> str:
        """What tells that text was cut."""
        return ".." if self.ascii else "…"

    @property
    def bar(self) -> str:
        """What stands before text of a host."""
        return "| " if self.ascii else "│ "

    def prose(self, text: str, indent: int = 0) -> list[str]:
        """`text` in lines of at most 80 columns, those after the first `indent` deep; words stay whole."""
        columns = min(self.width, PROSE_COLUMNS)
        return wrap(text, columns, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)

    def out(self, lines: Iterable[str]) -> None:
        """Lines of the result, on stdout; nothing with `--json`, where one document is all of it."""
        if not self.json:
            self._print(lines, self.out_colour)

    def err(self, lines: Iterable[str]) -> None:
        """Lines of the story, on stderr; one that takes nothing more ends the story, not the command."""
        try:
            self.clear()
            self._write(sys.stderr, lines, self.err_colour)
        except BrokenPipeError:
            raise
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)

    def raw(self, data: bytes) -> None:
        """Bytes on stdout as they are."""
        sys.stdout.flush()
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _unwritable(error) from error  # long data passes the buffer: no second try would tell

    def document(self, kind: str, body: Mapping[str, Any]) -> None:
        """The one JSON document of a command."""
        whole = {"schema_version": 1, "kind": kind, **body}
        self._print([json.dumps(whole, ensure_ascii=True, indent=2)], False)

    def ask(self, question: str) -> None:
        """A question on stderr, without an end of line."""
        self.clear()
        sys.stderr.write(self.as_ascii(_coloured(question) if self.err_colour else plain(question)))
        sys.stderr.flush()

    def rewrite(self, line: str) -> None:
        """A line on stderr that the next one replaces; only on a terminal."""
        if self.err_terminal:
            text = _coloured(line) if self.err_colour else plain(line)
            sys.stderr.write("\r\x1b[K" + self.as_ascii(text))
            sys.stderr.flush()
            self._rewriting = True

    def clear(self) -> None:
        """Take the rewritten line away."""
        if self._rewriting:
            sys.stderr.write("\r\x1b[K")
            self._rewriting = False

    def as_ascii(self, text: str) -> str:
        """`text` with the fallback characters where the terminal has no others."""
        if not self.ascii:
            return text
        head, rest = (".", text[1:]) if text.startswith("… ") else ("", text)
        whole = head + rest.replace("…", "..").replace("±", "/").replace("│", "|")
        return whole.encode("ascii", "replace").decode("ascii")

    def _print(self, lines: Iterable[str], colour: bool) -> None:
        # What the lines are made of is read before: only stdout's own refusal is told as that.
        ready = list(lines)
        try:
            self._write(sys.stdout, ready, colour)
        except BrokenPipeError:
            # Whoever read has seen enough. The command does what it was told all the same, and ends with its own code:
            # a run that failed is no 0 because of it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        except OSError as error:
            raise _unwritable(error) from error

    def _write(self, stream: IO[str], lines: Iterable[str], colour: bool) -> None:
        for line in lines:
            stream.write(self.as_ascii(_coloured(line) if colour else plain(line)) + "\n")
        stream.flush()


def fill_streams() -> None:
    """Give a process that was started without stdin, stdout or stderr one that swallows and says nothing.

    Before anything is opened: a file of ours must not become what some child takes for its output.
    """
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(handle, True)
    os.close(handle)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # for as long as the process lives
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # the same
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # the same


def of_environment(env: Mapping[str, str]) -> Screen:
    """The screen of this process: width, colour and characters as the environment and the streams allow."""
    dumb = env.get("TERM") == "dumb"
    coloured = not env.get("NO_COLOR") and not dumb
    out, err = sys.stdout.isatty(), sys.stderr.isatty()
    return Screen(
        width=_width(env, out or err),
        ascii=_is_ascii(env),
        out_colour=coloured and out,
        err_colour=coloured and err,
        out_terminal=out,
        err_terminal=err and not dumb,
        in_terminal=not sys.stdin.closed and sys.stdin.isatty(),
    )


def _width(env: Mapping[str, str], terminal: bool) -> int:
    columns = env.get("COLUMNS", "")
    if columns.isdigit() and int(columns) > 0:
        return max(40, int(columns))
    if not terminal:
        return PROSE_COLUMNS
    for stream in (sys.stdout, sys.stderr):
        try:
            return max(40, os.get_terminal_size(stream.fileno()).columns)
        except OSError:
            continue
    return PROSE_COLUMNS


def _is_ascii(env: Mapping[str, str]) -> bool:
    wish = env.get("AICRUN_ASCII", "")
    if wish:
        return wish != "0"
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    return encoding != "utf8"
