"""Files of a verified upload, copied to a folder of the client's machine by a tool that is there.

It runs as `boot.py back` on the client: a line of JSON on stdin (`Back`, and descriptors that it may use), the answer
(`Brought`) on one of those, what the tools say on stdout. When stdin ends, the client is gone and its tool is ended.
It hashes nothing: who asked compares all of it with the manifest.
"""

import os
import signal
import sys
from typing import TYPE_CHECKING, Callable, Dict, List, Protocol

from aicrun.agent import fetch_check, later, tool_tries
from aicrun.agent.build import SetupFailed, Workshop
from aicrun.agent.fetch_run import NoRoom, ToolFailed, run
from aicrun.agent.fetch_tools import Hf
from aicrun.agent.machine import program
from aicrun.agent.outputs import MANIFEST
from aicrun.agent.ssh_store import PARTIAL, Rsync
from aicrun.agent.targets import CannotUpload
from aicrun.agent.tool_tries import OF_THE_JOB, Errand
from aicrun.agent.transfer_tools import AwsCli, RcloneCli
from aicrun.wire import fetch as wire
from aicrun.wire.codec import dump, from_json, load
from aicrun.wire.fetch import Back, Brought, Fetch
from aicrun.wire.jobs import Upload
from aicrun.wire.tools import CARRIED_BY, FETCHERS

if TYPE_CHECKING:
    import threading
else:
    threading = later.module("threading")

# A person sits and waits: what is not cured in half a minute is told.
PAUSES_S = (2.0, 8.0, 20.0)
# Of what is asked first: a target that is not reached is told soon.
FIRST_PAUSES_S = (1.0,)
LIMIT_S = 7 * 24 * 3600.0
GONE = 130

LOGINS: Dict[str, str] = {
    "aws": "aws configure here, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment",
    "rclone": "rclone config here; for s3:// also AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment",
    "hf": "hf auth login here, or HF_TOKEN in the environment",
    "rsync": "ssh here must come there without a question: a key, or an agent that holds it",
}
REACH = "this machine does not reach it: look at the address and at the proxy"


class From(Protocol):
    """A target as one tool reads it; `env` is added to what the tool finds. Paths are relative, with `/`."""

    env: Dict[str, str]

    def folder(self, path: str, place: str) -> List[str]:
        """The command that copies all below `path` into the folder `place` and leaves alone what is there already."""

    def file(self, path: str, place: str) -> List[str]:
        """The command that copies one file to `place`."""

    def manifests(self, place: str) -> List[str]:
        """The command that copies each manifest of the folders there, and nothing else."""

    def arriving(self, place: str) -> str:
        """Where a file lies that was copied for `place`."""


def main() -> int:
    """Do what the line on stdin asks for; 0 once it is answered."""
    asked = load(sys.stdin.buffer.readline())
    back, answer = from_json(Back, asked["back"]), int(asked["answer"])
    env = {name: value for name, value in os.environ.items() if name not in OF_THE_JOB}
    shop = Workshop(env, LIMIT_S, "the time for a fetch")
    # The lock of whoever asked: as long as a tool of ours writes there, no other fetch may.
    shop.held = tuple(int(one) for one in asked["held"])
    threading.Thread(target=_end_with_client, args=(shop,), daemon=True).start()
    raw = dump(brought(back, shop))
    while raw:
        raw = raw[os.write(answer, raw) :]
    return 0


def brought(back: Back, shop: Workshop) -> Brought:
    """Copy it all; what hinders is told in the answer, never raised."""
    folders = shop.env.get("PATH", "").split(os.pathsep)
    lacking = {
        name: [one for one in (name, *CARRIED_BY.get(name, ())) if not program(one, folders)] for name in back.tools
    }
    tool = next((name for name in back.tools if not lacking[name]), "")
    if not tool:
        names = [name for missing in lacking.values() for name in missing]
        ways = "; ".join("%s: %s" % (name, FETCHERS[name].get) for name in names if name in FETCHERS)
        words = (" or ".join(names), "; " + ways if ways else "")
        return Brought(fault=wire.NO_TOOL, why="there is no %s on this machine%s" % words)
    try:
        source = reader(back, tool, program(tool, folders))
    except CannotUpload as error:
        return Brought(tool, wire.FAILED, str(error))
    shop.env = dict(shop.env, **source.env)
    said: List[str] = []

    def tried() -> None:
        try:
            _copied(back, source, shop)
        except ToolFailed as error:
            said.append(error.said)
            raise

    try:
        os.makedirs(back.to, exist_ok=True)
        pauses_s = FIRST_PAUSES_S if back.manifests or back.files == (MANIFEST,) else PAUSES_S
        tool_tries.tried(Errand(back.subject, back.address, LOGINS.get(tool, ""), pauses_s, REACH), shop, tried)
    except NoRoom as error:
        return Brought(tool, wire.NO_ROOM, str(error))
    except SetupFailed as error:
        is_missing = bool(said) and tool_tries.is_missing(said[-1])
        return Brought(tool, wire.NOT_THERE if is_missing else wire.FAILED, str(error))
    except OSError as error:
        return Brought(tool, wire.FAILED, "%s: %s" % (error.filename or back.to, error.strerror))
    return Brought(tool)


def reader(back: Back, tool: str, path: str) -> From:
    """The target of `back` for its tool, whose program lies at `path`."""
    kinds: Dict[str, Callable[[Back, str], From]] = {"aws": Aws, "rclone": Rclone, "hf": FromHub, "rsync": FromSsh}
    return kinds[tool](back, path)


