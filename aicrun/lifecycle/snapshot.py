"""A source folder at one moment: each file's hash, the tree's hash, and what git says about it.

The same folder gives the same tree on every machine. It reads each file once to hash it and once more to send it,
and notices when the two differ. It must not change the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import stat
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass

from aicrun.errors import PlanStale, UsageError, Way
from aicrun.hosts.backend import Content
from aicrun.lifecycle.absent import pointers, submodules
from aicrun.lifecycle.known_files import KnownFiles
from aicrun.lifecycle.listing import files_of, git_says, git_words
from aicrun.spec.model import RunSpec, SourceSpec
from aicrun.wire.hashes import canonical, tree_hash
from aicrun.wire.jobs import Source

_LARGEST = 5
_DIRTY_MOST = 50
_PLAN_MARKS = (b'"schema_version"', b'"kind": "plan"')


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of the tree: `kind` is `f`, `x` or `l`; `content` a SHA-256, or the target of a link.

    `place` is where its bytes lie, empty for the path below the tree's root.
    """

    path: str
    kind: str
    content: str
    size: int
    place: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The tree as hashed: `entries` sorted by path, `largest` the biggest files as (path, bytes), biggest first.

    `pointers` are files whose contents git-lfs keeps elsewhere, `submodules` are not checked out.
    """

    root: str
    source: Source
    entries: tuple[Entry, ...]
    largest: tuple[tuple[str, int], ...]
    pointers: tuple[str, ...] = ()
    submodules: tuple[str, ...] = ()

    @property
    def manifest(self) -> bytes:
        """The canonical JSON list of [path, kind, content, size] that the host keeps for the tree."""
        return canonical([[entry.path, entry.kind, entry.content, entry.size] for entry in self.entries])

    @property
    def hashes(self) -> tuple[str, ...]:
        """The distinct contents of files, in the order of paths."""
        return tuple(dict.fromkeys(entry.content for entry in self.entries if entry.kind != "l"))


def take(spec: RunSpec, aside: Iterable[str] = (), cache: str = "") -> Snapshot | None:
    """The snapshot of a spec's source, or None when it has none.

    The spec's own file, `aside` (the inventory), saved plans, the workspace and a `file:` upload target are no code:
    left in, a change of a limit or an earlier checkpoint would look like another run. `cache` is this client's folder
    for what it knows of files that have not changed (empty: all are read).
    Raises `UsageError` for an empty source, a link that leaves the tree, or a name that is not UTF-8.
    """
    if spec.source is None or spec.source.git:
        return None
    own = [os.path.join(spec.folder, os.path.basename(spec.file)) if spec.file else "", *aside, *_outputs(spec)]
    return look_at(spec.source, [os.path.abspath(path) for path in own if path], cache)


def _outputs(spec: RunSpec) -> Iterator[str]:
    upload = spec.checkpoints.upload
    targets = [spec.workspace] + ([upload.to[len("file:") :]] if upload is not None and upload.scheme == "file" else [])
    for target in targets:
        path = os.path.expanduser(target)
        if os.path.isabs(path) and "${" not in path:
            yield path


def look_at(source: SourceSpec, aside: Iterable[str] = (), cache: str = "") -> Snapshot:
    """The snapshot of a folder; see `take`."""
    root = source.path
    known = KnownFiles(cache, root)
    entries = tuple(entry for path in files_of(source, aside) if (entry := _entry(root, path, known)) is not None)
    known.keep()
    if not entries:
        raise UsageError(
            "AIC-E653",
            f"source.path {root} holds no file to send",
            facts=(("counted", "files git knows, or new and not ignored; caches and virtual environments never"),),
            ways=(Way("see the field", "aicrun explain source"),),
        )
    files = [entry for entry in entries if entry.kind != "l"]
    by_size = sorted(files, key=lambda entry: (-entry.size, entry.path))[:_LARGEST]
    described = Source(
        tree=tree_hash((entry.path, entry.kind, entry.content) for entry in entries),
        files=len(entries),
        bytes=sum(entry.size for entry in files),
        commit=git_words(root, "rev-parse", "HEAD"),
        branch=git_words(root, "rev-parse", "--abbrev-ref", "HEAD"),
        dirty=_dirty(root, {entry.path for entry in entries}),
    )
    absent = pointers(root, ((entry.path, entry.size) for entry in files)), submodules(source)
    return Snapshot(root, described, entries, tuple((entry.path, entry.size) for entry in by_size), *absent)


def _dirty(root: str, sent: Set[str]) -> tuple[str, ...]:
    """The paths that git calls changed, but for those that are new and not sent: the spec's own file, say."""
    said = git_says(root, "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--", ".")
    rows = [os.fsdecode(row) for row in said.split(b"\0") if row] if isinstance(said, bytes) else []
    # Named from the top of the repository, of which the source may be a folder.
    above = git_words(root, "rev-parse", "--show-prefix")
    found = ((row[:2], row[3:].removeprefix(above)) for row in rows)
    return tuple(path for state, path in found if state != "??" or path in sent)[:_DIRTY_MOST]


