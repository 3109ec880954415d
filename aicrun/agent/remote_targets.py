"""Uploads that a tool of the host carries: it sends in bulk, then the target is listed and compared.

The tool's exit code is never believed: every size, and every hash that the target tells, is. It must not know how a
tool is spoken to (see `remote_tools.py`).
"""

import os
import stat
import time
from functools import partial
from typing import TYPE_CHECKING, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple, TypeVar

from aicrun.agent import fetch_check, later, tool_tries
from aicrun.agent.build import SetupFailed, Workshop
from aicrun.agent.fetch_run import NoRoom, ToolFailed, run
from aicrun.agent.finding import counted
from aicrun.agent.machine import program
from aicrun.agent.outputs import MANIFEST, Output, printable
from aicrun.agent.remote_tools import Store, absent, store
from aicrun.agent.targets import CannotUpload, Sent, Told
from aicrun.agent.tool_tries import OF_THE_JOB, Errand
from aicrun.agent.transfer_tools import Remote
from aicrun.wire.jobs import Upload
from aicrun.wire.tools import CARRIED_BY, FETCHERS

if TYPE_CHECKING:
    import hashlib
    import shutil
else:
    hashlib, shutil = later.module("hashlib"), later.module("shutil")

# Nobody waits at a card meanwhile: what is cured within ten minutes costs no second upload.
PAUSES_S = (5.0, 20.0, 60.0, 180.0, 300.0)
LIMIT_S = 7 * 24 * 3600.0
_CHUNK = 1024 * 1024
# Keys that came with the run: nobody can renew them here. All others lie in files of the account.
GIVEN_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN")
_TRIES = 3
_PAUSE_S = 0.5
_T = TypeVar("_T")


class _Item(NamedTuple):
    """One file as it was read: `md5` is empty where this host cannot tell it."""

    sent: Sent
    source: str
    md5: str


def workshop(upload: Upload, env: Mapping[str, str], limit_s: float, limit: str) -> Tuple[Store, Workshop]:
    """The target for its tool, and where that runs; raises `CannotUpload` where the tool is not on this host."""
    places = env.get("PATH", "").split(os.pathsep)
    for tool in (upload.tool, *CARRIED_BY.get(upload.tool, ())):
        if not program(tool, places):
            words = (tool, FETCHERS[tool].get if tool in FETCHERS else "install it there")
            raise CannotUpload("there is no %s on this host: %s" % words)
    own = {name: value for name, value in env.items() if name not in OF_THE_JOB}
    made = store(upload, program(upload.tool, places), own)
    return made, Workshop(dict(own, **made.env), limit_s, limit)


def errand(upload: Upload, subject: str, pauses_s: Tuple[float, ...]) -> Errand:
    """What is tried, for `tool_tries`; a failure for want of credentials names the step that they are for."""
    login = FETCHERS[upload.tool].login % "upload"
    return Errand(subject, upload.destination, login, pauses_s, absent=absent(upload))


