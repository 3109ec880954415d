"""The working tree of a job: laid out fresh from the store, never reaching outside itself.

With a source the tree is `<workspace>/jobs/<job id>/` and ours. Without one it is the person's own workspace, where
nothing is written but the checkpoint folder and its link.
"""

import os
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Set

from aicrun.agent import later, ownership, store
from aicrun.agent.home import Home
from aicrun.agent.refused import Refused
from aicrun.wire.jobs import JobRequest

if TYPE_CHECKING:
    import hashlib
    import shutil
else:
    # Only a setup of its own process lays out a tree.
    hashlib, shutil = later.module("hashlib", by_all=False), later.module("shutil")

_CHUNK = 1024 * 1024
# FICLONE of the kernel's include/uapi/linux/fs.h. Smaller files are quicker copied than asked about.
_CLONE = 0x40049409
_SHARED_BYTES = 1024 * 1024
# A large tree is laid out by so many processes, each with so many files: their system calls take most of the time.
_HANDS_MOST = 4
_EACH_LEAST = 1000


def working_tree(request: JobRequest) -> str:
    """The absolute folder the job works in."""
    if request.source is None:
        return request.workspace
    return os.path.join(request.workspace, "jobs", request.job_id)


def inside(path: str, folder: str) -> bool:
    """True when `path` is `folder` or below it; both absolute and resolved by the caller."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def lay_out(home: Home, request: JobRequest, fill: Optional[Callable[[str], None]] = None) -> str:
    """Make workspace, checkpoint folder and working tree; the tree's path. A tree that stands is left as it is.

    `fill` puts a source that is not in the store into an empty folder.

    Raises `Refused`: `store_incomplete` when the store lacks a content, `start_failed` for a source that would
    reach outside the tree or stands in the way of a link.
    """
    tree = working_tree(request)
    making = ownership.Making(request, tree)
    _folder(request.workspace)
    if request.checkpoints:
        _folder(request.checkpoints)
    if request.source is not None and not os.path.isdir(tree):
        if fill is None:
            fill = filling(home, request.source.tree)
        _grown(tree, fill)
    if request.checkpoint_link:
        link_checkpoints(tree, request.checkpoint_link, request.checkpoints)
    if request.source is not None and request.setup.key:
        _link_environment(tree, request.setup.path)
    making.give()
    return tree


def link_checkpoints(tree: str, relative: str, target: str) -> None:
    """Make `relative` below `tree` a link to `target`; raises `Refused` when something of the person's is there."""
    check_path(relative)
    place = os.path.join(tree, relative)
    parent = os.path.dirname(place)
    _folder(parent)
    if not inside(os.path.realpath(parent), os.path.realpath(tree)):
        raise Refused("start_failed", "checkpoints.path: %s leaves the working tree" % relative, {"tree": tree})
    if os.path.realpath(place) == os.path.realpath(target):
        return
    if os.path.islink(place) and os.path.dirname(os.readlink(place)) == os.path.dirname(target):
        # The link of an earlier run in the person's own workspace.
        os.unlink(place)
    if os.path.lexists(place):
        message = (
            "checkpoints.path: %s is already there, so it cannot become a link to the run's checkpoints" % relative
        )
        raise Refused("start_failed", message, {"path": place, "checkpoints": target})
    os.symlink(target, place)


def check_path(path: str) -> None:
    """Raises `Refused` unless `path` is a plain relative path that stays where it begins."""
    parts = path.split("/")
    if not path or "\0" in path or os.path.isabs(path) or any(part in ("", ".", "..") for part in parts):
        raise Refused("start_failed", "the source holds a path that leaves the tree: %r" % path, {"path": repr(path)})


def filling(home: Home, digest: str, whose: str = "the source's") -> Callable[[str], None]:
    """What lays the tree `digest` of the store into an empty folder.

    Raises `Refused`: `store_incomplete` when the store lacks a content, `start_failed` for a tree that would reach
    outside. `whose` contents they are stands in the message.
    """
    entries = store.manifest(home, digest)
    if entries is None:
        raise _incomplete(digest, 1, whose)
    _check(entries)

    def fill(growing: str) -> None:
        try:
            _lay_entries(home, entries, growing)
        except FileNotFoundError:
            lacking = store.lacking(home, entries)
            if not lacking:
                raise
            raise _incomplete(digest, len(lacking), whose) from None

    return fill


def _incomplete(digest: str, lacking: int, whose: str) -> Refused:
    message = "the store lacks %d of %s contents; apply again sends them" % (lacking, whose)
    return Refused("store_incomplete", message, {"tree": digest})


def _grown(tree: str, fill: Callable[[str], None]) -> None:
    _folder(os.path.dirname(tree))
    # Under another name until it is whole, so that a tree that stands is a complete one.
    growing = os.path.join(os.path.dirname(tree), ".laying-" + os.path.basename(tree))
    shutil.rmtree(growing, ignore_errors=True)
    os.mkdir(growing, 0o700)
    try:
        fill(growing)
    except BaseException:
        # Its disk may be full, and nobody will go on with it.
        shutil.rmtree(growing, ignore_errors=True)
        raise
    os.rename(growing, tree)


