"""Files over an agent's link: pieces asked for ahead, what lies there already not sent again. It decides nothing."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from typing import IO, Any

from aicrun.errors import AgentBroken, HostRefused, TransferFailed
from aicrun.hosts.agent_link import DEADLINE_S, AgentLink
from aicrun.hosts.backend import RemoteFiles, Sending, SmallFile

PIECE_BYTES = 1024 * 1024
AHEAD = 16
# A file of hundreds of GiB is read whole before its hash is told.
HASH_DEADLINE_S = 3600.0


class AgentFiles:
    """The files of one machine: many bytes over `link`, which `close` ends; questions over `asking` meanwhile."""

    def __init__(self, link: AgentLink, asking: AgentLink) -> None:
        self._link = link
        self._asking = asking
        self._just_read = ""

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
        # Before the first piece of a file that lies here in part, the machine hashes that part.
        yield from self._link.call_ahead("file_read", asks, AHEAD, HASH_DEADLINE_S if offset else DEADLINE_S)
        self._just_read = path

    def hash(self, path: str) -> tuple[str, int]:
        """(SHA-256, bytes); known to the agent of a file that this connection just read, else read over there."""
        link, self._just_read = (self._link if path == self._just_read else self._asking), ""
        answer, _ = link.call("file_hash", {"path": path}, deadline_s=HASH_DEADLINE_S)
        try:
            return str(answer["sha256"]), int(answer["bytes"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._nonsense(error) from error

    def write(self, sending: Sending, source: IO[bytes], tell: Callable[[int], None]) -> tuple[str, bool]:
        """Send what is missing of it, then let it be put in place: (its path there, it lay there already)."""
        began = _mark(source)
        sha256 = ""
        while True:
            path, offset, is_there, asks = self._begin(sending, sha256)
            if not asks:
                break
            # A file of this size is there: only now its content is worth a reading of its own.
            sha256 = _Sent(source).up_to(sending.bytes)
        tell(offset)
        if is_there:
            return path, True
        sent = _Sent(source)
        sent.up_to(offset)
        pieces = self._pieces(path, sending.key, sent, tell)
        self._link.call_each("file_write", pieces, HASH_DEADLINE_S if offset else DEADLINE_S)
        if _mark(source) != began:
            with contextlib.suppress(HostRefused):
                # No content has that hash, so the part goes.
                self._finish(sending, path, "0" * 64)
            raise TransferFailed("AIC-E645", f"{source.name} changes while it is sent")
        try:
            self._finish(sending, path, sent.sha256)
        except HostRefused as error:
            # What lay there was of another content; it is gone now.
            if error.token != "transfer_failed" or not offset:
                raise
            return self.write(sending, source, tell)
        return path, False

    def write_small(self, files: tuple[SmallFile, ...], replace: bool) -> int:
        """Send those that do not lie there yet, all in one message; how many did."""
        rows = [[one.path, len(one.content), hashlib.sha256(one.content).hexdigest(), one.mode] for one in files]
        answer, _ = self._link.call("files_look", {"files": rows, "replace": replace}, deadline_s=HASH_DEADLINE_S)
        try:
            same = [bool(one) for one in answer["same"]]
            missing = [(row, one.content) for row, one, is_there in zip(rows, files, same, strict=True) if not is_there]
        except (KeyError, TypeError, ValueError) as error:
            raise self._nonsense(error) from error
        if missing:
            body = {"files": [row for row, _ in missing], "replace": replace}
            content = b"".join(content for _, content in missing)
            self._link.call("files_put", body, content, HASH_DEADLINE_S)
        return len(files) - len(missing)

    def _begin(self, sending: Sending, sha256: str) -> tuple[str, int, bool, bool]:
        first = {"path": sending.path, "name": sending.name, "make_folders": sending.make_folders}
        body = {**first, "bytes": sending.bytes, "key": sending.key, "sha256": sha256, "replace": sending.replace}
        answer, _ = self._link.call("file_begin", body, deadline_s=HASH_DEADLINE_S)
        try:
            asks = bool(answer["asks"]) and not sha256
            return str(answer["path"]), int(answer["offset"]), bool(answer["same"]), asks
        except (KeyError, TypeError, ValueError) as error:
            raise self._nonsense(error) from error

    def _finish(self, sending: Sending, path: str, sha256: str) -> None:
        body = {"path": path, "key": sending.key, "bytes": sending.bytes, "sha256": sha256}
        last = {"mode": sending.mode, "replace": sending.replace}
        self._link.call("file_finish", {**body, **last}, deadline_s=HASH_DEADLINE_S)

    def close(self) -> None:
        """End the link."""
        self._link.close()

    def _pieces(
        self, path: str, key: str, sent: _Sent, tell: Callable[[int], None]
    ) -> Iterator[tuple[dict[str, Any], bytes]]:
        offset = sent.at
        while data := sent.next():
            yield {"path": path, "key": key, "offset": offset}, data
            offset = sent.at
            tell(offset)

    def _nonsense(self, error: Exception) -> AgentBroken:
        return AgentBroken("AIC-E512", f"the agent of {self._link.machine} cannot be understood: {error}")


class _Sent:
    """A file of ours that is read from its beginning on, and the hash of what was read."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._hash = hashlib.sha256()
        self.at = source.seek(0)

    @property
    def sha256(self) -> str:
        """Of all that was read."""
        return self._hash.hexdigest()

    def next(self, most: int = PIECE_BYTES) -> bytes:
        """The next piece, empty at the end."""
        data = self._source.read(most)
        self._hash.update(data)
        self.at += len(data)
        return data

    def up_to(self, offset: int) -> str:
        """Read on to `offset`: the SHA-256 up to there."""
        while self.at < offset and self.next(min(PIECE_BYTES, offset - self.at)):
            pass
        return self.sha256


def _mark(source: IO[bytes]) -> tuple[int, int]:
    state = os.fstat(source.fileno())
    return state.st_size, state.st_mtime_ns