class RemoteTarget:
    """A target that a tool of this host writes to; `scratch` is a folder of our own, made and removed here."""

    def __init__(
        self, upload: Upload, scratch: str, env: Mapping[str, str], pauses_s: Tuple[float, ...] = PAUSES_S
    ) -> None:
        self._upload = upload
        self._scratch = scratch
        self._pauses_s = pauses_s
        self._tree = os.path.join(scratch, "tree")
        self._store, self._shop = workshop(upload, env, LIMIT_S, "the upload's limit")
        self._items: List[_Item] = []
        self._first: Dict[str, Remote] = {}
        self._wrong: List[str] = []
        # What the tool has compared, as it was listed just before.
        self._alike: Dict[str, Remote] = {}
        # A list that nothing of ours has changed since; whether a file has the MD5 that is told, for it is read whole.
        self._latest: Optional[Dict[str, Remote]] = None
        self._proven: Dict[Tuple[str, str], Optional[bool]] = {}
        self._told: Dict[str, Told] = {}

    def begin(self, source: str, keeps: bool = False) -> None:
        """See what lies there; raises `CannotUpload`.

        An older manifest goes first, unless it `keeps` true: from now on the target is not what it says.
        """
        del source
        self._first = self._latest = self._tried(lambda: self._store.listing(self._shop))
        if MANIFEST in self._first and not keeps:
            try:
                self._store.remove(MANIFEST, self._shop, "removing an older manifest")
            except ToolFailed as error:
                # It is written over at the end; where nothing may be removed, it stays until then.
                self._shop.say("the older manifest stays until the new one is written: %s" % error.why)

    def send(self, output: Output) -> Sent:
        """Read a file for its hashes; it is sent with all others. Raises `CannotUpload` when it keeps changing."""
        if not self._store.any_name and printable(output.path) != output.path:
            raise CannotUpload("its name is no UTF-8, so that it cannot be kept there")
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_PAUSE_S)
            item = _read(output, self._upload.tool == "rclone")
            if item is not None:
                self._items.append(item)
                return item.sent
        raise CannotUpload("it changed each time it was read")

    def deliver(self) -> Tuple[str, ...]:
        """Send what does not lie there whole, again when it fails; what is wrong there after all."""
        try:
            self._tried(self._round)
        except CannotUpload as error:
            if not self._wrong:
                raise CannotUpload(str(error), self._lacking()) from error
        finally:
            self._clear()
        return tuple(self._wrong)

    def finish(self, manifest: bytes) -> None:
        """Put the manifest there, after everything else."""
        argv = self._store.putting(self._written(manifest), MANIFEST)
        try:
            self._tried(lambda: run(argv, self._shop, "sending the manifest"))
        finally:
            self._clear()

    def faults(self, sent: Tuple[Sent, ...], manifest: bytes = b"") -> Tuple[str, ...]:
        """List the target and compare every size and every hash that it tells; of what was not sent, the sizes."""
        listing = self._tried(partial(self._listing, MANIFEST if manifest and not sent else ""))
        of_manifest = Sent(MANIFEST, len(manifest), hashlib.sha256(manifest).hexdigest())
        known = {item.sent.path: item for item in self._items}
        items = [known.get(one.path) or _Item(one, "", "") for one in sent]
        items += [_Item(of_manifest, self._written(manifest), _md5(manifest))] if manifest else []
        try:
            self._tried(partial(self._compare, items, listing))
            found = [self._tried(partial(self._fault, item, listing)) for item in items]
        finally:
            self._clear()
        for item, (_, is_proven) in zip(items, found):
            self._told[item.sent.path] = Told(_mark(listing.get(item.sent.path)), is_proven)
        wrong = tuple(why for why, _ in found if why)
        if not wrong:
            hashed = sum(is_proven for _, is_proven in found)
            words = (hashed, counted(len(items), "file"), self._store.proof)
            self._shop.say("the target was listed: %d of %s agree %s, all by their sizes" % words)
        return wrong

    def told(self, path: str) -> Told:
        """The hash of the list that it was compared with, also one that this host cannot make."""
        return self._told.get(path, Told("", False))

    def _listing(self, name: str = "") -> Dict[str, Remote]:
        """What lies there, or the object `name`: as it was listed just now, once, where nothing was sent since."""
        latest, self._latest = self._latest, None
        return latest if latest is not None and not name else self._store.listing(self._shop, name)

    def _round(self) -> None:
        listing = self._listing()
        self._compare(self._items, listing)
        todo = [item for item in self._items if not self._is_whole(item, listing)]
        if len(todo) < len(self._items):
            self._shop.say("%s there already" % counted(len(self._items) - len(todo), "file"))
        if not todo:
            self._wrong = []
            return
        self._stage(todo)
        argv = self._store.sending(self._tree)
        self._shop.say("sending %s: %s" % (counted(len(todo), "file"), " ".join(argv)))
        self._wrong = []
        run(argv, self._shop, "sending the checkpoints")
        listing = self._store.listing(self._shop)
        self._compare(self._items, listing)
        self._wrong = [why for why in (self._fault(item, listing)[0] for item in self._items) if why]
        self._latest = listing
        if self._wrong:
            self._latest = None
            told = "%s not there whole: %s" % (counted(len(self._wrong), "file"), self._wrong[0])
            raise ToolFailed(told, passing=True)

    def _lacking(self) -> Tuple[str, ...]:
        """What is not there whole, after the tool gave up; nothing where the target cannot be asked."""
        try:
            listing = self._store.listing(self._shop)
            self._compare(self._items, listing)
            return tuple(why for why in (self._fault(item, listing)[0] for item in self._items) if why)
        except (SetupFailed, ToolFailed):
            return ()

    def _stage(self, items: List[_Item]) -> None:
        """A folder of links to the real files, under the names that they get."""
        shutil.rmtree(self._tree, ignore_errors=True)
        os.makedirs(self._tree, mode=0o700)
        for item in items:
            place = os.path.join(self._tree, item.sent.path)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.symlink(item.source, place)

    def _written(self, manifest: bytes) -> str:
        """The manifest as a file of this host; `_clear` removes it."""
        os.makedirs(self._scratch, mode=0o700, exist_ok=True)
        path = os.path.join(self._scratch, MANIFEST)
        with open(path, "wb") as stream:
            stream.write(manifest)
        return path

    def _clear(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _compare(self, items: List[_Item], listing: Mapping[str, Remote]) -> None:
        """Have the tool compare what has the right size and was not compared as it is listed now."""
        if not self._store.compares:
            return
        there = {item.sent.path: listing.get(item.sent.path) for item in items}
        same = [one for one in items if one.source and self._has_size(one, listing)]
        todo = [one for one in same if not self._is_alike(one, listing)]
        if todo:
            self._stage(todo)
            for name in self._store.alike(self._tree, self._shop):
                remote = there.get(name)
                if remote is not None:
                    self._alike[name] = remote

    def _has_size(self, item: _Item, listing: Mapping[str, Remote]) -> bool:
        remote = listing.get(item.sent.path)
        return remote is not None and remote.size == item.sent.size

    def _is_alike(self, item: _Item, listing: Mapping[str, Remote]) -> bool:
        remote = listing.get(item.sent.path)
        return remote is not None and self._alike.get(item.sent.path) == remote

    def _is_whole(self, item: _Item, listing: Mapping[str, Remote]) -> bool:
        """True when it need not be sent: proven by its hash, or of the right size and put there since we began."""
        fault, is_proven = self._fault(item, listing)
        is_new = listing.get(item.sent.path) != self._first.get(item.sent.path)
        return not fault and (is_proven or is_new)

    def _fault(self, item: _Item, listing: Mapping[str, Remote]) -> Tuple[str, bool]:
        """(what is wrong with a file at the target, empty for nothing; whether a hash proves that it is whole)."""
        name, remote = printable(item.sent.path), listing.get(item.sent.path)
        if remote is None:
            return "%s: it is not there" % name, False
        if remote.size != item.sent.size:
            return "%s: %d bytes arrived of %d" % (name, remote.size, item.sent.size), False
        if self._store.compares:
            same = self._is_alike(item, listing)
            return ("" if same or not item.source else "%s: its contents differ" % name), same
        if remote.digest:
            agrees = _has_digest(item, remote.digest)
            return ("%s: its hash differs" % name if agrees is False else ""), agrees is True
        if "-" in remote.md5:
            # Sent in parts: the size of the parts is known to the tool alone, and tried out.
            return "", self._agrees(item, remote) is True
        if self._agrees(item, remote) is not False:
            return "", bool(self._agrees(item, remote))
        if self._store.is_opaque(item.sent.path, self._shop):
            return "", False
        return "%s: its MD5 differs" % name, False

    def _agrees(self, item: _Item, remote: Remote) -> Optional[bool]:
        """Whether a file has the MD5, or that of parts, that is told of it there; None where that cannot be said."""
        if not remote.md5 or not (item.source or item.md5):
            return None
        if item.md5 and "-" not in remote.md5:
            return remote.md5 == item.md5
        key = (item.sent.path, remote.md5)
        if key not in self._proven:
            self._proven[key] = fetch_check.has_md5(item.source, remote)
        return self._proven[key]

    def _tried(self, deed: Callable[[], _T]) -> _T:
        try:
            renews = not any(name in self._shop.env for name in GIVEN_KEYS)
            what = errand(self._upload, "the upload", self._pauses_s)._replace(renews=renews)
            return tool_tries.tried(what, self._shop, deed)
        except NoRoom as error:
            raise CannotUpload("there is no room left: %s" % error) from error
        except SetupFailed as error:
            raise CannotUpload(str(error)) from error


def _mark(remote: Optional[Remote]) -> str:
    return (remote.digest or remote.md5 or remote.stamp) if remote is not None else ""


def _read(output: Output, with_md5: bool) -> Optional[_Item]:
    """The file's size and hashes; None when it changed meanwhile.

    The MD5 costs twice as much as the rest: it is made in the same reading where the tool is one that tells it of whole
    files, else only of what is told there.
    """
    seen, md5, size = hashlib.sha256(), _md5_begun() if with_md5 else None, 0
    with open(output.source, "rb") as stream:
        before = os.fstat(stream.fileno())
        if not stat.S_ISREG(before.st_mode):
            raise CannotUpload("it is no regular file any more")
        for chunk in iter(lambda: stream.read(_CHUNK), b""):
            seen.update(chunk)
            if md5 is not None:
                md5.update(chunk)
            size += len(chunk)
            if size > before.st_size:
                # Somebody writes as fast as we read: this would not end.
                return None
        after = os.fstat(stream.fileno())
    if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns) or size != before.st_size:
        return None
    return _Item(Sent(output.path, size, seen.hexdigest()), output.source, md5.hexdigest() if md5 is not None else "")


def _md5_begun() -> "Optional[hashlib._Hash]":
    try:
        return hashlib.md5()
    except ValueError:
        # A host that forbids MD5: sizes alone are compared.
        return None


def _md5(raw: bytes) -> str:
    begun = _md5_begun()
    if begun is None:
        return ""
    begun.update(raw)
    return str(begun.hexdigest())


def _has_digest(item: _Item, digest: str) -> Optional[bool]:
    """Whether the file has the hash; None where that cannot be told here."""
    kind, _, value = digest.partition(":")
    if kind == "sha256":
        return value == item.sent.sha256
    try:
        seen = hashlib.sha1(b"blob %d\0" % item.sent.size)
        with open(item.source, "rb") as stream:
            for chunk in iter(lambda: stream.read(_CHUNK), b""):
                seen.update(chunk)
    except (OSError, ValueError):
        # It was not read by this upload, or this host forbids SHA-1.
        return None
    return value == seen.hexdigest()
