"""Files and folders between here and a machine: whole or not at all, resumed, checked, and never over something else.

Names that a host tells are hostile: none may lead out of the folder that a person named. It prints nothing.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from aicrun.errors import AicrunError, TransferFailed, Way
from aicrun.hosts.backend import Backend, RemoteFiles, Sending, SmallFile
from aicrun.lifecycle.arriving import Arriving
from aicrun.lifecycle.session import Session
from aicrun.plan.words import size as size_words

PART = ".aicrun-part"
# Files up to this size are sent together, so many and so much at a time.
SMALL_BYTES = 256 * 1024
BATCH_FILES = 200
BATCH_BYTES = 4 * 1024 * 1024
_CHUNK = 1024 * 1024

# (place here, name below the folder that is sent or "", bytes, mode)
_Entry = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True)
class Moving:
    """How far a transfer is: the file in hand, bytes in place so far, and all that there are."""

    name: str
    done_bytes: int
    whole_bytes: int


@dataclass(frozen=True, slots=True)
class Moved:
    """What a transfer came to: `same` files lay there already; `skipped` are links and devices."""

    to: str
    files: int
    bytes: int
    same: int
    skipped: tuple[str, ...]


Tell = Callable[[Moving], None]


def place_of(text: str) -> tuple[str, str] | None:
    """(machine, path) of `MACHINE:PATH`; None for a path of this machine."""
    machine, colon, path = text.partition(":")
    return (machine, path) if colon and machine and "/" not in machine else None


def pull(session: Session, machine: str, path: str, to: str, replace: bool, tell: Tell) -> Moved:
    """Bring a file or folder here; `to` is a folder that is there, or the new name.

    Raises `TransferFailed` (AIC-E020) when something else is there already, before anything is brought; also
    (AIC-E645) when a file is not what was sent; what the machine refuses.
    """
    backend = session.backend(session.machine(machine).name)
    found = backend.files(path)
    elsewhere = f"aicrun pull {shlex.quote(f'{machine}:{path}')} FOLDER"
    return bring(backend, found, _target(to, found.path), replace, tell, elsewhere)


def bring(
    backend: Backend, found: RemoteFiles, top: str, replace: bool, tell: Tell, elsewhere: str = "-o FOLDER"
) -> Moved:
    """Bring what was found over there here as `top`; raises as `pull`. `elsewhere` is typed where here is no room."""
    plan = tuple((name, os.path.join(top, name) if name else top, size, mode) for name, size, mode in _safe(found))
    whole, done, same = sum(size for _, _, size, _ in plan), 0, 0
    there = {
        name: is_there(place, size, replace, partial(_hash_there, backend, _beyond(found.path, name)))
        for name, place, size, _ in plan
    }
    missing = [
        (_part(_beyond(found.path, name), place, size), size) for name, place, size, _ in plan if not there[name]
    ]
    check_room(top, sum(max(0, size - _bytes_of(part)) for part, size in missing), elsewhere)
    for name, place, size, mode in plan:
        if there[name]:
            same += 1
        else:
            shown = name or os.path.basename(place)
            tell(Moving(shown, done, whole))
            about = (size, mode, replace)
            try:
                _bring(backend, _beyond(found.path, name), place, about, _telling(tell, shown, done, whole))
            except OSError as error:
                raise _unwritable(place, error) from error
        done += size
    tell(Moving("", done, whole))
    return Moved(top, len(plan), whole, same, found.skipped)


def push(session: Session, path: str, machine: str, to: str, replace: bool, tell: Tell) -> Moved:
    """Send a file or folder there; `to` is a folder that is there, or the new name. Raises as `pull` does."""
    backend = session.backend(session.machine(machine).name)
    files, skipped = _here(path)
    whole, done, same, ended = sum(size for _, _, size, _ in files), 0, 0, to
    top = os.path.join(to, os.path.basename(os.path.abspath(path)))
    for batch in _batches(files):
        if len(batch) > 1:
            same += backend.write_small(tuple(_small(entry, top) for entry in batch), replace)
            done += sum(size for _, _, size, _ in batch)
            tell(Moving(batch[-1][1], done, whole))
            continue
        place, name, size, mode = batch[0]
        with open(place, "rb") as stream:
            alone = "" if name else os.path.basename(place)
            key = _key(session, place, os.fstat(stream.fileno()))
            sending = Sending(os.path.join(top, name) if name else to, alone, size, key, mode, replace, bool(name))
            where, was_there = backend.write_file(sending, stream, _telling(tell, name or alone, done, whole))
        ended = where if not name else to
        same += was_there
        done += size
    tell(Moving("", done, whole))
    return Moved(f"{machine}:{ended}", len(files), whole, same, skipped)


def _batches(files: list[_Entry]) -> Iterator[list[_Entry]]:
    """The files in their order, small ones that follow each other together."""
    batch: list[_Entry] = []
    for entry in files:
        is_small = bool(entry[1]) and entry[2] <= SMALL_BYTES
        held = sum(size for _, _, size, _ in batch)
        if batch and (not is_small or len(batch) == BATCH_FILES or held + entry[2] > BATCH_BYTES):
            yield batch
            batch = []
        if is_small:
            batch.append(entry)
        else:
            yield [entry]
    if batch:
        yield batch


def _small(entry: _Entry, top: str) -> SmallFile:
    place, name, size, mode = entry
    with open(place, "rb") as stream:
        before = os.fstat(stream.fileno())
        content = stream.read(size + 1)
        after = os.fstat(stream.fileno())
    if len(content) != size or (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise TransferFailed("AIC-E645", f"{place} changes while it is sent")
    return SmallFile(os.path.join(top, name), content, mode)


def _key(session: Session, place: str, state: os.stat_result) -> str:
    """What tells this content from others while it arrives: whose file it is, and when it was last written to."""
    whose = f"{session.by} {os.path.realpath(place)} {state.st_size} {state.st_mtime_ns}"
    return hashlib.sha256(whose.encode("utf-8", "surrogateescape")).hexdigest()


def _unwritable(place: str, error: OSError) -> AicrunError:
    if isinstance(error, FileExistsError):
        return TransferFailed("AIC-E020", f"{place} is there already", ways=(Way("replace it", "--replace"),))
    folder = os.path.dirname(os.path.abspath(place))
    ways = (Way("look at the folder", f"ls -ld {shlex.quote(folder)}"), Way("and at its room", "df -h ."))
    return TransferFailed("AIC-E646", f"{place} cannot be written here: {error.strerror}", ways=ways)


def _telling(tell: Tell, name: str, before: int, whole: int) -> Callable[[int], None]:
    return lambda at: tell(Moving(name, before + at, whole))


def _safe(found: RemoteFiles) -> Iterator[tuple[str, int, int]]:
    for name, size, mode in found.files:
        if name and not is_below(name):
            raise TransferFailed("AIC-E645", f"the machine names a file that leads out of the folder: {name[:200]!r}")
        yield name, size, mode


def is_below(name: str) -> bool:
    """True when the name that somebody tells is a path that stays below the folder it is joined to."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    parts = name.split("/")
    return not (os.path.isabs(name) or {"", ".", ".."} & set(parts) or "\0" in name)


