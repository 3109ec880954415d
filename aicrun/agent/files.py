"""A person's files between this machine and another: listed, read in pieces, and put in place whole or not at all.

What arrives lies beside its place until its SHA-256 is that of the sender, so that a cut transfer goes on where it
stopped. No link is followed, and nothing that is there is replaced unasked.
"""

import errno
import hashlib
import os
import stat
from typing import Any, Dict, List, Tuple

from aicrun.agent import bodies
from aicrun.agent.home import Home
from aicrun.agent.refused import Refused

Answer = Tuple[Dict[str, Any], bytes]

PIECE_MOST_BYTES = 8 * 1024 * 1024
FILES_MOST = 200_000
SKIPPED_MOST = 100
PART = ".aicrun-part"
_CHUNK = 1024 * 1024


def listing(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{path} -> {path, is_folder, files: [[path, bytes, mode]], skipped}: the regular files at `path`, sorted.

    Paths of `files` are relative to it, "" for a file itself. Links and devices are `skipped`, by name. Raises
    `Refused`: not_found, not_a_file, unreadable.
    """
    path = _path(body)
    try:
        state = os.lstat(path)
        if stat.S_ISREG(state.st_mode):
            return {"path": path, "is_folder": False, "files": [_entry("", state)], "skipped": []}, b""
        if not stat.S_ISDIR(state.st_mode):
            raise Refused("not_a_file", "%s is neither a file nor a folder" % path, {"path": path})
        files: List[List[Any]] = []
        skipped: List[str] = []
        _walk(path, "", files, skipped)
    except OSError as error:
        raise _no(path, error, "unreadable") from error
    return {"path": path, "is_folder": True, "files": sorted(files), "skipped": sorted(skipped)[:SKIPPED_MOST]}, b""


def read(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{path, offset, size} -> that many bytes from there on, fewer at the end of the file. Raises `Refused`."""
    path = _path(body)
    offset, size = bodies.number(body, "offset", 0, 1 << 62), bodies.number(body, "size", 0, PIECE_MOST_BYTES)
    try:
        with open(_opened(path), "rb", buffering=0) as stream:
            stream.seek(offset)
            return {}, _exactly(stream, size)
    except OSError as error:
        raise _no(path, error, "unreadable") from error


def digest(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{path} -> {sha256, bytes} of a regular file, read once. Raises `Refused`."""
    path = _path(body)
    try:
        found, size = _hash(path)
    except OSError as error:
        raise _no(path, error, "unreadable") from error
    return {"sha256": found, "bytes": size}, b""


def begin(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{path, bytes, sha256, replace} -> {path, offset, same}: where a file goes, and how much of it lies there already.

    `same`: exactly this file is in place. A `path` that ends with a slash, or is a folder, gets `name` behind it; with
    `make_folders` the folders above it are made. Raises `Refused`: exists, not_found, not_a_file, unwritable.
    """
    path, sha256 = _place(body), bodies.text(body, "sha256")
    size = bodies.number(body, "bytes", 0, 1 << 62)
    try:
        if body.get("make_folders"):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        state = _lstat(path)
        if state is not None:
            if not stat.S_ISREG(state.st_mode):
                raise Refused("not_a_file", "%s is there and is no regular file" % path, {"path": path})
            if state.st_size == size and _hash(path)[0] == sha256:
                return {"path": path, "offset": size, "same": True}, b""
            if not body.get("replace"):
                raise Refused("exists", "%s is there already and differs" % path, {"path": path})
        part = _part(path, sha256)
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        have = os.lstat(part).st_size
    except OSError as error:
        raise _no(path, error, "unwritable") from error
    return {"path": path, "offset": have if have <= size else 0, "same": False}, b""


def write(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{path, sha256, offset}, payload -> {}: put bytes into the part of `path`. Raises `Refused` (unwritable)."""
    path = _path(body)
    offset = bodies.number(body, "offset", 0, 1 << 62)
    try:
        handle = os.open(_part(path, bodies.text(body, "sha256")), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(handle, "r+b", buffering=0) as stream:
            stream.seek(offset)
            view = memoryview(payload)
            while len(view):
                view = view[stream.write(view) :]
            stream.truncate()
    except OSError as error:
        raise _no(path, error, "unwritable") from error
    return {}, b""


def finish(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{path, bytes, sha256, mode, replace} -> {path}: give the part its place once it is what was sent.

    Raises `Refused`: transfer_failed when it is not (the part is removed then), exists, unwritable.
    """
    path, sha256 = _path(body), bodies.text(body, "sha256")
    part = _part(path, sha256)
    try:
        found, size = _hash(part)
        if found != sha256 or size != bodies.number(body, "bytes", 0, 1 << 62):
            os.unlink(part)
            raise Refused("transfer_failed", "what arrived for %s is not what was sent" % path, {"path": path})
        os.chmod(part, bodies.number(body, "mode", 0o644, 0o777))
        with open(_opened(part), "rb") as stream:
            os.fsync(stream.fileno())
        if body.get("replace"):
            os.replace(part, path)
        else:
            # Also when somebody was faster: a link never replaces.
            os.link(part, path)
            os.unlink(part)
    except FileExistsError as error:
        raise Refused("exists", "%s is there already" % path, {"path": path}) from error
    except OSError as error:
        raise _no(path, error, "unwritable") from error
    return {"path": path}, b""


def _path(body: Dict[str, Any]) -> str:
    given = bodies.text(body, "path")
    path = os.path.expanduser(given) if given == "~" or given.startswith("~/") else given
    if not os.path.isabs(path) or "\0" in path:
        raise Refused("invalid_request", "path: %s starts neither with / nor with ~/" % given[:200], {"field": "path"})
    return os.path.normpath(path) + ("/" if path.endswith("/") and path.strip("/") else "")


def _place(body: Dict[str, Any]) -> str:
    path, name = _path(body), bodies.text(body, "name", "")
    if name and (path.endswith("/") or os.path.isdir(path)):
        return os.path.join(path, os.path.basename(name))
    return path


def _part(path: str, sha256: str) -> str:
    folder, name = os.path.split(path)
    mark = hashlib.sha256(("%s %s" % (name, sha256)).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    # Short enough for any name: the part must not fail where the file would fit.
    return os.path.join(folder, "." + mark + PART)


def _walk(top: str, below: str, files: List[List[Any]], skipped: List[str]) -> None:
    with os.scandir(os.path.join(top, below)) as entries:
        for entry in entries:
            path = os.path.join(below, entry.name)
            if entry.name.endswith(PART):
                continue
            if entry.is_dir(follow_symlinks=False):
                _walk(top, path, files, skipped)
            elif entry.is_file(follow_symlinks=False):
                files.append(_entry(path, entry.stat(follow_symlinks=False)))
            else:
                skipped.append(path)
            if len(files) > FILES_MOST:
                raise Refused("too_large", "%s holds more than %d files" % (top, FILES_MOST), {"path": top})


def _entry(path: str, state: os.stat_result) -> List[Any]:
    return [path, state.st_size, stat.S_IMODE(state.st_mode) & 0o777]


def _lstat(path: str) -> Any:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def _opened(path: str) -> int:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no regular file")
    return handle


def _hash(path: str) -> Tuple[str, int]:
    seen, size = hashlib.sha256(), 0
    with open(_opened(path), "rb", buffering=0) as stream:
        for chunk in iter(lambda: stream.read(_CHUNK), b""):
            seen.update(chunk)
            size += len(chunk)
    return seen.hexdigest(), size


def _exactly(stream: Any, size: int) -> bytes:
    parts, left = [], size
    while left:
        part = stream.read(left)
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _no(path: str, error: OSError, token: str) -> Refused:
    if isinstance(error, FileNotFoundError):
        return Refused("not_found", "%s is not there" % (error.filename or path), {"path": path})
    return Refused(token, "%s: %s" % (error.filename or path, error.strerror), {"path": path})
