"""The digest of the agent that runs: over its own sources, as the client computed it when it sent them.

What was hashed once is not hashed again while no file of it has changed, by size, times and inode: the kernel sets the
time of a change, and nobody else can. It must not import what hashes before it has to: every command waits for it.
"""

import os
import time
from typing import Dict, Iterator, Tuple

_KNOWN: Dict[str, str] = {}
_DERIVED = "__pycache__"
_REMEMBERED = "digest.txt"
# A change within one tick of the clock that stamps files could go unseen; what is older than this cannot.
SETTLED_S = 2.0


def bundle_root() -> str:
    """The folder this agent was unpacked into: it holds `boot.py` and the package."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def agent_digest(root: str) -> str:
    """The digest of the agent unpacked at `root`: all its files but what Python compiled; looked at once a process."""
    if root not in _KNOWN:
        files = tuple(_files(root))
        looks = "".join("%s %d %d %d %d\n" % (path, *look) for path, look in sorted(files))
        digest = _remembered(root, looks)
        if not digest:
            digest = _hashed(root, files)
            if max(look[2] for _, look in files) < (time.time() - SETTLED_S) * 1e9:
                _remember(root, digest, looks)
        _KNOWN[root] = digest
    return _KNOWN[root]


def _files(root: str, below: str = "") -> Iterator[Tuple[str, Tuple[int, int, int, int]]]:
    """Each file: its path below `root`; its size, times of writing and of change, and inode."""
    for entry in os.scandir(os.path.join(root, below)):
        path = below + entry.name
        if entry.name == _DERIVED:
            continue
        if entry.is_dir():
            yield from _files(root, path + "/")
        else:
            state = entry.stat()
            yield path, (state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino)


def _hashed(root: str, files: Tuple[Tuple[str, object], ...]) -> str:
    import hashlib

    from aicrun.wire.hashes import tree_hash

    rows = []
    for path, _ in files:
        with open(os.path.join(root, path), "rb") as stream:
            rows.append((path, "f", hashlib.sha256(stream.read()).hexdigest()))
    return tree_hash(rows)


def _remembered(root: str, looks: str) -> str:
    try:
        with open(os.path.join(root, _DERIVED, _REMEMBERED), encoding="utf-8", errors="replace") as stream:
            digest, _, then = stream.read().partition("\n")
    except OSError:
        return ""
    return digest if then == looks else ""


def _remember(root: str, digest: str, looks: str) -> None:
    path = os.path.join(root, _DERIVED, _REMEMBERED)
    fresh = "%s.%s" % (path, os.urandom(6).hex())
    try:
        with open(fresh, "w", encoding="utf-8", errors="replace") as stream:
            stream.write("%s\n%s" % (digest, looks))
        os.replace(fresh, path)
    except OSError:
        # A folder that cannot be written to, or that Python compiled nothing into: the next one hashes again.
        return