def _target(to: str, remote: str) -> str:
    return os.path.join(to, os.path.basename(remote.rstrip("/"))) if os.path.isdir(to) or to.endswith("/") else to


def _beyond(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}" if name else path


def is_there(place: str, size: int, replace: bool, sha256: Callable[[], str]) -> bool:
    """True when exactly this file is in place already; raises `TransferFailed` (AIC-E020) when another one is."""
    try:
        state = os.lstat(place)
    except FileNotFoundError:
        return False
    is_file = stat.S_ISREG(state.st_mode)
    if is_file and state.st_size == size and hash_of(place) == sha256():
        return True
    if replace and is_file:
        return False
    raise TransferFailed("AIC-E020", f"{place} is there already and differs", ways=(Way("replace it", "--replace"),))


def check_room(place: str, lacks_bytes: int, elsewhere: str = "-o FOLDER") -> None:
    """Raise `TransferFailed` (AIC-E646) when so many bytes more have no room beside `place`, before one is moved."""
    folder = os.path.dirname(os.path.abspath(place))
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    volume = os.statvfs(folder)
    free = volume.f_bavail * volume.f_frsize
    # One that counts no blocks (/proc) lacks none: writing there tells what is wrong.
    if volume.f_blocks and lacks_bytes > free:
        words = f"{place} needs {size_words(lacks_bytes)} more here, and {size_words(free)} are free in {folder}"
        ways = (Way("see the disks", f"df -h {shlex.quote(folder)}"), Way("or bring it elsewhere", elsewhere))
        raise TransferFailed("AIC-E646", words, ways=ways)