def _lay_entries(home: Home, entries: List[store.Entry], growing: str) -> None:
    objects = home.objects()
    for folder in dict.fromkeys(entry.path.rpartition("/")[0] for entry in entries):
        _folder("%s/%s" % (growing, folder))
    hands = min(_HANDS_MOST, len(os.sched_getaffinity(0)), len(entries) // _EACH_LEAST)
    if hands < 2 or not _laid_by_many(objects, entries, growing, hands):
        _lay(objects, entries, growing)
    _check_links(growing, entries)


def _lay(objects: str, entries: List[store.Entry], growing: str) -> None:
    for entry in entries:
        place = "%s/%s" % (growing, entry.path)
        if entry.kind == "l":
            os.symlink(entry.content, place)
        else:
            _copy("%s/%s/%s" % (objects, entry.content[:2], entry.content), place, entry)


def _laid_by_many(objects: str, entries: List[store.Entry], growing: str, hands: int) -> bool:
    """Whether `hands` processes have laid it out together; where one failed nothing is there, for one to say why."""
    each = (len(entries) + hands - 1) // hands
    helpers = [_forked(objects, entries[at : at + each], growing) for at in range(each, len(entries), each)]
    try:
        _lay(objects, entries[:each], growing)
        is_laid = True
    except (OSError, Refused):
        is_laid = False
    ends = [os.waitpid(helper, 0)[1] for helper in helpers]
    if is_laid and not any(ends):
        return True
    for entry in entries:
        if os.path.lexists("%s/%s" % (growing, entry.path)):
            os.unlink("%s/%s" % (growing, entry.path))
    return False


def _forked(objects: str, entries: List[store.Entry], growing: str) -> int:
    """A process that lays out these and ends, its end 0 only when all are there; its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _lay(objects, entries, growing)
        code = 0
    finally:
        # Nothing of what it was forked from is ended with it, and nothing is said twice.
        os._exit(code)


def _check(entries: List[store.Entry]) -> None:
    taken: Dict[str, str] = {}
    for entry in entries:
        check_path(entry.path)
        if entry.path in taken:
            raise Refused("start_failed", "the source lists %r twice" % entry.path, {"path": entry.path})
        taken[entry.path] = entry.kind
        if entry.kind == "l":
            _check_target(entry.path, entry.content)
    parents: Set[str] = set()
    for path in taken:
        while "/" in path:
            path = path.rpartition("/")[0]
            parents.add(path)
    for path in sorted(parents & set(taken)):
        raise Refused("start_failed", "the source lists %r as a file and as a folder" % path, {"path": path})


def _check_target(path: str, target: str) -> None:
    landing = os.path.normpath(os.path.join(os.path.dirname(path), target))
    if os.path.isabs(target) or landing == ".." or landing.startswith("../") or "\0" in target:
        message = "the link %s leads out of the source, to %s" % (path, target)
        raise Refused("start_failed", message, {"path": path, "target": target})


def _check_links(tree: str, entries: List[store.Entry]) -> None:
    # What a link says and where a chain of links leads are two things: ask the file system too.
    top = os.path.realpath(tree)
    for entry in entries:
        if entry.kind == "l" and not inside(os.path.realpath(os.path.join(tree, entry.path)), top):
            shutil.rmtree(tree, ignore_errors=True)
            raise Refused("start_failed", "the link %s leads out of the source" % entry.path, {"path": entry.path})


def _copy(source: str, place: str, entry: store.Entry) -> None:
    """Copy what the store has into the tree, and prove it on the way."""
    seen, flags = hashlib.sha256(), os.O_CLOEXEC | os.O_NOFOLLOW
    out = os.open(place, flags | os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o755 if entry.kind == "x" else 0o644)
    try:
        into = os.open(source, flags | os.O_RDONLY)
        try:
            # Never a hard link: the tree is the job's own, and what it writes must not reach the store.
            is_shared = entry.size >= _SHARED_BYTES and _cloned(into, out)
            asked = min(_CHUNK, entry.size + 1)
            got = asked
            # A file gives less than it is asked for at its end only.
            while got == asked:
                chunk = os.read(into, asked)
                got = len(chunk)
                seen.update(chunk)
                while chunk and not is_shared:
                    chunk = chunk[os.write(out, chunk) :]
        finally:
            os.close(into)
    except OSError as error:
        # A disk that gets full tells no name.
        error.filename = error.filename or place
        raise
    finally:
        os.close(out)
    if seen.hexdigest() != entry.content:
        os.unlink(source)
        message = "the store's copy of %s was damaged and is removed; apply again sends it anew" % entry.path
        raise Refused("store_incomplete", message, {"path": entry.path})


def _cloned(source: int, target: int) -> bool:
    """Let `target` share the blocks of `source`, where the file system can; False when it is still empty."""
    # Imported here: trees of small files do without.
    import fcntl

    try:
        fcntl.ioctl(target, _CLONE, source)
    except OSError:
        return False
    return True


def _link_environment(tree: str, path: str) -> None:
    place = os.path.join(tree, ".venv")
    if not os.path.lexists(place):
        os.symlink(path, place)


def _folder(path: str) -> None:
    os.makedirs(path, mode=0o700, exist_ok=True)