def _copied(back: Back, source: From, shop: Workshop) -> None:
    if back.manifests:
        run(source.manifests(back.to), shop, back.subject)
    for path in back.folders:
        run(source.folder(path, os.path.join(back.to, path)), shop, back.subject)
    for path in back.files:
        place = os.path.join(back.to, path)
        if not os.path.lexists(place):
            os.makedirs(os.path.dirname(place), exist_ok=True)
            run(source.file(path, place), shop, back.subject)
            if not os.path.lexists(source.arriving(place)):
                # Some servers know no folders, so that nothing is no fault to the tool.
                raise ToolFailed("%s is not there" % path, "object not found")
    if isinstance(source, FromHub):
        source.put_in_place(back, shop)


def _end_with_client(shop: Workshop) -> None:
    # Nothing more is sent: this returns when the client's end of the pipe is closed.
    sys.stdin.buffer.read()
    if shop.running:
        try:
            os.killpg(shop.running, signal.SIGKILL)
        except ProcessLookupError:
            pass
    os._exit(GONE)


class Aws:
    """A target `s3://bucket/prefix/` with the AWS command line."""

    def __init__(self, back: Back, path: str) -> None:
        bucket, _, key = back.address[len("s3://") :].partition("/")
        self._prefix = key.rstrip("/") + "/" if key.strip("/") else ""
        self._cli = AwsCli(path, bucket, back.endpoint, back.profile)
        self.env = self._cli.env

    def folder(self, path: str, place: str) -> List[str]:
        """`s3 sync`."""
        return self._cli.s3("sync", "--no-progress", self._cli.address(self._prefix + path + "/"), place)

    def file(self, path: str, place: str) -> List[str]:
        """`s3 cp`."""
        return self._cli.s3("cp", "--no-progress", self._cli.address(self._prefix + path), place)

    def manifests(self, place: str) -> List[str]:
        """`s3 sync` of all names that end so."""
        some = ["--exclude", "*", "--include", "*/" + MANIFEST]
        return self._cli.s3("sync", "--no-progress", *some, self._cli.address(self._prefix), place)

    def arriving(self, place: str) -> str:
        """In its place."""
        return place


class Rclone:
    """A target `s3://…` or `rclone:remote:path` with rclone."""

    def __init__(self, back: Back, path: str) -> None:
        self._cli = RcloneCli(path)
        if back.scheme == "s3":
            self._remote = self._cli.on_s3(back.address, back.endpoint, back.profile)
        else:
            self._remote = back.address[len("rclone:") :]
        # How far it is, is told by the disk.
        self.env = dict(self._cli.env, RCLONE_LOCAL_NO_PREALLOCATE="true")

    def folder(self, path: str, place: str) -> List[str]:
        """`copy`."""
        return self._cli.many("copy", self._at(path), place)

    def file(self, path: str, place: str) -> List[str]:
        """`copyto`."""
        return self._cli.many("copyto", self._at(path), place)

    def manifests(self, place: str) -> List[str]:
        """`copy` of those one folder down."""
        return self._cli.many("copy", "--max-depth", "2", "--include", "/*/" + MANIFEST, self._remote, place)

    def arriving(self, place: str) -> str:
        """In its place."""
        return place

    def _at(self, path: str) -> str:
        return self._remote + ("" if self._remote.endswith((":", "/")) else "/") + path


class FromSsh(Rsync):
    """A target `ssh://[user@]host[:port]/path` with rsync, over the ssh of whoever asks."""

    def __init__(self, back: Back, path: str) -> None:
        super().__init__(Upload(back.address, back.scheme, back.address), path)

    def folder(self, path: str, place: str) -> List[str]:
        """With the times there, by which the next call knows what is whole; what was cut waits in a folder."""
        return self._from(self.source(path + "/"), place + "/")

    def file(self, path: str, place: str) -> List[str]:
        """The one file."""
        return self._from(self.source(path), place)

    def manifests(self, place: str) -> List[str]:
        """Those one folder down."""
        some = ("--include=/*/", "--include=/*/" + MANIFEST, "--exclude=*", "--prune-empty-dirs")
        return self._from(self.source(""), place + "/", *some)

    def arriving(self, place: str) -> str:
        """In its place."""
        return place

    def _from(self, there: str, here: str, *some: str) -> List[str]:
        # Links there are somebody else's: what was uploaded are files.
        return [*self._base, "-r", "-t", "--partial-dir=" + PARTIAL, *some, "--", there, here]


class FromHub:
    """A target `hf:[datasets/]owner/name[/path]` with the tool of the hub."""

    def __init__(self, back: Back, path: str) -> None:
        self._back, self._path = back, path
        self.env = self._hub("").env

    def folder(self, path: str, place: str) -> List[str]:
        """`download` of all below the path."""
        return self._hub(path).copying(place, None)

    def file(self, path: str, place: str) -> List[str]:
        """`download` of the one file."""
        return self._hub(path).copying(place, None)

    def manifests(self, place: str) -> List[str]:
        """`download` of all names that end so."""
        return [*self._hub("").copying(place, None), "--include", "*/" + MANIFEST]

    def arriving(self, place: str) -> str:
        """Beside its place."""
        return self._hub(os.path.basename(place)).scratch(place)

    def put_in_place(self, back: Back, shop: Workshop) -> None:
        """What was downloaded beside its place, checked by the hashes that the hub tells, under its own name."""
        for path in back.folders + back.files:
            place = os.path.join(back.to, path)
            if not os.path.lexists(place):
                looked = fetch_check.settled(self._hub(path), place, None, shop)
                if looked.faults:
                    raise ToolFailed("%s came otherwise than listed" % looked.faults[0], passing=True)

    def _hub(self, path: str) -> Hf:
        top, _, revision = self._back.address.partition("@")
        address = "/".join(part for part in (top.rstrip("/"), path) if part)
        return Hf(Fetch("", "", "", "", "hf", address, revision=revision), self._path)
