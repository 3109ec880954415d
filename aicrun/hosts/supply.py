"""Gives a host the one program it may lack: uv, through the store, so that the host needs no way to the index."""

from __future__ import annotations

import os

from aicrun.hosts.backend import Backend, Content
from aicrun.wire.facts import HostReading
from aicrun.wire.tools import UV, uv_platform


def supply_uv(backend: Backend, reading: HostReading) -> bool:
    """Push uv to the machine of `reading` unless it has one; True when it was pushed now.

    What was fetched is kept in the user's cache folder. Raises `TransferFailed` when it cannot be fetched, and what
    `Backend.put` raises.
    """
    # Imported here: it brings ssl and urllib, which no other command needs.
    from aicrun.hosts.uv import fetch_uv

    known = UV.get(uv_platform(reading.system, reading.architecture, reading.libc))
    if reading.uv or (known is not None and not backend.missing("", b"", (known[2],))):
        return False
    folder = os.environ.get("XDG_CACHE_HOME", "")
    cache = os.path.join(folder if os.path.isabs(folder) else os.path.expanduser("~/.cache"), "aicrun")
    words = {"system": reading.system, "machine": reading.architecture, "libc": reading.libc}
    path = fetch_uv(cache, env=os.environ, **words)
    if known is not None:
        backend.put((Content(known[2], path, os.path.getsize(path)),))
    return True
