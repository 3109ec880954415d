"""A target `ssh://[user@]host[:port]/path`: rsync over this host's own ssh, with its configuration and its keys.

Nobody is there to be asked: ssh runs in batch mode, and a host key that is not known is refused. No name reaches a
shell on the far side. It must not decide what is sent.
"""

import os
import re
import shlex
from typing import Dict, FrozenSet, List, NamedTuple

from aicrun.agent.build import Workshop
from aicrun.agent.fetch_run import ToolFailed, run
from aicrun.agent.targets import CannotUpload
from aicrun.agent.transfer_tools import Remote
from aicrun.wire.jobs import Upload

_DOING = "asking what lies at the upload target"
# As the grammar has it, once more after placeholders were filled: what begins with `-` would be an option of ssh.
_ADDRESS = re.compile(r"ssh://(?:(\w[\w.-]*)@)?(\w[\w.-]*|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?/(\S+)\Z", re.ASCII)
# Where a cut file waits to be gone on with, in the folder it belongs to.
PARTIAL = ".aicrun-partial"
_LISTED = re.compile(r"-\S+ +([\d,.]+) (\d{4}/\d\d/\d\d \d\d:\d\d:\d\d) (.*)\Z")
_ESCAPE = re.compile(rb"\\#(\d{3})")
# `.f` and nothing changed but what is not compared (times, owners): the bytes are the same.
_SAME = re.compile(r"\.f[. ][^/]*/")
# A dead connection is noticed; one that somebody else has open already may be used, none is left open.
_SSH = (
    *("ssh", "-T", "-x", "-a", "-oBatchMode=yes", "-oStrictHostKeyChecking=yes", "-oUpdateHostKeys=no"),
    *("-oConnectTimeout=30", "-oServerAliveInterval=30", "-oServerAliveCountMax=4", "-oClearAllForwardings=yes"),
    *("-oControlMaster=no", "-oRemoteCommand=none", "-oPermitLocalCommand=no"),
)


class Place(NamedTuple):
    """A folder behind ssh: `login` is `[user@]host`, `port` empty for the configuration's, `path` as it is there."""

    login: str
    port: str
    path: str


def place(address: str) -> Place:
    """The place that `ssh://…` names, `/~/` being the account's home; raises `CannotUpload` for what is none."""
    found = _ADDRESS.match(address)
    if found is None:
        raise CannotUpload("%s is no address of the form ssh://user@host:port/path" % address)
    user, host, port, path = found.groups()
    login = "%s@%s" % (user, host) if user else host
    return Place(login, port or "", path[2:] if path.startswith("~/") else "/" + path)


def absent(upload: Upload) -> str:
    """What to do where the folder of the target is not there: all but its last one must be."""
    there = place(upload.destination)
    above = os.path.dirname(there.path.rstrip("/"))
    port = "-p %s " % there.port if there.port else ""
    far = shlex.quote("mkdir -p %s" % shlex.quote(above)) if above else "true"
    return "the folder above must be there: ssh %s%s %s" % (port, there.login, far)


# Without one of these a name is taken as it is, backslashes too.
_MATCHES = re.compile(r"[\[*?]")


def literal(path: str) -> str:
    """A path as rsync takes it by its characters: where its far side reads files it matches names, with `-s` too."""
    return re.sub(r"([\\[*?])", r"\\\1", path) if _MATCHES.search(path) else path


class Rsync:
    """A target `ssh://…` with rsync at `path`."""

    compares, any_name, makes = True, True, False
    proof = "read again there"

    def __init__(self, upload: Upload, path: str) -> None:
        there = place(upload.destination)
        words = _SSH + (("-p", there.port) if there.port else ())
        # Names stay data.
        self._base = [path, "-s", "-e", " ".join(words)]
        self._there = "%s:%s/" % (there.login, there.path.rstrip("/"))
        self._where = there
        self.env: Dict[str, str] = {}

    def listing(self, shop: Workshop, name: str = "") -> Dict[str, Remote]:
        """All regular files below the path, or the one of that name; each with the time it was written."""
        some = self._only(name) if name else ["--exclude=%s/" % PARTIAL]
        argv = [*self._base, "-8", "--list-only", "-r", "--no-h", *some, "--", self.source("")]
        try:
            said = run(argv, shop, _DOING, captures=True)
        except ToolFailed as error:
            if "No such file or directory" in error.said and ("change_dir" in error.said or "link_stat" in error.said):
                shop.say("nothing lies there yet")
                return {}
            raise
        rows = (_LISTED.match(line) for line in said.decode("utf-8", "surrogateescape").split("\n"))
        found = (Remote(_name(row[3]), int(re.sub(r"\D", "", row[1])), stamp=row[2]) for row in rows if row)
        return {one.path: one for one in found}

    def source(self, path: str) -> str:
        """The argument that names `path` below the target, to be read: that alone, whatever lies beside it."""
        return "%s:%s" % (self._where.login, literal(self._where.path.rstrip("/") + "/" + path))

    def sending(self, folder: str) -> List[str]:
        """Everything anew, whatever lies there; what was cut off is gone on with, and checked as a whole by rsync."""
        told = "--out-format=%n (%l bytes, sent %b)"
        return self._over("--ignore-times", "--partial-dir=" + PARTIAL, told, "--", folder + "/", self._there)

    def putting(self, path: str, name: str) -> List[str]:
        """The one file, whose own name must be `name`, out of its folder."""
        here, own = os.path.split(path)
        if own != name:
            raise ValueError("a file goes under its own name: %s" % path)
        return self._over("--ignore-times", *self._only(name), "--", here + "/", self._there)

    def remove(self, name: str, shop: Workshop, doing: str) -> None:
        """What is missing here is removed there: a name that no process file has."""
        run([*self._base, "--delete-missing-args", "--", "/proc/" + name, self._there], shop, doing)

    def is_opaque(self, name: str, shop: Workshop) -> bool:
        """Never: it tells no MD5."""
        del name, shop
        return False

    def alike(self, folder: str, shop: Workshop) -> FrozenSet[str]:
        """What lies below `folder` and there byte for byte: both sides read their files and compare the hashes."""
        argv = self._over("-8", "--checksum", "--dry-run", "-ii", "--out-format=%i/%n", "--", folder + "/", self._there)
        said = run(argv, shop, "comparing what lies at the upload target", captures=True)
        lines = said.decode("utf-8", "surrogateescape").split("\n")
        return frozenset(_name(line.partition("/")[2]) for line in lines if _SAME.match(line))

    def _over(self, *words: str) -> List[str]:
        # Links are followed; owners, times and modes are the far side's.
        return [*self._base, "-r", "-L", *words]

    def _only(self, name: str) -> List[str]:
        return ["--include=/" + re.sub(r"([\\\[*?])", r"\\\1", name), "--exclude=*"]


def _name(told: str) -> str:
    """A name as rsync tells it, its escapes undone."""
    raw = told.encode("utf-8", "surrogateescape")
    return _ESCAPE.sub(lambda found: bytes([int(found.group(1), 8) & 255]), raw).decode("utf-8", "surrogateescape")
