"""Root in somebody's folder: whose home the run has, and to whom belongs what we make there.

Nobody but root can act for another account, and only for the owner of the workspace. It must not change the owner of
anything that was there before.
"""

import os
import pwd
from typing import Optional

from aicrun.wire import lean
from aicrun.wire.jobs import JobRequest


@lean.dataclass(frozen=True)
class Owner:
    """An account that is not ours; its `home` is a folder that is there."""

    uid: int
    gid: int
    home: str


def owner(request: JobRequest) -> Optional[Owner]:
    """Who owns the workspace, where we are root and it is somebody else's; None in every other case."""
    if os.geteuid() != 0:
        return None
    return _owner_of(_nearest(request.workspace))


class Making:
    """What is missing now below the folders of a job; `give` hands over what has been made of it since."""

    def __init__(self, request: JobRequest, tree: str) -> None:
        self._owner = owner(request)
        paths = (request.workspace, request.checkpoints, tree) if self._owner else ()
        self._made = [made for made in map(_missing, paths) if made and self._is_theirs(os.path.dirname(made))]
        self._link = os.path.join(tree, request.checkpoint_link) if request.checkpoint_link else ""

    def give(self) -> None:
        """Everything that was missing and is there belongs to the owner now; raises `OSError`."""
        if self._owner is None:
            return
        for top in dict.fromkeys(self._made):
            if os.path.isdir(top) and not os.path.islink(top):
                _give(top, self._owner)
        # In a workspace that was there, the link alone is ours.
        if os.path.islink(self._link) and os.lstat(self._link).st_uid == 0:
            os.chown(self._link, self._owner.uid, self._owner.gid, follow_symlinks=False)

    def _is_theirs(self, folder: str) -> bool:
        return self._owner is not None and os.stat(folder).st_uid == self._owner.uid


def _owner_of(folder: str) -> Optional[Owner]:
    try:
        uid = os.stat(folder).st_uid
        entry = pwd.getpwuid(uid) if uid else None
    except (OSError, KeyError):
        return None
    return Owner(uid, entry.pw_gid, entry.pw_dir) if entry is not None and os.path.isdir(entry.pw_dir) else None


def _give(top: str, to: Owner) -> None:
    """By descriptors and from below: as long as a folder is root's, its owner-to-be can put nothing else into it."""
    handle = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(handle).st_uid != 0:
            return
        for _, folders, files, at in os.fwalk(".", topdown=False, follow_symlinks=False, dir_fd=handle):
            for name in folders + files:
                os.chown(name, to.uid, to.gid, dir_fd=at, follow_symlinks=False)
        os.fchown(handle, to.uid, to.gid)
    finally:
        os.close(handle)


def _missing(path: str) -> str:
    """The topmost folder on the way to `path` that is not there; "" when all are."""
    missing = ""
    while path not in ("", "/") and not os.path.lexists(path):
        missing, path = path, os.path.dirname(path.rstrip("/"))
    return missing


def _nearest(path: str) -> str:
    while not os.path.isdir(path) and path not in ("", "/"):
        path = os.path.dirname(path.rstrip("/"))
    return path or "/"
