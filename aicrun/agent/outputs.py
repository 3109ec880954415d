"""What lies in a run's checkpoint folder: what to upload, and what of it cannot be. It must not change anything."""

import os
import stat
from typing import Dict, List, Set, Tuple

from aicrun.wire import lean

MANIFEST = "aicrun-manifest.json"
# What is just being removed begins with this; it is in no list.
PRUNED = ".aicrun-pruned-"


@lean.dataclass(frozen=True)
class Output:
    """A file to upload: `path` relative with `/`, `source` the real file that its bytes come from."""

    path: str
    source: str


@lean.dataclass(frozen=True)
class Outputs:
    """`files` by path; `skipped` is left out and does not matter; `missing` is left out and should have been there."""

    files: Tuple[Output, ...]
    skipped: Tuple[str, ...]
    missing: Tuple[str, ...]


def outputs(folder: str) -> Outputs:
    """Everything below `folder`, links that stay inside followed; raises `OSError` when it cannot be listed.

    A link that dangles or leads out is `missing`: whoever loads the checkpoint elsewhere would look for it. A socket,
    a pipe or a device is `skipped`. A file of the manifest's own name at the top is ours and is left out,
    as is what is just being pruned.
    """
    walk = _Walk(os.path.realpath(folder))
    walk.folder(walk.top, "", set())
    return Outputs(tuple(walk.files[path] for path in sorted(walk.files)), tuple(walk.skipped), tuple(walk.missing))


def printable(path: str) -> str:
    """`path` as text that JSON and UTF-8 can carry: undecodable bytes as `\\xNN`."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class _Walk:
    def __init__(self, top: str) -> None:
        self.top = top
        self.files: Dict[str, Output] = {}
        self.skipped: List[str] = []
        self.missing: List[str] = []

    def folder(self, real: str, path: str, above: Set[str]) -> None:
        for name in sorted(os.listdir(real)):
            if not path and (name == MANIFEST or name.startswith(PRUNED)):
                continue
            self.entry(os.path.join(real, name), path + name, above | {real})

    def entry(self, place: str, path: str, above: Set[str]) -> None:
        real = place
        if os.path.islink(place):
            real = os.path.realpath(place)
            if not real.startswith(self.top + "/") and real != self.top:
                return self.lacks(path, "a link that leads out of the checkpoint folder")
            if not os.path.exists(real):
                return self.lacks(path, "a link to nothing")
        try:
            mode = os.lstat(real).st_mode
            if stat.S_ISREG(mode):
                self.files[path] = Output(path, real)
            elif not stat.S_ISDIR(mode):
                self.skipped.append("%s: a socket, pipe or device" % printable(path))
            elif real in above:
                self.lacks(path, "a link to a folder that it is in")
            else:
                self.folder(real, path + "/", above)
        except OSError as error:
            self.lacks(path, error.strerror or "cannot be read")
        return None

    def lacks(self, path: str, why: str) -> None:
        self.missing.append("%s: %s" % (printable(path), why))
