"""The agent as bytes: its sources, the wire, and NVIDIA's one-file `pynvml`, in one archive that never varies.

The digest is taken over the sources, not over the archive, since compressors differ. It must not import the agent.
"""

from __future__ import annotations

import gzip
import importlib.metadata
import importlib.util
import io
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from aicrun.wire.hashes import sha256, tree_hash

PACKAGE = Path(__file__).resolve().parent.parent
FOLDERS = ("agent", "wire")
LICENCE = "pynvml-LICENSE.txt"


@dataclass(frozen=True)
class Bundle:
    """`digest` names the agent's folder on a host; `files` are (path, bytes) sorted by path."""

    digest: str
    files: tuple[tuple[str, bytes], ...]

    @property
    def archive(self) -> bytes:
        """The files as a gzipped tar: the same bytes each time, every date zero."""
        raw = io.BytesIO()
        with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
            for path, content in self.files:
                entry = tarfile.TarInfo(path)
                entry.size, entry.mode = len(content), 0o600
                tar.addfile(entry, io.BytesIO(content))
        return raw.getvalue()


@cache
def build() -> Bundle:
    """The bundle of this installation, read once for each process."""
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
    # Its terms stand at its head; some releases bring them in a file besides.
    found = {"pynvml.py": Path(spec.origin).read_bytes()}
    for item in importlib.metadata.files("nvidia-ml-py") or ():
        if "LICEN" in item.name.upper():
            found[LICENCE] = Path(str(item.locate())).read_bytes()
    return found
