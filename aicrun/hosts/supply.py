"""Gives a host the one program it may lack: uv, through the store, so that the host needs no way to the index."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aicrun.hosts.backend import Backend
from aicrun.hosts.uv import fetch_uv
from aicrun.wire.facts import HostReading
from aicrun.wire.tools import UV, uv_platform


def supply_uv(backend: Backend, reading: HostReading, cache_folder: str, env: Mapping[str, str]) -> bool:
    """Push uv to the machine of `reading` unless it has one; True when it was pushed now.

    `cache_folder` keeps what was fetched for later. Raises `TransferFailed` when it cannot be fetched, and what
    `Backend.put` raises.
    """
    if reading.uv:
        return False
    known = UV.get(uv_platform(reading.system, reading.architecture, reading.libc))
    if known is not None and not backend.missing("", b"", (known[2],)):
        return False
    words = {"system": reading.system, "machine": reading.architecture, "libc": reading.libc}
    raw = Path(fetch_uv(cache_folder, env=env, **words)).read_bytes()
    if known is not None:
        backend.put(((known[2], raw),))
    return True
