"""What a tool of the host could not do is tried again after a pause, unless it will not pass: then a help is told.

For inputs and uploads alike. It must not know what is fetched or sent, nor run anything by itself.
"""

import re
import time
from typing import Callable, NamedTuple, Optional, Pattern, Tuple, TypeVar

from aicrun.agent import hooks, install_faults
from aicrun.agent.build import SetupFailed, Workshop
from aicrun.agent.fetch_run import NoRoom, ToolFailed

# The pauses between tries: what is cured in a minute and a half is not told to anybody but the log.
PAUSES_S = (5.0, 20.0, 60.0)
# What the job's own interpreter finds its modules by; the tools have interpreters of their own.
OF_THE_JOB = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
_T = TypeVar("_T")
_CREDENTIALS = re.compile(
    r"AccessDenied|Access Denied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken|Forbidden|"
    r"Unable to locate credentials|config profile|NoCredential|no credentials|Unauthorized|gated|Invalid user token|"
    r"StatusCode: 40[13]\b|\((?:401|403)\)|40[13] Client Error|password|Permission denied \((?:public|keyb|gss|host)|"
    r"Too many authentication failures",
    re.IGNORECASE,
)
_HOST_KEY = re.compile(r"Host key verification failed|host key is known for|REMOTE HOST IDENTIFICATION HAS CHANGED")
_NOT_ALLOWED = re.compile(r"Permission denied \(13\)|Operation not permitted \(1\)|Read-only file system \(30\)")
_FAR_TOOL = re.compile(r"rsync: (?:command )?not found|remote command not found|is your shell clean")
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
_LASTING = (_CREDENTIALS, _NOT_THERE, _USAGE, _HOST_KEY, _NOT_ALLOWED, _FAR_TOOL)


class Errand(NamedTuple):
    """What is done, in the words of a message; the address; how the tool gets credentials; seconds between tries.

    `reach` is what a person may do where the address cannot be reached, `absent` where it is not there, when that is
    more than to look at it.
    `renews`: the credentials lie in files of the account, and what they lack may be there at the next try.
    """

    subject: str
    address: str
    login: str
    pauses_s: Tuple[float, ...]
    reach: str = "this host does not reach it: look at the address, or name its proxy in env of machines.yaml"
    renews: bool = False
    absent: str = ""


def tried(errand: Errand, shop: Workshop, deed: Callable[[], _T]) -> _T:
    """What `deed` gives, tried again after a pause when it fails for a reason that may pass.

    Raises `NoRoom`, and `SetupFailed` with a help for a failure that lasts.
    """
    pauses: Tuple[Optional[float], ...] = errand.pauses_s + (None,)
    for pause_s in pauses:
        try:
            return deed()
        except ToolFailed as error:
            if install_faults.is_full(error.said) or "too big for remaining disk space" in error.said:
                raise NoRoom(error.why) from error
            if pause_s is None or (not error.passing and lasts(error.said, errand.renews)):
                raise SetupFailed("%s: %s%s" % (errand.subject, error.why, help_for(errand, error.said))) from error
            wait_s = hooks.number("FETCH_PAUSE_MS", int(pause_s * 1000)) / 1000.0
            shop.say("%s: %s; trying again in %d s" % (errand.subject, error.why, wait_s))
            time.sleep(min(wait_s, shop.left_s("waiting to try again: %s" % errand.subject)))
    raise AssertionError("the last try gives or raises")


def lasts(said: str, renews: bool = False) -> bool:
    """True when what a tool said in its last words will not pass by itself."""
    # What is not reached may be called not found.
    if _OUT_OF_REACH.search(said):
        return False
    if renews and _CREDENTIALS.search(said):
        return False
    return any(one.search(said) for one in _LASTING)


def help_for(errand: Errand, said: str) -> str:
    """What a person may do about it, as the end of a sentence; empty when nothing is known."""
    ways: Tuple[Tuple[Pattern[str], str], ...] = (
        (_OUT_OF_REACH, errand.reach),
        (_HOST_KEY, "this host does not know that key: compare it, then take it with one ssh there by hand"),
        (_CREDENTIALS, errand.login),
        (_NOT_ALLOWED, "that account may not write there"),
        (_FAR_TOOL, "the far side needs an rsync, and start files of its account that print nothing"),
        (_NOT_THERE, errand.absent or "look at the address %s" % errand.address),
    )
    return next(("; " + way for pattern, way in ways if pattern.search(said)), "")


def is_missing(said: str) -> bool:
    """True when the tool says that what it was asked for is not there."""
    return not _OUT_OF_REACH.search(said) and _NOT_THERE.search(said) is not None
