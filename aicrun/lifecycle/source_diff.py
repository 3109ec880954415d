"""What a source differs in from its commit, as one text that `git apply` takes: both together are the source again.

It covers what is sent and nothing else: a file that is left out of the source is left out of the text. It must not
change the folder or git's index.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator

from aicrun.errors import UsageError
from aicrun.lifecycle.listing import git_says, git_words, is_wanted
from aicrun.lifecycle.snapshot import Entry, Snapshot, changing, hashed
from aicrun.spec.model import SourceSpec
from aicrun.wire.names import DIFF_CAP_BYTES

# Of the head, which names what the text does not hold.
_TOLD_MOST = 50
# Arguments of one call.
_PATHS_MOST = 500
_BINARY_LOOK = 8000
_DIFF = (
    *("-c", "core.quotePath=false", "--literal-pathspecs", "diff", "HEAD"),
    *("--no-color", "--no-renames", "--submodule=short", "--unified=3", "-O/dev/null"),
    *("--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/"),
)


def diff_of(snapshot: Snapshot, source: SourceSpec) -> bytes:
    """The text, at most `DIFF_CAP_BYTES`; empty for a source that is its commit, or has none.

    Its head names what it does not hold: binary files, with their SHA-256, and what was too large. Raises `PlanStale`
    (AIC-E650) when a file is not what was hashed any more, `UsageError` (AIC-E652) when git cannot tell.
    """
    if not snapshot.source.commit or not snapshot.source.dirty:
        return b""
    sent = {entry.path: entry for entry in snapshot.entries}
    tracked = _names(snapshot.root, *_DIFF, "--relative", "--name-only", "-z", "--", ".")
    known = set(_names(snapshot.root, "ls-files", "-z", "--cached", "--", "."))
    changed = [path for path in tracked if path in sent or _is_gone(snapshot.root, path, source)]
    new = [path for path in sent if path not in known and not _is_nested(path, known)]
    parts = {path: block for paths in _chunks(changed) for path, block in _blocks(snapshot.root, paths)}
    # As the repository names them: the text is taken by `git apply` wherever in it that is run.
    prefix = git_words(snapshot.root, "rev-parse", "--show-prefix")
    parts.update((path, _as_new(snapshot.root, sent[path], prefix)) for path in new)
    _check(snapshot, [sent[path] for path in parts if path in sent])
    return _joined(snapshot, parts, [path for path in tracked if path not in parts and _holds(path, sent)])


def _names(root: str, *args: str) -> tuple[str, ...]:
    return tuple(os.fsdecode(part) for part in _said(root, *args).split(b"\0") if part)


def _said(root: str, *args: str) -> bytes:
    said = git_says(root, *args)
    if not isinstance(said, bytes):
        facts = (("git says", said),) if said else ()
        raise UsageError("AIC-E652", f"git cannot tell what changed in {root}", facts=facts)
    return said


def _is_gone(root: str, path: str, source: SourceSpec) -> bool:
    """Whether the file was removed; one that would never be sent is nobody's business."""
    return not os.path.lexists(os.path.join(root, path)) and is_wanted(path, source)


def _is_nested(path: str, known: set[str]) -> bool:
    """Whether a folder above is a repository of its own, as git knows one: it has commits of its own."""
    above = path.rpartition("/")[0]
    return bool(above) and (above in known or _is_nested(above, known))


def _holds(folder: str, sent: Iterable[str]) -> bool:
    return any(path.startswith(f"{folder}/") for path in sent)


def _chunks(paths: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(paths), _PATHS_MOST):
        yield paths[start : start + _PATHS_MOST]


def _blocks(root: str, paths: list[str]) -> Iterator[tuple[str, bytes]]:
    """The part of each path; git tells them in its own order, which is that of the bytes of their names."""
    said = _said(root, *_DIFF, "--", *paths)
    parts = (b"\n" + said).split(b"\ndiff --git ")[1:]
    ordered = sorted(paths, key=os.fsencode)
    if len(parts) == len(ordered):
        ends = [b"\n"] * (len(parts) - 1) + [b""]
        for path, part, end in zip(ordered, parts, ends, strict=True):
            yield path, b"diff --git " + part + end
        return
    # A line of a file that looks like the head of a part: one by one then.
    for path in ordered:
        one = _said(root, *_DIFF, "--", path)
        if one:
            yield path, one