def _hash_there(backend: Backend, path: str) -> str:
    return backend.hash_file(path)[0]


def _part(remote: str, place: str, size: int) -> str:
    """Where a file grows before it has its name."""
    digest = hashlib.sha256(f"{remote} {size}".encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return os.path.join(os.path.dirname(place), f".{digest}{PART}")


def _bring(
    backend: Backend, remote: str, place: str, about: tuple[int, int, bool], tell: Callable[[int], None]
) -> None:
    size, mode, replace = about
    os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
    part = _part(remote, place, size)
    for _ in range(2):
        # The machine hashed what it read, and we what came of it.
        here = _fetch(backend, remote, part, size, tell)
        if backend.hash_file(remote) == (here, size):
            break
        # It changed over there meanwhile, or what lay here was of another one: once more, from nothing.
        os.unlink(part)
    else:
        ways = (Way("when nobody writes to it any more", f"aicrun pull {backend.machine}:{remote} {place}"),)
        raise TransferFailed("AIC-E645", f"{remote} is not what arrived: it changes while it is read", ways=ways)
    os.chmod(part, mode)
    if replace:
        os.replace(part, place)
    else:
        os.link(part, place)
        os.unlink(part)


def _fetch(backend: Backend, remote: str, part: str, size: int, tell: Callable[[int], None]) -> str:
    """Bring what is missing of it; the SHA-256 of the whole."""
    with Arriving(part, size) as arriving:
        for data in backend.read_file(remote, arriving.at, size):
            arriving.take(data)
            tell(arriving.at)
        return arriving.whole()


def _here(path: str) -> tuple[list[_Entry], tuple[str, ...]]:
    """([(place, name below the folder or "", bytes, mode)], links and devices that are left out)."""
    state = _lstat(path)
    if stat.S_ISREG(state.st_mode):
        return [(path, "", state.st_size, stat.S_IMODE(state.st_mode) & 0o777)], ()
    if not stat.S_ISDIR(state.st_mode):
        raise TransferFailed("AIC-E021", f"{path} is neither a file nor a folder")
    files, skipped = [], []
    for at, folders, names in os.walk(path):
        folders.sort()
        skipped += [os.path.join(at, folder) for folder in folders if os.path.islink(os.path.join(at, folder))]
        for name in sorted(names):
            place = os.path.join(at, name)
            one = os.lstat(place)
            if stat.S_ISREG(one.st_mode):
                files.append((place, os.path.relpath(place, path), one.st_size, stat.S_IMODE(one.st_mode) & 0o777))
            else:
                skipped.append(place)
    return files, tuple(skipped)


def _lstat(path: str) -> os.stat_result:
    try:
        return os.lstat(path)
    except OSError as error:
        raise TransferFailed("AIC-E021", f"{path} cannot be read: {error.strerror}") from error


def _bytes_of(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def hash_of(path: str) -> str:
    """The SHA-256 of a file here."""
    seen = hashlib.sha256()
    with open(path, "rb") as stream:
        for chunk in iter(lambda: stream.read(_CHUNK), b""):
            seen.update(chunk)
    return seen.hexdigest()
