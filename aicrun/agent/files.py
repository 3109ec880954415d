"""A person's files on this machine: named, listed, opened and hashed. No link is followed; nothing is changed here."""

import errno
import hashlib
import os
import stat
from typing import Any, Dict, List, Tuple

from aicrun.agent import bodies
from aicrun.agent.home import Home
from aicrun.agent.refused import Refused

Answer = Tuple[Dict[str, Any], bytes]

FILES_MOST = 200_000
SKIPPED_MOST = 100
PART = ".aicrun-part"
CHUNK = 1024 * 1024


def listing(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{path} -> {path, is_folder, files: [[path, bytes, mode]], skipped}: the regular files at `path`, sorted.

    Paths of `files` are relative to it, "" for a file itself. Links and devices are `skipped`, by name. Raises
    `Refused`: not_found, not_a_file, unreadable.
    """
    path = path_of(body)
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
        raise refusal(path, error, "unreadable") from error
    return {"path": path, "is_folder": True, "files": sorted(files), "skipped": sorted(skipped)[:SKIPPED_MOST]}, b""


def path_of(body: Dict[str, Any]) -> str:
    """The absolute path of a request, `~/` expanded, a last slash kept; raises `Refused` (invalid_request)."""
    given = bodies.text(body, "path")
    path = os.path.expanduser(given) if given == "~" or given.startswith("~/") else given
    if not os.path.isabs(path) or "\0" in path:
        raise Refused("invalid_request", "path: %s starts neither with / nor with ~/" % given[:200], {"field": "path"})
    return os.path.normpath(path) + ("/" if path.endswith("/") and path.strip("/") else "")


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


def lstat(path: str) -> Any:
    """The state of what is at `path` itself, None when nothing is; raises `OSError`."""
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def opened(path: str) -> int:
    """A descriptor of a regular file, never of a link; raises `OSError`, also for what is no regular file."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no regular file")
    return handle


def hashed(path: str) -> Tuple[str, int]:
    """(SHA-256, bytes) of a regular file, read now; raises `OSError`."""
    seen, size = hashlib.sha256(), 0
    with open(opened(path), "rb", buffering=0) as stream:
        for chunk in iter(lambda: stream.read(CHUNK), b""):
            seen.update(chunk)
            size += len(chunk)
    return seen.hexdigest(), size


def refusal(path: str, error: OSError, token: str) -> Refused:
    """The refusal of a fault at `path`: not_found where something is missing, else `token`."""
    if isinstance(error, FileNotFoundError):
        return Refused("not_found", "%s is not there" % (error.filename or path), {"path": path})
    return Refused(token, "%s: %s" % (error.filename or path, error.strerror), {"path": path})
