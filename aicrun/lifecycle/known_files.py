"""The hashes of a source's files that have not changed since they were read, so that a second plan reads only the rest.

A file is known by size, both times and inode. One that was written shortly before it was read is not remembered, for
another write within one tick of the clock could leave all of these alone. It is a cache: gone, everything is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time

# The coarsest times of a file system that people work on.
SETTLED_NS = 2_000_000_000
_SCHEMA = 1

_Look = list[int]


class KnownFiles:
    """What is known of the files of `root`, kept below the folder `cache`; without one nothing is."""

    def __init__(self, cache: str, root: str) -> None:
        name = hashlib.sha256(os.fsencode(os.path.abspath(root))).hexdigest()[:32]
        self._path = os.path.join(cache, "sources", f"{name}.json") if cache else ""
        self._began_ns = time.time_ns()
        self._before = self._read(root)
        self._now: dict[str, tuple[_Look, str]] = {}
        self._root = root
        self._learned = False

    def hash_of(self, path: str, state: os.stat_result) -> str:
        """The SHA-256 of a file that looks as it did, else empty."""
        look, content = self._before.get(path, ([], ""))
        if not content or look != _look(state):
            return ""
        self._now[path] = (look, content)
        return content

    def learn(self, path: str, state: os.stat_result, content: str) -> None:
        """`path`, which looked like `state` before it was read, has the hash `content`."""
        if max(state.st_mtime_ns, state.st_ctime_ns) < self._began_ns - SETTLED_NS:
            self._now[path] = (_look(state), content)
            self._learned = True

    def keep(self) -> None:
        """Write down what is known now, whole or not at all; a folder that cannot be written is no fault."""
        if not self._path or (not self._learned and len(self._now) == len(self._before)):
            return
        text = json.dumps({"schema": _SCHEMA, "root": self._root, "files": self._now})
        temporary = f"{self._path}.{os.getpid()}"
        with contextlib.suppress(OSError, UnicodeEncodeError):
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as stream:
                stream.write(text)
            os.replace(temporary, self._path)

    def _read(self, root: str) -> dict[str, tuple[_Look, str]]:
        if not self._path:
            return {}
        try:
            with open(self._path, encoding="utf-8") as stream:
                kept = json.load(stream)
            if kept["schema"] != _SCHEMA or kept["root"] != root:
                return {}
            return {path: (look, str(content)) for path, (look, content) in kept["files"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}


def _look(state: os.stat_result) -> _Look:
    return [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]
