"""Fetches an input from another place with a tool of this host, again when it fails for the moment, and looks it over.

Only `bringing.py` calls it, under the input's lock. What an earlier fetch left half done is gone on with. It must not
know how a tool is spoken to (see `fetch_tools.py`), nor put anything secret into a command line: a tool finds its
credentials in the environment or in the account's own files.
"""

import os
import re
import time
from typing import Any, Callable, Dict, Optional, Pattern, Tuple, TypeVar

from aicrun.agent import fetch_check, fetch_tools, hooks, install_faults
from aicrun.agent.build import SetupFailed, Workshop
from aicrun.agent.fetch_run import NoRoom, ToolFailed, run
from aicrun.agent.fetch_tools import Listing, Tool
from aicrun.agent.finding import counted
from aicrun.agent.machine import program
from aicrun.wire.jobs import Fetch
from aicrun.wire.tools import FETCHERS

# The pauses between tries: what is cured in a minute and a half is not told to anybody but the log.
PAUSES_S = (5.0, 20.0, 60.0)
# What the job's own interpreter finds its modules by; the tools have interpreters of their own.
_OF_THE_JOB = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
_T = TypeVar("_T")
_CREDENTIALS = re.compile(
    r"AccessDenied|Access Denied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken|Forbidden|"
    r"Unable to locate credentials|config profile|NoCredential|no credentials|Unauthorized|gated|Invalid user token|"
    r"StatusCode: 40[13]\b|\((?:401|403)\)|40[13] Client Error|password",
    re.IGNORECASE,
)
_NOT_THERE = re.compile(
    r"NoSuchBucket|NoSuchKey|directory not found|object not found|section in config|couldn't find remote|"
    r"(?:Repository|Revision|Entry) ?Not ?Found|\(404\)|404 Client Error|No such file|does not exist",
    re.IGNORECASE,
)
_OUT_OF_REACH = re.compile(
    r"connection refused|Connection reset|Could not connect|Name or service not known|no such host|Errno -[235]\b|"
    r"timed? ?out|Temporary failure|Max retries|Network is unreachable|No route to host|unexpected EOF|broken pipe",
    re.IGNORECASE,
)
_USAGE = re.compile(r"unknown (?:flag|option|command|shorthand)|^usage:|No such option|Invalid (?:bucket|choice)", re.M)


def fetch(wanted: Fetch, growing: str, shop: Workshop) -> Dict[str, Any]:
    """Fetch it into the folder `growing`; what is to be remembered of it. Raises `SetupFailed`, `NoRoom`, `OSError`."""
    tool = fetch_tools.tool(wanted, _program(wanted, shop))
    env = {name: value for name, value in shop.env.items() if name not in _OF_THE_JOB}
    shop.env = dict(env, **tool.env)
    listing = _tried(wanted, shop, lambda: tool.listing(shop))
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

    return _tried(wanted, shop, copied)


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


def _tried(wanted: Fetch, shop: Workshop, deed: Callable[[], _T]) -> _T:
    """What `deed` gives, tried again after a pause when it fails for a reason that may pass."""
    pauses: Tuple[Optional[float], ...] = PAUSES_S + (None,)
    for pause_s in pauses:
        try:
            return deed()
        except ToolFailed as error:
            if install_faults.is_full(error.said) or "too big for remaining disk space" in error.said:
                raise NoRoom(error.why) from error
            if pause_s is None or (not error.passing and _lasts(error.said)):
                raise SetupFailed("input %s: %s%s" % (wanted.input, error.why, _help(wanted, error.said))) from error
            wait_s = hooks.number("FETCH_PAUSE_MS", int(pause_s * 1000)) / 1000.0
            shop.say("input %s: %s; trying again in %d s" % (wanted.input, error.why, wait_s))
            time.sleep(min(wait_s, shop.left_s("fetching input %s" % wanted.input)))
    raise AssertionError("the last try gives or raises")


def _lasts(said: str) -> bool:
    # What is not reached may be called not found.
    return not _OUT_OF_REACH.search(said) and any(one.search(said) for one in (_CREDENTIALS, _NOT_THERE, _USAGE))


def _help(wanted: Fetch, said: str) -> str:
    ways: Tuple[Tuple[Pattern[str], str], ...] = (
        (_OUT_OF_REACH, "this host does not reach it: look at the address, or name its proxy in env of machines.yaml"),
        (_CREDENTIALS, FETCHERS[wanted.tool].login),
        (_NOT_THERE, "look at the address %s" % wanted.address),
    )
    return next(("; " + way for pattern, way in ways if pattern.search(said)), "")


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
