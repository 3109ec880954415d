"""The agent as bytes: its sources, the wire, and NVIDIA's one-file `pynvml`, in one archive that never varies.

The digest is taken over the sources, not over the archive, since compressors differ. It must not import the agent.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import tarfile
import threading
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from aicrun.wire.hashes import sha256, tree_hash

PACKAGE = Path(__file__).resolve().parent.parent
FOLDERS = ("agent", "wire")
LICENCE = "pynvml-LICENSE.txt"
# Many machines ask for it at the same moment, and a cache alone lets each of them read and hash all files; packing
# takes a tenth of a second each time.
_BUILDING, _PACKING = threading.Lock(), threading.Lock()


@dataclass(frozen=True)
class Bundle:
    """`digest` names the agent's folder on a host; `files` are (path, bytes) sorted by path."""

    digest: str
    files: tuple[tuple[str, bytes], ...]

    @property
    def archive(self) -> bytes:
        """The files as a gzipped tar: the same bytes each time, every date zero; made once for all machines."""
        with _PACKING:
            return self._packed

    @cached_property
    def _packed(self) -> bytes:
        raw = io.BytesIO()
        with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
            for path, content in self.files:
                entry = tarfile.TarInfo(path)
                entry.size, entry.mode = len(content), 0o600
                tar.addfile(entry, io.BytesIO(content))
        return raw.getvalue()


def build() -> Bundle:
    """The bundle of this installation, read once for each process, however many ask at once."""
    with _BUILDING:
        return read()


@cache
def read() -> Bundle:
    """The bundle of this installation as its files are now; whoever wants the one of this process asks `build`."""
    files = {"aicrun/__init__.py": (PACKAGE / "__init__.py").read_bytes()}
    for folder in FOLDERS:
        for path in sorted((PACKAGE / folder).glob("*.py")):
            files[f"aicrun/{folder}/{path.name}"] = path.read_bytes()
    files["boot.py"] = files["aicrun/agent/boot.py"]
    files |= _pynvml()
    return Bundle(digest_of(files), tuple(sorted(files.items())))


def digest_of(files: dict[str, bytes]) -> str:
    """The digest of an agent with these sources, by path: the tree hash, so that the host computes the same."""
    return tree_hash((path, "f", sha256(content)) for path, content in files.items())


def _pynvml() -> dict[str, bytes]:
    # Without it the agent still works, and says of the cards that they cannot be known.
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        return {}
    # Its terms stand at its head; some releases bring them in a file besides. It is looked for by hand: what the
    # standard library has for it takes longer to load than all of this.
    place = Path(spec.origin)
    found = {"pynvml.py": place.read_bytes()}
    for told in sorted(place.parent.glob("nvidia_ml_py-*.dist-info/**/*")):
        if "LICEN" in told.name.upper() and told.is_file():
            found[LICENCE] = told.read_bytes()
    return found
