"""Sends files to an agent's store: small ones many to a request, large ones in pieces, never a file whole in memory.

It must not decide what is sent. A file that is not what was hashed any more is noticed here, before the host has it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

from aicrun.errors import HostRefused, PlanStale, Way
from aicrun.hosts.agent_link import AgentLink
from aicrun.hosts.backend import Content

# A larger file travels in pieces of its own. Requests are small enough that a slow line gives answers in time, and
# large enough that a round trip, or a header, is nothing beside them.
PIECE_BYTES = 1024 * 1024
FILES_MOST = 1000
# So many bytes are worth another connection, where that is a quicker one.
BULK_BYTES = 8 * 1024 * 1024
# A longer listing of a tree is sent only to a host that does not know it.
ASKED_FIRST_BYTES = 64 * 1024
# A host's disk may be slow; bytes arriving is no answer yet.
DEADLINE_S = 600.0

Request = tuple[dict[str, Any], bytes]


def lacking(link: AgentLink, tree: str, manifest: bytes, hashes: Sequence[str]) -> Any:
    """The agent's list of what its store lacks; raises what the link raises."""
    if len(manifest) > ASKED_FIRST_BYTES:
        answer, _ = link.call("store_missing", {"tree": tree})
        if answer.get("known"):
            return answer.get("missing")
    # The contents of a manifest are looked for unasked.
    answer, _ = link.call("store_missing", {"tree": tree, "hashes": [] if manifest else list(hashes)}, manifest)
    return answer.get("missing")


def send(link: AgentLink, bulk: Callable[[], AgentLink], contents: Sequence[Content]) -> None:
    """Send all of them, over `link` or, when they are many bytes, over a new one that `bulk` makes.

    Raises `PlanStale` for a file that changed, and what the link raises.
    """
    if sum(content.bytes for content in contents) < BULK_BYTES:
        _send(link, contents)
    else:
        with closing(bulk()) as quick:
            _send(quick, contents)


def _send(link: AgentLink, contents: Sequence[Content]) -> None:
    small = [content for content in contents if content.bytes <= PIECE_BYTES]
    link.call_each("store_put", _batches(small), DEADLINE_S)
    for content in contents:
        if content.bytes > PIECE_BYTES:
            _send_large(link, content)


def _batches(contents: Sequence[Content]) -> Iterator[Request]:
    """Requests of about a piece's size, each with many files."""
    names: list[str] = []
    files: list[bytes] = []
    size = 0
    for content in contents:
        if files and (size + content.bytes > PIECE_BYTES or len(files) == FILES_MOST):
            yield {"hashes": names, "sizes": [len(raw) for raw in files]}, b"".join(files)
            names, files, size = [], [], 0
        raw = _read(content)
        names.append(content.hash)
        files.append(raw)
        size += len(raw)
    if files:
        yield {"hashes": names, "sizes": [len(raw) for raw in files]}, b"".join(files)


def _send_large(link: AgentLink, content: Content) -> None:
    for is_last in (False, True):
        about = {"hash": content.hash, "bytes": content.bytes}
        answer, _ = link.call("store_part", about, deadline_s=DEADLINE_S)
        there = int(answer.get("offset") or 0)
        if there >= content.bytes:
            return
        try:
            link.call_each("store_part", _pieces(content, there), DEADLINE_S)
        except HostRefused as error:
            # What lay there was not the beginning of this file, after a loss of power say: it is gone now.
            if error.token != "transfer_failed" or not there or is_last:
                raise
        else:
            return


def _pieces(content: Content, there: int) -> Iterator[Request]:
    """The requests for what follows the first `there` bytes; the last one only once the whole file has its hash."""
    summed, at = hashlib.sha256(), 0
    held: Request | None = None
    try:
        with open(content.path, "rb") as stream:
            while raw := stream.read(PIECE_BYTES if at >= there else min(PIECE_BYTES, there - at)):
                summed.update(raw)
                if at >= there:
                    if held is not None:
                        yield held
                    held = {"hash": content.hash, "bytes": content.bytes, "offset": at}, raw
                at += len(raw)
                if at > content.bytes:
                    break
    except OSError as error:
        raise changing(content.path) from error
    if at != content.bytes or summed.hexdigest() != content.hash:
        raise changing(content.path)
    if held is not None:
        yield held


def _read(content: Content) -> bytes:
    try:
        handle = os.open(content.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            raw = os.read(handle, content.bytes + 1)
        finally:
            os.close(handle)
    except OSError as error:
        raise changing(content.path) from error
    if len(raw) != content.bytes or hashlib.sha256(raw).hexdigest() != content.hash:
        raise changing(content.path)
    return raw


def changing(path: str) -> PlanStale:
    """The error for a file that is not what it was when it was hashed."""
    return PlanStale(
        "AIC-E650",
        f"{path} changed while it was being read; nothing was started",
        ways=(Way("once it is still", "the same command again"),),
    )
