"""The content-addressed store: what clients push before a start. Safe to lose, since a client can push it again.

Nothing in it is trusted by name: contents are hashed when they come in, and again when `tree.py` lays them out. It
must not know jobs.
"""

import json
import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from aicrun.agent.home import Home
from aicrun.agent.refused import Refused
from aicrun.wire.hashes import sha256, tree_hash

HASH = re.compile(r"[0-9a-f]{64}\Z")
KINDS = ("f", "x", "l")


class Entry(NamedTuple):
    """One line of a tree's manifest: `kind` is `f`, `x` (executable) or `l`; `content` a hash, or a link's target."""

    path: str
    kind: str
    content: str
    size: int


def object_path(home: Home, content: str) -> str:
    """Where the bytes with SHA-256 `content` lie, or would lie."""
    return os.path.join(home.store(), "objects", content[:2], content)


def manifest_path(home: Home, tree: str) -> str:
    """Where the manifest of `tree` lies, or would lie."""
    return os.path.join(home.store(), "trees", tree + ".json")


def missing(home: Home, body: Dict[str, Any], payload: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Call `store_missing`: which of `hashes` are not here; a `payload` is the manifest of `tree` and is kept."""
    tree, hashes = body.get("tree", ""), body.get("hashes", [])
    if not isinstance(hashes, list) or not all(isinstance(item, str) and HASH.match(item) for item in hashes):
        raise Refused("invalid_request", "hashes is a list of SHA-256 hashes", {})
    if payload:
        entries = parse_manifest(payload)
        if not isinstance(tree, str) or _hash(entries) != tree:
            raise Refused("invalid_request", "the manifest does not have the hash of its tree", {"tree": str(tree)})
        _place(manifest_path(home, tree), payload)
    lacking = [content for content in dict.fromkeys(hashes) if not _touched(object_path(home, content))]
    return {"missing": lacking}, b""


def put(home: Home, body: Dict[str, Any], payload: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Call `store_put`: keep `payload` under `hash`; refused when it does not have that SHA-256."""
    content = body.get("hash")
    if not isinstance(content, str) or not HASH.match(content) or sha256(payload) != content:
        raise Refused("invalid_request", "the bytes do not have the hash they came under", {"hash": str(content)})
    _place(object_path(home, content), payload)
    return {}, b""


def complete(home: Home, tree: str) -> Tuple[str, ...]:
    """The hashes that are missing for laying out `tree`, sorted; (`tree`,) when its manifest itself is missing."""
    entries = manifest(home, tree)
    if entries is None:
        return (tree,)
    wanted = {entry.content for entry in entries if entry.kind != "l"}
    return tuple(sorted(content for content in wanted if not _touched(object_path(home, content))))


def manifest(home: Home, tree: str) -> Optional[List[Entry]]:
    """The entries of `tree`, sorted by path; None when it is not here or does not have its hash any more."""
    if not HASH.match(tree):
        return None
    try:
        with open(manifest_path(home, tree), "rb") as stream:
            entries = parse_manifest(stream.read())
    except (OSError, Refused):
        return None
    return entries if _hash(entries) == tree else None


def parse_manifest(raw: bytes) -> List[Entry]:
    """The entries in `raw`, sorted by path; raises `Refused` when it is no manifest."""
    try:
        rows = json.loads(raw.decode("utf-8"))
        entries = [Entry(str(path), str(kind), str(content), int(size)) for path, kind, content, size in rows]
    except (ValueError, TypeError, RecursionError) as error:
        raise Refused("invalid_request", "not a tree manifest: %s" % error, {}) from error
    for entry in entries:
        if entry.kind not in KINDS or (entry.kind != "l" and not HASH.match(entry.content)):
            raise Refused("invalid_request", "not a tree manifest: odd entry %r" % (entry.path,), {})
    return sorted(entries)


def _hash(entries: List[Entry]) -> str:
    return tree_hash((entry.path, entry.kind, entry.content) for entry in entries)


def _touched(path: str) -> bool:
    # A fresh time keeps the sweep away between a push and the start that needs it.
    try:
        os.utime(path)
    except OSError:
        return False
    return True


def _place(path: str, raw: bytes) -> None:
    # Without fsync: a loss of power may leave a wrong content, which laying out detects by its hash.
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    temporary = os.path.join(folder, ".put-" + os.urandom(8).hex())
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(raw)
        os.rename(temporary, path)
    except BaseException as error:
        os.unlink(temporary)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, path) from error
        raise
