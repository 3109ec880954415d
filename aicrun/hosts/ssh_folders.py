"""The private folder of one OpenSSH carrier in /tmp: made, removed with its user, and taken away when that was killed.

A folder is in use while its user holds a shared lock on the `config` in it, which ends with the process however that
ends. It must not touch what is not provably a folder of this account that nobody uses any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import IO

# Short, whatever TMPDIR says: a socket's path may have about a hundred characters.
PLACE = "/tmp"  # noqa: S108
PREFIX = "aicrun-ssh-"
CONFIG = "config"
# How long one without a word in it is left alone: whoever made it may be about to write.
BARE_AGE_S = 24 * 3600.0

_LOOK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_MARK = "# aicrun: the folder is removed with the command that made it\n"
# Sockets that OpenSSH makes for `%C`, the second form before it has its name.
_OURS = re.compile(rf"{CONFIG}|[0-9a-f]{{40}}(\.[0-9A-Za-z]{{16}})?")


@dataclass(frozen=True, slots=True)
class Folder:
    """One that is in use by this process as long as `lock`, its `config`, is open."""

    path: str
    lock: IO[bytes]
    maker: int

    def rewrite(self, configuration: str) -> None:
        """Put another text into `config`; raises `OSError`."""
        raw = (_MARK + configuration).encode()
        self.lock.seek(0)
        self.lock.truncate()
        while raw:
            raw = raw[self.lock.write(raw) :]

    def remove(self) -> None:
        """Take it away with all that is in it; nothing in a child of the process that made it."""
        if os.getpid() != self.maker:
            return
        # Under another name first: an ssh that is still connecting finds no place for a socket any more.
        gone = f"{self.path}-gone"
        with contextlib.suppress(OSError):
            os.rename(self.path, gone)
            folder = os.open(gone, _LOOK)
            try:
                _emptied(folder)
            finally:
                os.close(folder)
            os.rmdir(gone)
        self.lock.close()


def made(configuration: Callable[[str], str]) -> Folder:
    """A new folder, 0700, whose `config` is what `configuration` gives for its path; raises `OSError`."""
    _swept()
    path = tempfile.mkdtemp(prefix=PREFIX, dir=PLACE)
    config = os.open(os.path.join(path, CONFIG), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    folder = Folder(path, os.fdopen(config, "wb", buffering=0), os.getpid())
    # Before a word is in it: a `config` with words and without a lock is a dead one's.
    with contextlib.suppress(OSError):
        fcntl.flock(config, fcntl.LOCK_SH)
    try:
        folder.rewrite(configuration(path))
    except OSError:
        folder.remove()
        raise
    return folder


@cache
def _swept() -> None:
    sweep(PLACE)


def sweep(place: str) -> None:
    """Remove the folders of killed processes of this account in `place`; one that cannot be judged stays."""
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with contextlib.suppress(OSError):
                    _judged(entry.path)


def _judged(path: str) -> None:
    folder = os.open(path, _LOOK)
    try:
        about = os.fstat(folder)
        if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) != 0o700:
            return
        if not all(_OURS.fullmatch(name) for name in os.listdir(folder)):
            return
        is_old = time.time() - about.st_mtime > BARE_AGE_S
        if _is_dead(folder) if _has_words(folder) else is_old:
            _emptied(folder)
            os.rmdir(path)
    finally:
        os.close(folder)


def _has_words(folder: int) -> bool:
    try:
        return os.stat(CONFIG, dir_fd=folder, follow_symlinks=False).st_size > 0
    except FileNotFoundError:
        return False


def _is_dead(folder: int) -> bool:
    """True when the `config` in it was written by this program and no process holds it."""
    config = os.open(CONFIG, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(config).st_mode):
            return False
        fcntl.flock(config, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.read(config, len(_MARK)) == _MARK.encode()
    finally:
        os.close(config)


def _emptied(folder: int) -> None:
    # The `config` last: with it gone and a socket left, nobody could tell any more whose it was.
    for name in sorted(os.listdir(folder), key=lambda name: name == CONFIG):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
