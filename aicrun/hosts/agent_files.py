"""Files over an agent's link: pieces asked for ahead, what lies there already not sent again. It decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, Any

from aicrun.errors import AgentBroken
from aicrun.hosts.agent_link import AgentLink
from aicrun.hosts.backend import RemoteFiles, Sending

PIECE_BYTES = 4 * 1024 * 1024
AHEAD = 3
# A file of hundreds of GiB is read whole before its hash is told.
HASH_DEADLINE_S = 3600.0


class AgentFiles:
    """The files of one machine: many bytes over `link`, which `close` ends; questions over `asking` meanwhile."""

    def __init__(self, link: AgentLink, asking: AgentLink) -> None:
        self._link = link
        self._asking = asking

    def files(self, path: str) -> RemoteFiles:
        """The regular files at `path`."""
        answer, _ = self._asking.call("file_list", {"path": path}, deadline_s=HASH_DEADLINE_S)
        try:
            files = tuple((str(name), int(size), int(mode)) for name, size, mode in answer["files"])
            skipped = tuple(str(name) for name in answer["skipped"])
            return RemoteFiles(str(answer["path"]), bool(answer["is_folder"]), files, skipped)
        except (KeyError, TypeError, ValueError) as error:
            raise self._nonsense(error) from error

    def read(self, path: str, offset: int, size: int) -> Iterator[bytes]:
        """Its bytes from `offset` up to `size`."""
        asks = (
            ({"path": path, "offset": at, "size": min(PIECE_BYTES, size - at)}, b"")
            for at in range(offset, size, PIECE_BYTES)
        )
        return self._link.call_ahead("file_read", asks, AHEAD)

    def hash(self, path: str) -> tuple[str, int]:
        """(SHA-256, bytes), read over there."""
        answer, _ = self._asking.call("file_hash", {"path": path}, deadline_s=HASH_DEADLINE_S)
        try:
            return str(answer["sha256"]), int(answer["bytes"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._nonsense(error) from error

    def write(self, sending: Sending, source: IO[bytes], tell: Callable[[int], None]) -> tuple[str, bool]:
        """Send what is missing of it, then let it be put in place: (its path there, it lay there already)."""
        about: dict[str, Any] = {"bytes": sending.bytes, "sha256": sending.sha256, "replace": sending.replace}
        first = {"path": sending.path, "name": sending.name, "make_folders": sending.make_folders, **about}
        answer, _ = self._link.call("file_begin", first, deadline_s=HASH_DEADLINE_S)
        try:
            path, offset, is_there = str(answer["path"]), int(answer["offset"]), bool(answer["same"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._nonsense(error) from error
        tell(offset)
        if is_there:
            return path, True
        source.seek(offset)
        self._link.call_each("file_write", self._pieces(path, sending.sha256, offset, source, tell))
        self._link.call("file_finish", {"path": path, "mode": sending.mode, **about}, deadline_s=HASH_DEADLINE_S)
        return path, False

    def close(self) -> None:
        """End the link."""
        self._link.close()

    def _pieces(
        self, path: str, sha256: str, offset: int, source: IO[bytes], tell: Callable[[int], None]
    ) -> Iterator[tuple[dict[str, Any], bytes]]:
        while data := source.read(PIECE_BYTES):
            yield {"path": path, "sha256": sha256, "offset": offset}, data
            offset += len(data)
            tell(offset)

    def _nonsense(self, error: Exception) -> AgentBroken:
        return AgentBroken("AIC-E512", f"the agent of {self._link.machine} cannot be understood: {error}")
