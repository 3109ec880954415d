"""Whether what a tool fetched is what was listed: every size, and every hash that is known of it.

What lies there beside it, half a file of a fetch that was killed, is removed. It must not fetch anything.
"""

import math
import os
import re
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple

from aicrun.agent import later
from aicrun.agent.build import Workshop
from aicrun.agent.fetch_run import ToolFailed
from aicrun.agent.fetch_tools import Hf, Listing, Tool, at
from aicrun.agent.transfer_tools import Remote
from aicrun.wire import lean
from aicrun.wire.hashes import sha256

if TYPE_CHECKING:
    import hashlib
    import shutil
else:
    hashlib, shutil = later.module("hashlib"), later.module("shutil")

_CHUNK = 1 << 20
# The sizes of parts that tools send large objects in, the most usual first.
_PARTS = tuple(size << 20 for size in (8, 16, 5, 10, 32, 50, 64, 100, 128, 256, 512))
# What the hub's tool leaves beside the files: their hashes and the commit, in a folder of its own.
_OWN = ".cache"
_SHA256, _SHA1 = re.compile(r"[0-9a-f]{64}\Z"), re.compile(r"[0-9a-f]{40}\Z")


@lean.dataclass(frozen=True)
class Looked:
    """What was found: names of files that are `faults`, and what is remembered (files, hashed, listing, revision)."""

    faults: Tuple[str, ...]
    record: Dict[str, Any]

    def words(self, name: str) -> Tuple[str, int, str]:
        """For the log: the input's name, how many were hashed, of how many."""
        total = self.record.get("listed", 0)
        return name, self.record.get("hashed", 0), "%d file%s" % (total, "" if total == 1 else "s")


def without_leftovers(tool: Tool, place: str) -> None:
    """Remove what a fetch that was killed at its very end left at `place`: nothing tells what of it belongs there."""
    if not isinstance(tool, Hf):
        return
    if tool.below and os.path.lexists(place):
        shutil.rmtree(place) if os.path.isdir(place) and not os.path.islink(place) else os.unlink(place)
    scratch = tool.scratch(place)
    if os.path.isdir(scratch) and not os.path.isdir(os.path.join(scratch, _OWN)):
        shutil.rmtree(scratch)


def settled(tool: Tool, place: str, listing: Optional[Listing], shop: Workshop) -> Looked:
    """Compare what lies at `place` with `listing`, or with what the tool itself left there. Raises `ToolFailed`."""
    if isinstance(tool, Hf):
        return _hub(tool, place, shop)
    if listing is None:
        raise ToolFailed("it is not known what should be there")
    _without_others(place, listing)
    faults: List[str] = []
    hashed = 0
    for one in listing.files:
        shop.left_s("checking what was fetched")
        path = at(place, one)
        if not os.path.isfile(path) or os.stat(path).st_size != one.size:
            faults.append(one.path or os.path.basename(place))
            continue
        same = has_md5(path, one) if one.md5 else None
        # Each is asked about by itself: one that is encrypted says nothing of the next.
        if same is False and not tool.is_opaque(one, shop):
            # It would not be fetched again as long as its size is right.
            os.unlink(path)
            faults.append(one.path or os.path.basename(place))
        hashed += same is True
    listed = "".join("%s\t%d\t%s\n" % one[:3] for one in listing.files)
    digest = sha256(listed.encode("utf-8", "surrogateescape"))
    return Looked(tuple(faults), {"listed": len(listing.files), "hashed": hashed, "listing": digest})


def counted_below(folder: str) -> int:
    """How many files lie below the folder."""
    return sum(len(names) for _, _, names in os.walk(folder))


def _without_others(place: str, listing: Listing) -> None:
    wanted = {at(place, one) for one in listing.files}
    top = os.path.dirname(place) if listing.is_file else place
    for above, _, names in os.walk(top, topdown=False):
        for name in names:
            if os.path.join(above, name) not in wanted:
                os.unlink(os.path.join(above, name))
        if above != top and not os.listdir(above):
            os.rmdir(above)


def has_md5(path: str, one: Remote) -> Optional[bool]:
    """Whether the file has the MD5; None where that cannot be told."""
    try:
        hashlib.md5()
    except ValueError:
        return None
    md5, _, parts = one.md5.partition("-")
    if not parts:
        return _md5_of(path, 0) == md5
    # Sent in parts of a size that nobody tells: one that agrees proves it, none that does proves nothing.
    sizes = [size for size in _PARTS if math.ceil(one.size / size) == int(parts)]
    return True if any(_md5_of(path, size) == one.md5 for size in sizes) else None


