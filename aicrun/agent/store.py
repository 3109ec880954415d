"""The content-addressed store: what clients push before a start. Safe to lose, since a client can push it again.

Nothing in it is trusted by name: contents are hashed when they come in, and again when `tree.py` lays them out. It
must not know jobs.
"""

import itertools
import json
import os
from typing import AbstractSet, Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from aicrun.agent import bodies
from aicrun.agent.free_room import MIB, short
from aicrun.agent.home import Home
from aicrun.agent.refused import Refused
from aicrun.wire.hashes import sha256, tree_hash
from aicrun.wire.patterns import pattern

HASH = pattern(r"[0-9a-f]{64}\Z")
KINDS = ("f", "x", "l")
# What is left for the records of runs, so that each can be started, stopped and told.
LEAST_LEFT_BYTES = MIB
# No two contents that arrive share a name while they do, whichever process brings them.
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_OWN, _NUMBERS = os.urandom(8).hex(), itertools.count()


class Entry(NamedTuple):
    """One line of a tree's manifest: `kind` is `f`, `x` (executable) or `l`; `content` a hash, or a link's target."""

    path: str
    kind: str
    content: str
    size: int


def manifest_path(home: Home, tree: str) -> str:
    """Where the manifest of `tree` lies, or would lie."""
    return os.path.join(home.store(), "trees", tree + ".json")


