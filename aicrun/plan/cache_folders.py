"""The two cache folders of a run: which volumes to ask about for them, and what a plan says when they cannot serve.

It must not refuse: a run may need neither.
"""

from __future__ import annotations

from aicrun.plan import words
from aicrun.plan.draft import Site
from aicrun.plan.places import CACHES, absolute
from aicrun.wire.jobs import JobRequest


def cache_warnings(site: Site, made: JobRequest) -> tuple[str, ...]:
    """One for each cache folder of the job that is no absolute path, or lies where the account cannot write."""
    found = []
    for name in CACHES:
        path = made.env.get(name, "")
        shown = f"{name} is {words.harmless(path)}"
        if not path.startswith("/"):
            found.append(f"{shown}, no absolute path: each program would make its own in its folder")
        elif not _writable(site, path):
            found.append(f"{shown}, which cannot be written on {site.machine.name}")
    return tuple(found)


def _writable(site: Site, path: str) -> bool:
    home = site.reading.home
    place = absolute(path, home)
    around = [disk for disk in site.reading.disks if f"{place}/".startswith(f"{absolute(disk.path, home)}/")]
    return not around or max(around, key=lambda disk: len(absolute(disk.path, home))).writable
