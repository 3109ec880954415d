"""A carrier's channel as two raw streams, which the standard library's buffers read and write. They know no carrier."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import IO, Any


class Output(io.RawIOBase):
    """What comes out of a channel; `receive(most)` gives bytes, none at the end."""

    def __init__(self, receive: Callable[[int], bytes]) -> None:
        self._receive = receive

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` with what there is."""
        data = self._receive(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class Input(io.RawIOBase):
    """What goes into a channel: `send` takes bytes and tells how many, `end` says that no more will come.

    Their `errors`, and those of a connection that is gone, are a broken pipe. `is_left`: nobody waits any more for who
    does not take it.
    """

    def __init__(
        self, send: Callable[[bytes], int], end: Callable[[], None], errors: tuple[type[Exception], ...]
    ) -> None:
        self._send, self._end = send, end
        self._errors: tuple[type[Exception], ...] = (OSError, EOFError, *errors)
        self.is_left = False

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:
        """Send a part of `data`; raises `BrokenPipeError`."""
        while True:
            try:
                sent = self._send(bytes(data))
            except TimeoutError as error:
                # Slow is no fault: whether the line is dead is the pulse's to say, and how long is the caller's.
                if self.is_left:
                    raise BrokenPipeError(str(error)) from error
            except self._errors as error:
                raise BrokenPipeError(str(error)) from error
            else:
                if sent:
                    return sent
                raise BrokenPipeError("the channel is closed")

    def close(self) -> None:
        """Say that no more will come, once."""
        if not self.closed:
            super().close()
            try:
                self._end()
            except (OSError, EOFError):
                # The connection is gone: so is the pipe.
                return


def write_all(stream: IO[bytes], data: bytes) -> None:
    """Write and close; who does not want to read all of it is no fault."""
    try:
        stream.write(data)
        stream.close()
    except (BrokenPipeError, ValueError):
        return
