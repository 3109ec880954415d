"""The digest of the agent that runs: over its own sources, as the client computed it when it sent them."""

import hashlib
import os
from typing import Dict, Iterator, Tuple

from aicrun.wire.hashes import tree_hash

_KNOWN: Dict[str, str] = {}


def agent_digest(root: str) -> str:
    """The digest of the agent unpacked at `root`: all its files but what Python compiled; read once a process."""
    if root not in _KNOWN:
        _KNOWN[root] = tree_hash(_entries(root))
    return _KNOWN[root]


def _entries(root: str) -> Iterator[Tuple[str, str, str]]:
    for at, folders, files in os.walk(root):
        folders[:] = [folder for folder in folders if folder != "__pycache__"]
        for name in files:
            place = os.path.join(at, name)
            with open(place, "rb") as stream:
                content = hashlib.sha256(stream.read()).hexdigest()
            yield os.path.relpath(place, root), "f", content
