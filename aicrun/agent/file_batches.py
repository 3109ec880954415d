"""Many small files in one message: which of them are there already, the rest put in place, each whole or not at all.

The disk is asked to begin with all of a batch before any is waited for. No link is followed, and nothing that is there
is replaced unasked.
"""

import hashlib
import os
import stat
from typing import Any, Dict, List, NamedTuple, Set

from aicrun.agent import bodies
from aicrun.agent.file_moving import BEGIN_WRITING, part_of
from aicrun.agent.files import Answer, hashed, lstat, path_of, refusal
from aicrun.agent.home import Home
from aicrun.agent.refused import Refused

# Each of them is open for a moment.
FILES_MOST = 200
BYTES_MOST = 16 * 1024 * 1024


class _Wanted(NamedTuple):
    path: str
    size: int
    sha256: str
    mode: int


def look(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{files: [[path, bytes, sha256, mode]], replace} -> {same: [bool]}: which lie there exactly so already.

    Raises `Refused`: exists, not_a_file, unreadable.
    """
    may_replace = bool(body.get("replace"))
    return {"same": [_is_same(wanted, may_replace) for wanted in _files(body)]}, b""


def put(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{files, replace}, payload: their contents one after the other -> {}. Folders above them are made.

    All are in place, and on the disk, when it answers. Raises `Refused`: transfer_failed where a content is not what
    was announced (none of them is written then), exists, unwritable (those before it may be in place).
    """
    files, may_replace = _files(body), bool(body.get("replace"))
    contents = _contents(files, payload)
    parts: Dict[str, str] = {}
    at = ""
    try:
        for wanted, content in zip(files, contents):
            at = wanted.path
            os.makedirs(os.path.dirname(at), exist_ok=True)
            parts[at] = part_of(at, wanted.sha256)
            _write(parts[at], content, wanted.mode)
        for at in list(parts):
            _sync(parts[at])
        for at in list(parts):
            _place(parts[at], at, may_replace)
            del parts[at]
        for at in _folders(files):
            _sync(at)
    except FileExistsError as error:
        raise Refused("exists", "%s is there already" % at, {"path": at}) from error
    except OSError as error:
        raise refusal(at, error, "unwritable") from error
    finally:
        for part in parts.values():
            _remove(part)
    return {}, b""


def _files(body: Dict[str, Any]) -> List[_Wanted]:
    rows = body.get("files")
    if not isinstance(rows, list) or len(rows) > FILES_MOST:
        raise Refused("invalid_request", "files: at most %d are expected" % FILES_MOST, {"field": "files"})
    found = []
    for row in rows:
        if not isinstance(row, list) or len(row) != 4:
            raise Refused("invalid_request", "files: [path, bytes, sha256, mode] is expected", {"field": "files"})
        told = dict(zip(("path", "bytes", "sha256", "mode"), row))
        size, mode = bodies.number(told, "bytes", 0, BYTES_MOST), bodies.number(told, "mode", 0o644, 0o777)
        found.append(_Wanted(path_of(told), size, bodies.text(told, "sha256"), mode))
    return found


def _contents(files: List[_Wanted], payload: bytes) -> List[bytes]:
    found, at = [], 0
    for wanted in files:
        content = payload[at : at + wanted.size]
        at += wanted.size
        if len(content) != wanted.size or hashlib.sha256(content).hexdigest() != wanted.sha256:
            message = "what arrived for %s is not what was sent" % wanted.path
            raise Refused("transfer_failed", message, {"path": wanted.path})
        found.append(content)
    return found


def _is_same(wanted: _Wanted, may_replace: bool) -> bool:
    path = wanted.path
    try:
        state = lstat(path)
        if state is None:
            return False
        if not stat.S_ISREG(state.st_mode):
            raise Refused("not_a_file", "%s is there and is no regular file" % path, {"path": path})
        if state.st_size == wanted.size and hashed(path)[0] == wanted.sha256:
            return True
    except NotADirectoryError as error:
        raise Refused("not_a_file", "%s lies below something that is no folder" % path, {"path": path}) from error
    except OSError as error:
        raise refusal(path, error, "unreadable") from error
    if not may_replace:
        raise Refused("exists", "%s is there already and differs" % path, {"path": path})
    return False


def _write(part: str, content: bytes, mode: int) -> None:
    """Put `content` into the part, and let the disk begin with it."""
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(content)
        while len(view):
            view = view[os.write(handle, view) :]
        os.fchmod(handle, mode)
        _begin_writing(handle)
    finally:
        os.close(handle)


def _begin_writing(handle: int) -> None:
    # Imported here: few connections send files.
    import ctypes

    begin = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if begin is not None:
        begin(handle, ctypes.c_int64(0), ctypes.c_int64(0), BEGIN_WRITING)


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _place(part: str, path: str, may_replace: bool) -> None:
    if may_replace:
        os.replace(part, path)
    else:
        # Also when somebody was faster: a link never replaces.
        os.link(part, path)
        os.unlink(part)


def _folders(files: List[_Wanted]) -> List[str]:
    """The folders in which a name is new."""
    found: Set[str] = {os.path.dirname(wanted.path) for wanted in files}
    return sorted(found)


def _remove(part: str) -> None:
    try:
        os.unlink(part)
    except OSError:
        # It was never made, or its folder is gone: nothing of ours is left there then.
        return