def missing(home: Home, body: Dict[str, Any], payload: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Call `store_missing`: which of `hashes` are not here; a `payload` is the manifest of `tree` and is kept.

    With a manifest its own contents are looked for too. Without one, `known` tells whether that of `tree` is here, and
    then it is as if it had been sent: a client whose tree has not changed need not send it.

    Raises `Refused` (disk_full) before anything is sent that would fill the disk.
    """
    tree, hashes = body.get("tree", ""), body.get("hashes", [])
    if not isinstance(hashes, list) or not all(isinstance(item, str) and HASH.match(item) for item in hashes):
        raise Refused("invalid_request", "hashes is a list of SHA-256 hashes", {})
    if payload:
        entries: Optional[List[Entry]] = parse_manifest(payload)
        if not isinstance(tree, str) or _hash(entries or []) != tree:
            raise Refused("invalid_request", "the manifest does not have the hash of its tree", {"tree": str(tree)})
        _place(manifest_path(home, tree), payload)
    else:
        entries = manifest(home, tree) if isinstance(tree, str) and tree else None
    wanted = list(dict.fromkeys(hashes))
    if entries is not None:
        _touched(manifest_path(home, tree))
        wanted = list(dict.fromkeys(wanted + [entry.content for entry in entries if entry.kind != "l"]))
    objects = home.objects()
    lacking = [content for content in wanted if not _touched("%s/%s/%s" % (objects, content[:2], content))]
    _check_room(home, entries or (), frozenset(lacking))
    answer: Dict[str, Any] = {"missing": lacking}
    return answer if payload or not tree else dict(answer, known=entries is not None), b""


def listing(home: Home, body: Dict[str, Any], payload: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Call `store_tree`: {tree} -> {known} and its manifest, where that is still here and has its hash."""
    del payload
    tree = bodies.text(body, "tree")
    if manifest(home, tree) is None:
        return {"known": False}, b""
    try:
        with open(manifest_path(home, tree), "rb") as stream:
            return {"known": True}, stream.read()
    except OSError:
        # The sweep was quicker.
        return {"known": False}, b""


def _check_room(home: Home, entries: Iterable[Entry], lacking: AbstractSet[str]) -> None:
    """What is sent of a tree must leave room for the records of runs; what lies here of it from before is there."""
    sizes = {entry.content: entry.size for entry in entries if entry.kind != "l" and entry.content in lacking}
    size = sum(sizes.values()) - sum(_part_bytes(home.object_path(content)) for content in sizes)
    lacks = short(home.jobs_root, size + LEAST_LEFT_BYTES, len(sizes)) if sizes else ""
    if lacks:
        told = "%s on the disk of %s, for %d files that would be sent" % (lacks, home.store(), len(sizes))
        raise Refused("disk_full", told, {"path": home.store()})


def _part_bytes(place: str) -> int:
    folder, content = os.path.split(place)
    try:
        return os.stat(os.path.join(folder, ".part-" + content)).st_size
    except OSError:
        return 0


def put(home: Home, body: Dict[str, Any], payload: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Call `store_put`: keep `payload` under `hash`, or its pieces of `sizes` bytes each under `hashes`.

    Refused at the first piece that does not have its SHA-256; those before it are kept.
    """
    if "hashes" not in body:
        _keep(home.objects(), body.get("hash"), payload)
        return {}, b""
    hashes, sizes = body.get("hashes"), body.get("sizes")
    if not isinstance(hashes, list) or not isinstance(sizes, list) or len(hashes) != len(sizes):
        raise Refused("invalid_request", "hashes and sizes are lists of one length", {})
    if not all(isinstance(size, int) and size >= 0 for size in sizes) or sum(sizes) != len(payload):
        raise Refused("invalid_request", "the sizes are not those of the bytes that came", {})
    view, at, objects = memoryview(payload), 0, home.objects()
    for content, size in zip(hashes, sizes):
        _keep(objects, content, view[at : at + size])
        at += size
    return {}, b""


def _keep(objects: str, content: Any, raw: Any) -> None:
    if not isinstance(content, str) or sha256(raw) != content:
        raise Refused("invalid_request", "the bytes do not have the hash they came under", {"hash": str(content)})
    _place("%s/%s/%s" % (objects, content[:2], content), raw)


def put_part(home: Home, body: Dict[str, Any], payload: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Call `store_part`: one content in pieces, {hash, bytes} -> {offset}: how much of it lies here already.

    {hash, bytes, offset} with a payload puts the next piece; the last one is answered once the whole has its hash, and
    else is `transfer_failed`: what had come is removed then, so that it can be sent from its beginning.
    """
    content, size = bodies.text(body, "hash"), bodies.number(body, "bytes", 0, 1 << 62)
    if not HASH.match(content):
        raise Refused("invalid_request", "hash is a SHA-256 hash", {"hash": content})
    # Imported here: sources are mostly small files.
    from aicrun.agent import store_parts

    place = home.object_path(content)
    if "offset" not in body:
        if _touched(place):
            return {"offset": size}, b""
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        return {"offset": store_parts.begin(place, size)}, b""
    store_parts.add(place, bodies.number(body, "offset", 0, 1 << 62), payload, size)
    return {}, b""


def complete(home: Home, tree: str) -> Tuple[str, ...]:
    """The hashes that are missing for laying out `tree`, sorted; (`tree`,) when its manifest itself is missing."""
    entries = manifest(home, tree)
    return (tree,) if entries is None else lacking(home, entries)


def lacking(home: Home, entries: List[Entry]) -> Tuple[str, ...]:
    """The contents of `entries` that are not here, sorted; those that are stay safe from the sweep."""
    objects = home.objects()
    wanted = {entry.content for entry in entries if entry.kind != "l"}
    return tuple(sorted(one for one in wanted if not _touched("%s/%s/%s" % (objects, one[:2], one))))


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


def _place(path: str, raw: Any) -> None:
    # Without fsync: a loss of power may leave a wrong content, which laying out detects by its hash.
    folder = path.rpartition("/")[0]
    temporary = "%s/.put-%s-%d" % (folder, _OWN, next(_NUMBERS))
    try:
        handle = os.open(temporary, _NEW, 0o600)
    except FileNotFoundError:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        handle = os.open(temporary, _NEW, 0o600)
    try:
        try:
            written = os.write(handle, raw)
            while written < len(raw):
                written += os.write(handle, raw[written:])
        finally:
            os.close(handle)
        os.rename(temporary, path)
    except BaseException as error:
        os.unlink(temporary)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, path) from error
        raise
