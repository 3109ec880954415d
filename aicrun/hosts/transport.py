"""Transport: how a machine is reached, and nothing else. This machine is `local.py`, ssh is `carriers.py`."""

from __future__ import annotations

from typing import IO, Protocol

from aicrun.errors import AicrunError
from aicrun.spec.model import Reached


class Channel(Protocol):
    """A program running over there with its pipes; `close` ends our side and waits at most `timeout_s`."""

    stdin: IO[bytes]
    stdout: IO[bytes]

    def stderr_text(self) -> str:
        """What the program wrote on stderr so far, at most 4 KiB, as text."""
        ...

    def fault(self, seen: bytes | None = None) -> AicrunError | None:
        """Why the channel ended before its program did, when the carrier knows; None when it is the program's end.

        `seen`: what came on stdout where an agent's first answer was due; None when it was none of that.
        """
        ...

    def abort(self) -> None:
        """Cut the connection at once, from any thread: a read that is going on sees the end."""
        ...

    def close(self, timeout_s: float = 5.0) -> int | None:
        """Close both pipes; the program's exit code, or None when it did not end in time (it is left alone)."""
        ...


class Transport(Protocol):
    """Runs a program on the machine; bytes travel on its pipes, never in its arguments."""

    name: str

    @property
    def carrier(self) -> str:
        """Who carries, and to where, as `doctor` shows it; empty for this machine."""
        ...

    def reached(self, sure: bool = False) -> Reached | None:
        """Where it leads, who carries, and which host key it showed; None for this machine.

        `sure`: with the key that it showed, though one more connection tells it. Raises `HostUnreachable` when the
        configuration cannot be read.
        """
        ...

    def open(self, argv: tuple[str, ...]) -> Channel:
        """Start `argv` (no shell); raises `HostUnreachable` when the machine cannot be reached."""
        ...

    def run(self, argv: tuple[str, ...], stdin: bytes, timeout_s: float) -> tuple[int, bytes, bytes]:
        """Run `argv` to its end: (exit code, stdout, stderr); raises `HostUnreachable` after `timeout_s`."""
        ...

    def bulk(self) -> Transport:
        """The way for many bytes: this one, or a quicker one to the same machine; closed with this one."""
        ...

    def attended(self, argv: tuple[str, ...], ports: tuple[int, ...]) -> tuple[str, ...]:
        """The local command that runs `argv` over there in this terminal; `ports` of there answer here too."""
        ...

    def close(self) -> None:
        """End what is shared between channels; programs over there are not touched."""
        ...