def _md5_of(path: str, part: int) -> str:
    """The MD5 of a file, or of those of its parts with their number, as S3 says it."""
    whole, sums, count = hashlib.md5(), hashlib.md5(), 0
    with open(path, "rb") as stream:
        while True:
            left = part or 1 << 62
            piece = hashlib.md5() if part else whole
            while left:
                chunk = stream.read(min(_CHUNK, left))
                if not chunk:
                    break
                piece.update(chunk)
                left -= len(chunk)
            if not part:
                return str(whole.hexdigest())
            if left == part:
                return "%s-%d" % (sums.hexdigest(), count)
            sums.update(piece.digest())
            count += 1


def _hub(tool: Hf, place: str, shop: Workshop) -> Looked:
    scratch = tool.scratch(place)
    told = dict(_told_by_hub(os.path.join(scratch, _OWN, "huggingface", "download")))
    commits = sorted({commit for commit, _ in told.values() if commit})
    if len(commits) > 1:
        # What only the older one had cannot be told from the rest.
        shutil.rmtree(scratch)
        raise ToolFailed("its revision moved while it was fetched", passing=True)
    _only_below(scratch, tool.below)
    faults: List[str] = []
    lines: List[str] = []
    hashed = 0
    for name in _fetched(scratch):
        shop.left_s("checking what was fetched")
        path = os.path.join(scratch, name)
        etag = told.get(name, ("", ""))[1]
        same = _has_etag(path, etag)
        if same is False:
            os.unlink(path)
            faults.append(name)
        hashed += same is True
        lines.append("%s\t%d\t%s\n" % (name, os.stat(path).st_size if same is not False else 0, etag))
    if not lines:
        raise ToolFailed("there is no file %s in it" % tool.below if tool.below else "it holds no file", "404 (404)")
    record: Dict[str, Any] = {"listed": len(lines), "hashed": hashed, "listing": sha256("".join(lines).encode())}
    if not faults:
        _move_up(scratch, tool.below, place)
    return Looked(tuple(faults), dict(record, revision=commits[0] if commits else ""))


def _told_by_hub(folder: str) -> Iterator[Tuple[str, Tuple[str, str]]]:
    for path in _files(folder):
        if path.endswith(".metadata"):
            with open(path, encoding="utf-8", errors="replace") as stream:
                lines = [line.strip() for line in stream.read().splitlines()[:2]] + ["", ""]
            yield os.path.relpath(path, folder)[: -len(".metadata")], (lines[0], lines[1].strip('"'))


def _has_etag(path: str, etag: str) -> Optional[bool]:
    """Whether a file has the hash that the hub knows it by: its SHA-256, or git's SHA-1 of a small one."""
    if _SHA256.match(etag):
        seen = hashlib.sha256()
    elif _SHA1.match(etag):
        seen = hashlib.sha1(b"blob %d\0" % os.stat(path).st_size)
    else:
        return None
    with open(path, "rb") as stream:
        for chunk in iter(lambda: stream.read(_CHUNK), b""):
            seen.update(chunk)
    return bool(seen.hexdigest() == etag)


def _files(folder: str) -> Iterator[str]:
    for above, _, names in os.walk(folder):
        for name in names:
            yield os.path.join(above, name)


def _fetched(scratch: str) -> List[str]:
    """The names of all files there but those of the tool itself, sorted."""
    found = (os.path.relpath(path, scratch) for path in _files(scratch))
    return sorted(name for name in found if not name.startswith(_OWN + os.sep))


def _only_below(scratch: str, below: str) -> None:
    """Without what only began like the path that was asked for."""
    for name in _fetched(scratch) if below else ():
        if name != below and not name.startswith(below + "/"):
            os.unlink(os.path.join(scratch, name))


def _move_up(scratch: str, below: str, place: str) -> None:
    """Put what was asked for, of which all is checked, in its place, without what the tool left there."""
    shutil.rmtree(os.path.join(scratch, _OWN), ignore_errors=True)
    if below:
        os.rename(os.path.join(scratch, below), place)
        shutil.rmtree(scratch)
