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


def _entries(
    place: str, path: str, known: KnownFiles, inside: tuple[str, ...], followed: bool = False
) -> Iterator[Entry]:
    """What lies at `place`, which is called `path` in the tree; `inside` are the real folders around it.

    `followed` says that a link was followed on the way: around it lies something else here than in the tree.
    """
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
            if target and not followed and _stays(below, called, target, (*inside, real)[0]):
                called.encode("utf-8")
                yield Entry(called, "l", target, 0)
            else:
                # A link that leads out is followed: caches of models are made of such.
                yield from _entries(below, called, known, (*inside, real), followed or bool(target))


def _stays(place: str, path: str, target: str, top: str) -> bool:
    """Whether the link at `place` leads to the same thing in the tree as here: `top` is the input's real folder."""
    parts = [part for part in target.split("/") if part not in ("", ".")]
    down = parts[next((at for at, part in enumerate(parts) if part != ".."), len(parts)) :]
    # Up again after a name: what is a link here may be a folder there, and has another one around it.
    if posixpath.isabs(target) or ".." in down:
        return False
    called = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return called.startswith(f"{path.partition('/')[0]}/") and os.path.realpath(place).startswith(f"{top}/")


def _refused(name: str, why: str) -> UsageError:
    return UsageError("AIC-E656", f"inputs.{name}.from: {why}", ways=(Way("see the field", "aicrun explain inputs"),))
