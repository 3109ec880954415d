"""A large content of the store while it arrives, piece by piece: beside its place until it has its hash.

What a lost connection left is taken up again. Two connections that bring the same content do not share a file. It must
not know what the content is for.
"""

import fcntl
import os
from typing import Dict

from aicrun.agent.file_moving import Stream
from aicrun.agent.refused import Refused

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
# Of this connection; one content comes after the other.
_arriving: Dict[str, Stream] = {}


def begin(place: str, size: int) -> int:
    """How many of the `size` bytes for `place` lie here already; locks them for this process. Raises `OSError`."""
    _forget()
    folder, content = os.path.split(place)
    path = os.path.join(folder, ".part-" + content)
    handle = os.open(path, _FLAGS, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_at(path, handle):
            # The other one has just finished, and what is locked is the store's content.
            raise BlockingIOError
    except BlockingIOError:
        os.close(handle)
        path = os.path.join(folder, ".part-%s-%s" % (content, os.urandom(8).hex()))
        handle = os.open(path, _FLAGS | os.O_TRUNC, 0o600)
    stream = _arriving[place] = Stream(path, handle)
    have = os.fstat(handle).st_size
    stream.cut(have if have < size else 0)
    return stream.at


def add(place: str, offset: int, piece: bytes, size: int) -> None:
    """The next piece; once all `size` bytes are there, they get their place.

    Raises `Refused` (transfer_failed) when they are not what the place is named for, or a piece is not the next one.
    """
    stream = _arriving.get(place)
    if stream is None or stream.at != offset or offset + len(piece) > size:
        # After a refusal the pieces that were on their way still come: none of them counts.
        raise Refused("transfer_failed", "a piece of a content is not the one that is due", {"content": place})
    try:
        stream.write(piece)
    except OSError as error:
        raise OSError(error.errno, error.strerror, stream.path) from error
    if stream.at < size:
        return
    try:
        if stream.is_shared or stream.hash.hexdigest() != os.path.basename(place):
            os.unlink(stream.path)
            message = "what arrived is not what was sent; it is sent from its beginning next time"
            raise Refused("transfer_failed", message, {"content": place})
        os.rename(stream.path, place)
    finally:
        _forget()


def _is_at(path: str, handle: int) -> bool:
    try:
        named, held = os.stat(path), os.fstat(handle)
    except FileNotFoundError:
        return False
    return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)


def _forget() -> None:
    for stream in _arriving.values():
        stream.close()
    _arriving.clear()