def _entry(root: str, path: str, known: KnownFiles) -> Entry | None:
    full = f"{root}/{path}"
    try:
        path.encode("utf-8")
    except UnicodeEncodeError as error:
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        raise UsageError(
            "AIC-E654",
            f"the file name {shown} in {root} is not UTF-8",
            ways=(Way("rename it, or leave its folder out:", "aicrun explain source.exclude"),),
        ) from error
    try:
        state = os.lstat(full)
    except FileNotFoundError:
        return None  # git still knows it, the person has removed it
    mode = state.st_mode
    if stat.S_ISLNK(mode):
        return Entry(path, "l", _target(root, path, os.readlink(full)), 0)
    if not stat.S_ISREG(mode):
        return None
    content, size = known.hash_of(path, state), state.st_size
    if not content:
        content, size = hashed(full)
        known.learn(path, state, content)
    if path.endswith(".json") and _is_plan(full):
        return None
    return Entry(path, "x" if mode & stat.S_IXUSR else "f", content, size)


def _target(root: str, path: str, target: str) -> str:
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if posixpath.isabs(target) or joined == ".." or joined.startswith("../"):
        raise UsageError(
            "AIC-E655",
            f"the link {path} in {root} leaves the source: {target}",
            ways=(
                Way("leave it out, under source:", f"exclude: [{path}]"),
                Way("data belongs into", "aicrun explain inputs"),
            ),
        )
    return target


def hashed(full: str) -> tuple[str, int]:
    """(SHA-256, bytes) of a file, read again when it changed meanwhile; raises `PlanStale` when it keeps changing."""
    for _ in range(3):
        # Without a stream: of many small files its making would take most of the time.
        handle = os.open(full, os.O_RDONLY | os.O_CLOEXEC)
        try:
            before = os.fstat(handle)
            summed, size = hashlib.sha256(), 0
            while size < before.st_size and (part := os.read(handle, min(1 << 20, before.st_size - size))):
                summed.update(part)
                size += len(part)
            after = os.fstat(handle)
        finally:
            os.close(handle)
        if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size) and size == after.st_size:
            return summed.hexdigest(), size
    raise changing(full)


def _is_plan(full: str) -> bool:
    with contextlib.suppress(OSError), open(full, "rb") as stream:
        head = stream.read(200)
        return all(mark in head for mark in _PLAN_MARKS)
    return False


def changing(full: str) -> PlanStale:
    """The error for a file that is not what it was a moment ago."""
    return PlanStale(
        "AIC-E650",
        f"{full} changed while it was being read; nothing was started",
        ways=(Way("once it is still", "the same command again"),),
    )


def contents(snapshot: Snapshot, wanted: Iterable[str]) -> tuple[Content, ...]:
    """The files that have the `wanted` contents, ready to be sent."""
    where = {entry.content: entry for entry in reversed(snapshot.entries) if entry.kind != "l"}
    return tuple(
        Content(content, entry.place or os.path.join(snapshot.root, entry.path), entry.size)
        for content in wanted
        for entry in (where[content],)
    )
