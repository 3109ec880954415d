"""Reads what a client says, and takes a long silence for its end: a power cut or a pulled cable says nothing.

sshd would keep such a connection for hours. A call that runs, however long, is no silence: nobody reads meanwhile.
"""

import io
import os
import select
from typing import IO, Any

from aicrun.agent import hooks
from aicrun.wire.calls import IDLE_S

_BUFFER_BYTES = 64 * 1024


class _Listener(io.RawIOBase):
    def __init__(self, handle: int, held: bytes, most_s: float) -> None:
        self._handle, self._held, self._most_s = handle, held, most_s
        self._poll = select.poll()
        self._poll.register(handle, select.POLLIN)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """What came, none at the end or after the silence."""
        if self._held:
            taken = self._held[: len(buffer)]
            self._held = self._held[len(taken) :]
            buffer[: len(taken)] = taken
            return len(taken)
        if not self._poll.poll(self._most_s * 1000):
            return 0
        return os.readv(self._handle, [buffer])


def heard(stdin: Any) -> IO[bytes]:
    """The rest of `stdin`, a buffered stream that is not read any more, with its end after a silence of `IDLE_S`."""
    handle = stdin.fileno()
    os.set_blocking(handle, False)
    try:
        # What was read ahead with the first words.
        held = stdin.peek(1)
    finally:
        os.set_blocking(handle, True)
    return io.BufferedReader(_Listener(handle, held, hooks.number("IDLE_S", IDLE_S)), _BUFFER_BYTES)
