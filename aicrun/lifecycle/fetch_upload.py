"""A checkpoint out of a verified upload, for when its host is gone: the manifest there says what it must be.

A tool of this machine copies, beside the place; all of it is hashed against the manifest before it gets its name. Text
of a target is hostile: no name may lead out of the folder that a person named. It prints nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from aicrun.errors import AicrunError, TransferFailed, UsageError, Way
from aicrun.lifecycle.ledger import Uploaded
from aicrun.lifecycle.session import Session
from aicrun.lifecycle.transfer import PART, Moved, Moving, Tell, check_room, hash_of, is_below, is_there
from aicrun.wire import fetch as wire
from aicrun.wire.fetch import Back
from aicrun.wire.hashes import sha256
from aicrun.wire.jobs import Upload

MANIFEST = "aicrun-manifest.json"
MANIFEST_BYTES = 256 * 1024 * 1024
# What reads each kind of target; the one that a run's upload was made with comes first.
TOOLS = {"s3": ("aws", "rclone"), "rclone": ("rclone",), "hf": ("hf",), "ssh": ("rsync",)}
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True)
class File:
    """One file of a manifest: its path there, and what it must be."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What lies at `address`: files sorted by path, of one run; `sha256` of the manifest itself."""

    address: str
    run: str
    run_id: str
    job_id: str
    files: tuple[File, ...]
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A checkpoint of an upload: `name` as a host would tell it (`.` for the files at the top), and its files."""

    name: str
    files: tuple[File, ...]

    @property
    def bytes(self) -> int:
        """The size of all."""
        return sum(one.bytes for one in self.files)


def named(key: str, target: str, endpoint: str, profile: str) -> Uploaded:
    """The upload that a person names by its target, as run.yaml or the last line of a run writes it.

    Raises `UsageError` (AIC-E006) for what no tool of this machine reads.
    """
    scheme = target.partition(":")[0]
    if scheme not in TOOLS or ":" not in target:
        ways = (Way("write it like", f"aicrun fetch {key} --from s3://bucket/runs/"),)
        raise UsageError("AIC-E006", f"--from {target}: one of {', '.join(TOOLS)} is expected", ways=ways)
    return Uploaded(key, "", "", "", Upload(target, scheme, target, endpoint=endpoint, profile=profile))


def opened(session: Session, uploaded: Uploaded) -> Manifest:
    """The manifest that lies at an upload's target now; for one that a person named also one folder further down.

    Raises `TransferFailed` (AIC-E647) when there is none, it is of another run, or the target cannot be read.
    """
    address = uploaded.upload.destination
    _check_scheme(uploaded)
    with tempfile.TemporaryDirectory(prefix="aicrun-") as folder, _held(folder) as lock:
        subject = f"the manifest of {address} cannot be read"
        asked = _back(uploaded, subject, folder)
        try:
            _bring(session, uploaded, replace(asked, files=(MANIFEST,)), lock)
        except _NotThere:
            if uploaded.job_id:
                raise
            below = os.path.join(folder, "below")
            _bring(session, uploaded, replace(asked, to=below, manifests=True), lock)
            return _one_of(uploaded, below)
        found = _read(os.path.join(folder, MANIFEST), address)
    if uploaded.run_id and found.run_id != uploaded.run_id:
        raise _wrong(address, f"it holds run {found.run} ({found.run_id}) by now, not {uploaded.run_id}")
    if not uploaded.job_id and not _is_of(found, uploaded.run):
        raise _wrong(address, f"it holds run {found.run} ({found.run_id}), not {uploaded.run}")
    return found


def fetch(session: Session, uploaded: Uploaded, found: Manifest, part: Part, way: tuple[str, bool, Tell]) -> Moved:
    """Bring a checkpoint out of an upload; `way` is the folder it goes into, whether it replaces, and who is told.

    What was whole when an earlier call was cut off is not brought again. Raises `TransferFailed`: AIC-E020 when
    something else is there already, AIC-E645 when what arrived is not what the manifest says, AIC-E646 when it has no
    place here, AIC-E647 when it cannot be brought.
    """
    to, replaces, tell = way
    top = os.path.join(to, found.run if part.name == "." else part.name)
    base = part.name + "/" if part.files[0].path.startswith(part.name + "/") else ""
    is_file = not base and part.name != "."
    places = {one: top if is_file else os.path.join(top, one.path[len(base) :]) for one in part.files}
    missing = [one for one in part.files if not is_there(places[one], one.bytes, replaces, partial(str, one.sha256))]
    if missing:
        try:
            with _scratch(to, found, part) as (folder, lock):
                _link_same(folder, [(one, places[one]) for one in part.files if one not in missing])
                check_room(top, sum(one.bytes for one in missing) - _weight(folder, missing))
                errand = _back(uploaded, f"{part.name} cannot be fetched from {found.address}", folder, found.address)
                errand = replace(errand, folders=(part.name,)) if base else errand
                _arrived(session, uploaded, errand, (missing, part.bytes, lock, tell))
                for one in missing:
                    _put(os.path.join(folder, one.path), places[one], replaces)
        except OSError as error:
            place = error.filename or top
            ways = (Way("look at the folder", f"ls -ld {shlex.quote(to)}"), Way("and at its room", "df -h ."))
            raise TransferFailed("AIC-E646", f"{place} cannot be written here: {error.strerror}", ways=ways) from error
        finally:
            # Also of one that was cut.
            session.ledger.note_fetched(top)
    tell(Moving("", part.bytes, part.bytes))
    return Moved(top, len(part.files), part.bytes, len(part.files) - len(missing), ())


def _arrived(session: Session, uploaded: Uploaded, errand: Back, about: tuple[list[File], int, int, Tell]) -> None:
    """Copy until every file is what the manifest says: twice at most, as what came wrong is removed and asked again."""
    missing, whole_bytes, lock, tell = about
    before = whole_bytes - sum(one.bytes for one in missing)

    def tick() -> None:
        tell(Moving(errand.subject.partition(" ")[0], before + _weight(errand.to, missing), whole_bytes))

    wrong: list[str] = []
    for _ in range(2):
        files = () if errand.folders else tuple(one.path for one in missing)
        _bring(session, uploaded, replace(errand, files=files), lock, tick)
        wrong = [why for one in missing if (why := _fault(os.path.join(errand.to, one.path), one))]
        if not wrong:
            return
    ways = (Way("see what lies there", _listing_command(errand)),)
    raise TransferFailed("AIC-E645", f"{errand.address} is not what its manifest says: {wrong[0]}", ways=ways)


def _fault(path: str, wanted: File) -> str:
    """What is wrong with a file that arrived, which is gone then; empty when it is what the manifest says."""
    try:
        state = os.lstat(path)
    except FileNotFoundError:
        return f"{wanted.path} is not there"
    if stat.S_ISREG(state.st_mode) and state.st_size == wanted.bytes and hash_of(path) == wanted.sha256:
        return ""
    os.unlink(path)
    return f"{wanted.path} has another content"


def _put(arrived: str, place: str, replaces: bool) -> None:
    os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
    if replaces:
        os.replace(arrived, place)
    else:
        os.link(arrived, place)
        os.unlink(arrived)


@contextlib.contextmanager
def _scratch(to: str, found: Manifest, part: Part) -> Iterator[tuple[str, int]]:
    """The folder that a checkpoint grows in, and its lock; it stays for the next call unless all went well."""
    os.makedirs(to, exist_ok=True)
    whose = hashlib.sha256(f"{found.address}\n{part.name}".encode("utf-8", "surrogateescape")).hexdigest()
    folder = os.path.join(os.path.abspath(to), f".{whose[:16]}{PART}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with _held(folder) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Its tool may have outlived a client that was killed, for a moment.
            words = f"another fetch brings {part.name} into {to} at this moment"
            raise TransferFailed("AIC-E647", words, ways=(Way("when it has ended, the same again"),)) from None
        yield folder, lock
        shutil.rmtree(folder)


@contextlib.contextmanager
def _held(folder: str) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def _link_same(folder: str, same: list[tuple[File, str]]) -> None:
    """What lies in its place already need not be copied; where no link can be made it is, and nothing else is lost."""
    for one, place in same:
        arrived = os.path.join(folder, one.path)
        os.makedirs(os.path.dirname(arrived), exist_ok=True)
        with contextlib.suppress(OSError):
            os.link(place, arrived, follow_symlinks=False)


def _weight(folder: str, files: list[File]) -> int:
    """How much of the files lies there, also under the names that tools give to what grows."""
    most = sum(one.bytes for one in files)
    have = 0
    for above, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                state = os.lstat(os.path.join(above, name))
                have += min(state.st_size, state.st_blocks * 512) if state.st_nlink == 1 else 0
    return min(have, most)


def _bring(
    session: Session, uploaded: Uploaded, errand: Back, lock: int, tick: Callable[[], None] = lambda: None
) -> None:
    if session.fetch_back is None:
        raise TransferFailed("AIC-E647", f"{errand.subject}: nothing here fetches")
    told = session.fetch_back(errand, lock, tick)
    if not told.fault:
        return
    kind = _NotThere if told.fault == wire.NOT_THERE else TransferFailed
    words = told.why if told.fault != wire.NO_TOOL else f"{errand.subject}: {told.why}"
    facts = (("lies at", errand.address),) if told.fault == wire.NO_TOOL else ()
    look = (Way("see what lies there", _listing_command(errand)),) if told.fault != wire.NO_TOOL else ()
    back = (Way(f"when {uploaded.machine} answers again", f"aicrun fetch {uploaded.run}"),) if uploaded.machine else ()
    raise kind("AIC-E647", words, facts=facts, ways=(*look, *back))


class _NotThere(TransferFailed):
    """What was asked for does not lie at the target."""


def _listing_command(errand: Back) -> str:
    address = shlex.quote(errand.address)
    if errand.scheme == "s3":
        more = f" --endpoint-url {shlex.quote(errand.endpoint)}" if errand.endpoint else ""
        more += f" --profile {shlex.quote(errand.profile)}" if errand.profile else ""
        return f"aws s3 ls --recursive {address}{more}"
    if errand.scheme == "rclone":
        return f"rclone ls {shlex.quote(errand.address[len('rclone:') :])}"
    return ""


def _back(uploaded: Uploaded, subject: str, to: str, address: str = "") -> Back:
    upload = uploaded.upload
    usual = TOOLS[upload.scheme]
    tools = tuple(dict.fromkeys((upload.tool, *usual))) if upload.tool else usual
    where = address or upload.destination
    return Back(subject, upload.scheme, where, tools, to, upload.endpoint, upload.profile)


def _check_scheme(uploaded: Uploaded) -> None:
    upload, machine = uploaded.upload, uploaded.machine
    if upload.scheme in TOOLS:
        return
    where = f", a folder of {machine} itself" if upload.scheme == "file" else ""
    path = upload.destination.partition(":")[2]
    way = Way(f"when {machine} answers again", f"aicrun pull {machine}:{shlex.quote(path)} .")
    raise TransferFailed(
        "AIC-E647",
        f"the upload of {uploaded.run} cannot be read from here",
        facts=(("uploaded", f"{upload.destination}{where}"),),
        ways=(way,) if upload.scheme == "file" else (),
    )


def _is_of(found: Manifest, key: str) -> bool:
    return found.run == key or any(len(key) >= 4 and one.startswith(key) for one in (found.run_id, found.job_id))


def _one_of(uploaded: Uploaded, folder: str) -> Manifest:
    """Of the manifests that lie one folder below a target that of the run; of several it is not told which is newer."""
    target = uploaded.upload.destination
    found: list[Manifest] = []
    others = 0
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        path = os.path.join(folder, name, MANIFEST)
        if os.path.isfile(path):
            one = _read(path, target + ("" if target.endswith(("/", ":")) else "/") + name)
            if _is_of(one, uploaded.run):
                found.append(one)
            else:
                others += 1
    if not found:
        what = f"there are those of {others} other runs" if others else "there is none, nor in the folders there"
        raise _wrong(target, f"no {MANIFEST} of {uploaded.run} lies there: {what}")
    if len(found) > 1:
        # Their files' times are those of the copies here.
        asked = f"aicrun fetch {shlex.quote(uploaded.run)}"
        more = "".join(
            f" --{name} {shlex.quote(value)}"
            for name, value in (("endpoint", uploaded.upload.endpoint), ("profile", uploaded.upload.profile))
            if value
        )
        ways = (Way(f"run id {one.run_id}", f"{asked} --from {shlex.quote(one.address)}{more}") for one in found)
        raise TransferFailed("AIC-E647", f"{target}: {len(found)} runs {uploaded.run} lie there", ways=tuple(ways))
    return found[0]


def _read(path: str, address: str) -> Manifest:
    if os.path.getsize(path) > MANIFEST_BYTES:
        raise _wrong(address, "its manifest is larger than any")
    with open(path, "rb") as stream:
        raw = stream.read()
    try:
        told = json.loads(raw)
        if int(told["schema"]) > 1:
            raise _wrong(address, f"its manifest is of a newer version ({told['schema']}): update aicrun")
        files = tuple(File(str(one["path"]), int(one["bytes"]), str(one["sha256"])) for one in told["files"])
        found = Manifest(address, str(told["run"]), str(told["run_id"]), str(told["job_id"]), files, sha256(raw))
    except (ValueError, KeyError, TypeError) as error:
        raise _wrong(address, f"its manifest cannot be understood: {error}") from error
    for one in found.files:
        if not is_below(one.path) or one.bytes < 0 or not _SHA256.match(one.sha256):
            raise _wrong(address, f"its manifest names what cannot be a file here: {one.path[:200]!r}")
    if "/" in found.run or not is_below(found.run):
        raise _wrong(address, f"its manifest names what cannot be a run: {found.run[:200]!r}")
    if len({one.path for one in found.files}) < len(found.files):
        raise _wrong(address, "its manifest names a file twice")
    return found


def _wrong(address: str, why: str) -> AicrunError:
    return TransferFailed("AIC-E647", f"{address}: {why}")
