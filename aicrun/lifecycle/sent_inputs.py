"""The inputs of a run that lie on this client: a file or a folder at one moment, every file of it, hashed.

Nothing is left out as it is of a source: data is what a person points at. It must not change the folder.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator

from aicrun.errors import UsageError, Way
from aicrun.lifecycle.known_files import KnownFiles
from aicrun.lifecycle.snapshot import Entry, Snapshot, hashed
from aicrun.plan.inputs import LOCAL, name_there
from aicrun.spec.model import RunSpec
from aicrun.wire.hashes import tree_hash
from aicrun.wire.jobs import Source

# What was taken already, by its place here and its name there: many runs of one call send the same files.
Seen = dict[tuple[str, str], Snapshot]


def take_inputs(spec: RunSpec, cache: str = "", seen: Seen | None = None) -> dict[str, Snapshot]:
    """The inputs of `spec` that this client sends, by name; `cache` as in `snapshot.take`. Adds to `seen`.

    Raises `UsageError` (AIC-E656) for one that cannot be read, that holds no file, or with a name that is not UTF-8.
    """
    seen = {} if seen is None else seen
    found = {}
    for name, origin in spec.brought.items():
        place = (origin.path, name_there(name, origin))
        if origin.scheme == LOCAL and place not in seen:
            seen[place] = _taken(name, *place, cache)
        if origin.scheme == LOCAL:
            found[name] = seen[place]
    return found


def _taken(name: str, path: str, top: str, cache: str) -> Snapshot:
    known = KnownFiles(cache, path)
    try:
        entries = tuple(sorted(_entries(path, top, known, ()), key=lambda entry: entry.path))
    except OSError as error:
        why = f"{error.filename or path} cannot be read: {error.strerror}"
        raise _refused(name, why) from error
    except UnicodeEncodeError as error:
        shown = os.fsencode(error.object).decode("utf-8", "backslashreplace")
        raise _refused(name, f"the file name {shown} is not UTF-8") from error
    known.keep()
    files = [entry for entry in entries if entry.kind != "l"]
    if not files:
        raise _refused(name, f"{path} holds no file")
    tree = tree_hash((entry.path, entry.kind, entry.content) for entry in entries)
    source = Source(tree=tree, files=len(entries), bytes=sum(entry.size for entry in files))
    return Snapshot(path, source, entries, ())


def _entries(place: str, path: str, known: KnownFiles, inside: tuple[str, ...]) -> Iterator[Entry]:
    """What lies at `place`, which is called `path` in the tree; `inside` are the real folders around it."""
    path.encode("utf-8")
    state = os.stat(place)
    if stat.S_ISREG(state.st_mode):
        content, size = known.hash_of(path, state), state.st_size
        if not content:
            content, size = hashed(place)
            known.learn(path, state, content)
        yield Entry(path, "x" if state.st_mode & stat.S_IXUSR else "f", content, size, place)
    elif stat.S_ISDIR(state.st_mode):
        real = os.path.realpath(place)
        if real in inside:
            raise OSError(0, "a link in it leads to a folder around it", place)
        for name in sorted(os.listdir(place)):
            below, called = f"{place}/{name}", f"{path}/{name}"
            target = os.readlink(below) if os.path.islink(below) else ""
            if target and _stays(called, target):
                called.encode("utf-8")
                yield Entry(called, "l", target, 0)
            else:
                # A link that leads out is followed: caches of models are made of such.
                yield from _entries(below, called, known, (*inside, real))


def _stays(path: str, target: str) -> bool:
    """Whether a relative link at `path` leads to something below the first folder of `path`."""
    top = path.partition("/")[0]
    return not posixpath.isabs(target) and posixpath.normpath(
        posixpath.join(posixpath.dirname(path), target)
    ).startswith(f"{top}/")


def _refused(name: str, why: str) -> UsageError:
    return UsageError("AIC-E656", f"inputs.{name}.from: {why}", ways=(Way("see the field", "aicrun explain inputs"),))
