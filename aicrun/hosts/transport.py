"""Transport: how a machine is reached, and nothing else. Two ways will carry it: this machine, and ssh."""

from __future__ import annotations

from typing import IO, Protocol


class Channel(Protocol):
    """A program running over there with its pipes; `close` ends our side and waits at most `timeout_s`."""

    stdin: IO[bytes]
    stdout: IO[bytes]

    def stderr_text(self) -> str:
        """What the program wrote on stderr so far, at most 4 KiB, as text."""
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

    def open(self, argv: tuple[str, ...]) -> Channel:
        """Start `argv` (no shell); raises `HostUnreachable` when the machine cannot be reached."""
        ...

    def run(self, argv: tuple[str, ...], stdin: bytes, timeout_s: float) -> tuple[int, bytes, bytes]:
        """Run `argv` to its end: (exit code, stdout, stderr); raises `HostUnreachable` after `timeout_s`."""
        ...
