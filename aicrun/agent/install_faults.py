"""What a person may do about a setup whose program failed, from what that said last. Pure text.

Words are looked for from the certain to the vague. It must not decide whether something failed, nor ask the disk or the
network: what failed has passed, and may look otherwise now.
"""

import errno
import os
import re
from typing import Callable, Pattern, Tuple

from aicrun.wire.jobs import Setup

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_FULL = re.compile(r"No space left on device|Disk quota exceeded|os error 28\b|os error 122\b")
_FULL_AT = re.compile(
    r"(?:to|file|directory) [`']?(/[^`'\n]+?)[`']?: (?:No space left|Disk quota)|"
    r'(?:No space left|Disk quota)[^\n]* at path "(/[^"\n]+)"'
)
_LACKS = re.compile(
    r"not found in the provided package locations|there is no version of|is available|no usable wheels|find-links"
)
_LOGIN = re.compile(r"\b(?:401|403)\b|authentication credentials")
_CUT_OFF = re.compile(
    r"error decoding response body|request or response body error|end of file before message length|"
    r"Failed to read from zip file|invalid package format|[Uu]nexpected (?:end of file|EOF)|Failed to extract|"
    r"Connection reset by peer|connection closed before message completed"
)
_GONE = re.compile(r"HTTP status client error \((?:404|410)\b")
_BROKEN = re.compile(r"HTTP status (?:server|client) error \(((?:5\d\d|429)\b[^)\n]*)\)")
_CERTIFICATE = re.compile(r"invalid peer certificate")
_OTHER_PYTHON = re.compile(r"requires Python [<>=!~]|matching Python ABI tag|current Python version")
_NOT_THERE = re.compile(r"was not found in the package registry|there are no versions of")
_SILENT = re.compile(r"operation timed out")
_NO_INDEX = re.compile(r"error sending request|dns error|tcp connect error|Network connectivity is disabled")


def is_full(said: str) -> bool:
    """Whether a disk had no room, no inode or no quota left."""
    return bool(_FULL.search(said))


def make_room(place: str) -> str:
    """What to do about a disk that is full at `place`."""
    return "the disk is full at %s: free some room there (df -h and df -i tell), and apply again" % place


def way_out(setup: Setup, said: str) -> str:
    """What to do about an end of uv that said this last; empty when nothing more is known than it said itself."""
    if is_full(said):
        return _room(setup, said)
    if setup.wheels and _LACKS.search(said):
        return "put what is missing into %s (pip download on a machine with internet), and apply again" % setup.wheels
    return next((words(setup, said) for pattern, words in _WAYS if pattern.search(said)), "")


def _room(setup: Setup, said: str) -> str:
    folder, found = os.path.dirname(setup.path), _FULL_AT.findall(said)
    place = next((one for one in found[-1] if one), "") if found else ""
    if place and not place.startswith(folder + "/"):
        return make_room(os.path.dirname(place))
    return "the disk is full: free some room below %s, or name another data volume, and apply again" % folder


def _login(_setup: Setup, _said: str) -> str:
    return "the index wants a login: setup.index: NAME=https://…, and secrets UV_INDEX_NAME_PASSWORD for: setup"


def _cut_off(_setup: Setup, _said: str) -> str:
    return "an index broke off half-way, and nothing of it is kept: apply again"


def _gone(setup: Setup, _said: str) -> str:
    if setup.lock or setup.project:
        return "the lock names a file that is not there any more: make it anew (uv lock), and apply again"
    return "the index names a file that it has not got: apply again later, or name another one in setup.index"


def _broken(_setup: Setup, said: str) -> str:
    found = _BROKEN.search(said)
    told = found.group(1) if found else ""
    return "the index answers, with a fault of its own (%s): apply again later, or name another in setup.index" % told


def _certificate(_setup: Setup, _said: str) -> str:
    return (
        "this host does not trust the index's certificate: add its authority to those of the host, or name the file "
        "that holds it, SSL_CERT_FILE in env of machines.yaml"
    )


def _other_python(_setup: Setup, _said: str) -> str:
    return "a package is made for other Pythons: name those that it admits in setup.python, and apply again"


def _not_there(_setup: Setup, _said: str) -> str:
    return "no index that was asked has a package of this name: look at its spelling, or name the index in setup.index"


def _no_index(_setup: Setup, said: str) -> str:
    what = "the index gives no answer in time" if _SILENT.search(said) else "this host does not reach the index"
    return (
        "%s: name one that it reaches in setup.index, its proxy in env of machines.yaml, or a folder of wheels on it "
        "in setup.wheels" % what
    )


_WAYS: Tuple[Tuple[Pattern[str], Callable[[Setup, str], str]], ...] = (
    (_LOGIN, _login),
    (_CUT_OFF, _cut_off),
    (_GONE, _gone),
    (_BROKEN, _broken),
    (_CERTIFICATE, _certificate),
    (_OTHER_PYTHON, _other_python),
    (_NOT_THERE, _not_there),
    (_NO_INDEX, _no_index),
)