def _as_new(root: str, entry: Entry, prefix: str) -> bytes:
    """A file that git does not know yet, as its diff would be."""
    mode = {"x": b"100755", "l": b"120000"}.get(entry.kind, b"100644")
    name = _quoted(prefix + entry.path)
    head = b"diff --git %s %s\nnew file mode %s\n" % (name(b"a/"), name(b"b/"), mode)
    content = entry.content.encode() if entry.kind == "l" else _read(os.path.join(root, entry.path))
    if b"\0" in content[:_BINARY_LOOK]:
        return head + b"Binary files /dev/null and %s differ\n" % name(b"b/")
    if not content:
        return head
    tab = b"\t" if " " in prefix + entry.path else b""
    lines = content.split(b"\n")
    is_whole = not lines[-1]
    lines = lines[:-1] if is_whole else lines
    body = b"".join(b"+%s\n" % line for line in lines) + (b"" if is_whole else b"\\ No newline at end of file\n")
    count = b"1" if len(lines) == 1 else b"1,%d" % len(lines)
    return b"%s--- /dev/null\n+++ %s%s\n@@ -0,0 +%s @@\n%s" % (head, name(b"b/"), tab, count, body)


def _read(full: str) -> bytes:
    # What cannot be in the text as a whole need not be read as a whole.
    with open(full, "rb") as stream:
        return stream.read(DIFF_CAP_BYTES + 1)


def _quoted(path: str) -> Callable[[bytes], bytes]:
    """The name behind a prefix, as git writes it: quoted where it must be."""

    def name(prefix: bytes) -> bytes:
        whole = prefix + os.fsencode(path)
        if not any(_is_odd(byte) for byte in whole):
            return whole
        return b'"' + b"".join(b"\\%03o" % byte if _is_odd(byte) else bytes((byte,)) for byte in whole) + b'"'

    return name


def _is_odd(byte: int) -> bool:
    return byte < 0x20 or byte in b'"\\\x7f'


def _shown(path: str) -> str:
    return path.encode("unicode_escape").decode()[:150]


def _check(snapshot: Snapshot, entries: Iterable[Entry]) -> None:
    """What was told must be what is sent."""
    for entry in entries:
        full = os.path.join(snapshot.root, entry.path)
        try:
            mode = os.lstat(full).st_mode
            is_same = os.readlink(full) == entry.content if stat.S_ISLNK(mode) else hashed(full)[0] == entry.content
        except OSError as error:
            raise changing(full) from error
        if not is_same:
            raise changing(full)


def _joined(snapshot: Snapshot, parts: dict[str, bytes], nested: list[str]) -> bytes:
    sent = {entry.path: entry for entry in snapshot.entries}
    told = [f"# aicrun: tree {snapshot.source.tree[:12]} is commit {snapshot.source.commit} and this text"]
    text, left = b"", []
    for path in sorted(parts):
        is_binary = b"\nBinary files " in parts[path]
        if not is_binary and len(text) + len(parts[path]) <= DIFF_CAP_BYTES - 16384:
            text += parts[path]
            continue
        entry = sent.get(path)
        what = "binary" if is_binary else "too large for this text"
        about = f"{entry.size} bytes, SHA-256 {entry.content}" if entry is not None else "removed"
        left.append(f"# not in this text, {what}: {_shown(path)} ({about})")
    left += [f"# not in this text, a repository of its own with changes: {_shown(path)}" for path in nested]
    told += left[:_TOLD_MOST]
    told += [f"# and {len(left) - _TOLD_MOST} files more"] if len(left) > _TOLD_MOST else []
    return "".join(f"{line}\n" for line in told).encode() + text
