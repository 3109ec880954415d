"""Fetches an input from another place with a tool of this host, again when it fails for the moment, and looks it over.

Only `bringing.py` calls it, under the input's lock. What an earlier fetch left half done is gone on with. It must not
know how a tool is spoken to (see `fetch_tools.py`), nor put anything secret into a command line: a tool finds its
credentials in the environment or in the account's own files.
"""

import os
from typing import Any, Dict, Optional

from aicrun.agent import fetch_check, fetch_tools, hooks
from aicrun.agent.build import SetupFailed, Workshop
from aicrun.agent.fetch_run import NoRoom, ToolFailed, run
from aicrun.agent.fetch_tools import Listing, Tool
from aicrun.agent.finding import counted
from aicrun.agent.machine import program
from aicrun.agent.tool_tries import OF_THE_JOB, PAUSES_S, Errand, tried
from aicrun.wire.jobs import Fetch
from aicrun.wire.tools import FETCHERS


def fetch(wanted: Fetch, growing: str, shop: Workshop) -> Dict[str, Any]:
    """Fetch it into the folder `growing`; what is to be remembered of it. Raises `SetupFailed`, `NoRoom`, `OSError`."""
    tool = fetch_tools.tool(wanted, _program(wanted, shop))
    env = {name: value for name, value in shop.env.items() if name not in OF_THE_JOB}
    shop.env = dict(env, **tool.env)
    errand = Errand("input %s" % wanted.input, wanted.address, FETCHERS[wanted.tool].login % "setup", PAUSES_S)
    fetch_check.without_leftovers(tool, os.path.join(growing, wanted.name))
    listing = tried(errand, shop, lambda: tool.listing(shop))
    if listing is not None:
        words = (wanted.input, counted(len(listing.files), "file"), counted(listing.bytes, "byte"))
        shop.say("input %s: %s, %s at its place" % words)
        _check_room(listing, growing)
    hooks.reached("input.listed")
    listings = [listing]

    def copied() -> Dict[str, Any]:
        # What was listed before a try that failed may be another by now.
        latest = listings.pop() if listings else tool.listing(shop)
        return _copied(wanted, tool, latest, growing, shop)

    return tried(errand, shop, copied)


def _copied(wanted: Fetch, tool: Tool, listing: Optional[Listing], growing: str, shop: Workshop) -> Dict[str, Any]:
    place = os.path.join(growing, wanted.name)
    argv = tool.copying(place, listing)
    shop.say("fetching input %s: %s" % (wanted.input, " ".join(argv)))
    run(argv, shop, "fetching input %s" % wanted.input)
    hooks.reached("input.copied")
    looked = fetch_check.settled(tool, place, listing, shop)
    if looked.faults:
        told = "%s came otherwise than listed: %s" % (counted(len(looked.faults), "file"), looked.faults[0])
        raise ToolFailed(told, passing=True)
    shop.say("input %s: %d of %s checked by their hashes, all by their sizes" % looked.words(wanted.input))
    return dict(looked.record, tool=wanted.tool)


def _check_room(listing: Listing, growing: str) -> None:
    volume = os.statvfs(growing)
    # What an earlier try brought needs no room any more.
    have = sum(os.stat(os.path.join(above, name)).st_size for above, _, names in os.walk(growing) for name in names)
    lacks = listing.bytes - have
    if lacks > volume.f_bavail * volume.f_frsize:
        raise NoRoom("it needs %s more" % counted(lacks, "byte"))
    if volume.f_files and len(listing.files) > volume.f_favail + fetch_check.counted_below(growing):
        raise NoRoom("it needs %s" % counted(len(listing.files), "inode"))


def _program(wanted: Fetch, shop: Workshop) -> str:
    found = program(wanted.tool, shop.env.get("PATH", "").split(os.pathsep))
    if not found:
        raise SetupFailed("input %s: there is no %s on this host: %s" % (wanted.input, wanted.tool, how(wanted.tool)))
    return found


def how(tool: str) -> str:
    """How to get a tool."""
    return FETCHERS[tool].get if tool in FETCHERS else "install it there"
