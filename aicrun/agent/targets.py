"""Where checkpoints can be uploaded to. `Target` is the seam: `file:` is here, what a tool carries is beside it.

A target must not believe itself: what it says is there, it has read back.
"""

import hashlib
import os
import stat
import time
from typing import List, NamedTuple, Optional, Protocol, Tuple

from aicrun.agent.outputs import MANIFEST, Output, printable
from aicrun.wire.jobs import Upload

_CHUNK = 1024 * 1024
_TRIES = 3
_PAUSE_S = 0.5


class Sent(NamedTuple):
    """One file as it was sent: what its bytes were, by reading them once."""

    path: str
    size: int
    sha256: str


class Told(NamedTuple):
    """What a target tells of a file: a mark that changes with its bytes (empty for none), and whether it was proven.

    Proven is what has the very bytes of this host by a hash, or by being read back.
    """

    mark: str
    is_proven: bool


class CannotUpload(Exception):
    """Why an upload ends without being verified, in a sentence; `missing`: what is known not to be there whole."""

    def __init__(self, why: str, missing: Tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.missing = missing


class Target(Protocol):
    """One destination of one scheme."""

    def begin(self, source: str, keeps: bool = False) -> None:
        """Make the destination ready for the outputs of folder `source`; raises `CannotUpload`.

        `keeps`: the manifest there stays, for what it says is not touched.
        """

    def send(self, output: Output) -> Sent:
        """Take one file, or put it there at once; raises `CannotUpload` when it keeps changing, or `OSError`."""

    def deliver(self) -> Tuple[str, ...]:
        """Put there what was only taken; names what is not there whole after all. Raises `CannotUpload`."""

    def finish(self, manifest: bytes) -> None:
        """Put the manifest there, after everything else."""

    def faults(self, sent: Tuple[Sent, ...], manifest: bytes = b"") -> Tuple[str, ...]:
        """Read these files back, and the manifest where one is given, and name what differs, a line for each.

        Empty when all sizes and hashes agree.
        """

    def told(self, path: str) -> Told:
        """What is known of a file that `faults` has compared."""


def target(upload: Upload, job_id: str, home_folder: str) -> "FolderTarget":
    """The folder of `upload`; raises `CannotUpload` for schemes that are not supported yet."""
    if upload.scheme != "file":
        raise CannotUpload("%s: is not supported yet" % upload.scheme)
    path = upload.destination
    if path.startswith("file:"):
        path = path[len("file:") :]
        path = path[2:] if path.startswith("///") else path
    if path == "~" or path.startswith("~/"):
        path = home_folder + path[1:]
    if not os.path.isabs(path):
        raise CannotUpload("the target %s is not an absolute folder of this host" % upload.destination)
    return FolderTarget(os.path.normpath(path), job_id)


class FolderTarget:
    """A folder of this host (a mounted share, say)."""

    def __init__(self, folder: str, job_id: str) -> None:
        self.folder = folder
        self._suffix = ".aicrun-%s.tmp" % job_id

    def try_out(self, source: str) -> None:
        """Make the folder, write one small file there and remove it; raises `CannotUpload` or `OSError`."""
        self._make(source)
        path = self._temporary(os.path.join(self.folder, "probe"))
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb") as stream:
                stream.write(b"aicrun\n")
                stream.flush()
                os.fsync(stream.fileno())
        finally:
            _gone(path)

    def begin(self, source: str, keeps: bool = False) -> None:
        """Make the folder; raises `CannotUpload` when source and target lie in each other.

        An older manifest goes first, unless it `keeps` true: from now on the folder is not what it says.
        """
        self._make(source)
        if not keeps:
            _gone(os.path.join(self.folder, MANIFEST))

    def send(self, output: Output) -> Sent:
        """Copy one file, again when it changed meanwhile; what lies there already byte for byte is not copied."""
        there = self._there(output)
        if there is not None:
            return there
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_PAUSE_S)
            sent = self._copied(output)
            if sent is not None:
                return sent
        raise CannotUpload("it changed each time it was copied")

    def deliver(self) -> Tuple[str, ...]:
        """Nothing: each file was copied when it was taken."""
        return ()

    def finish(self, manifest: bytes) -> None:
        """Write the manifest under a temporary name, then give it its own."""
        place = os.path.join(self.folder, MANIFEST)
        with open(self._temporary(place), "wb") as stream:
            stream.write(manifest)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(stream.name, place)
        _sync(self.folder)

    def faults(self, sent: Tuple[Sent, ...], manifest: bytes = b"") -> Tuple[str, ...]:
        """Read every file back from the disk and compare."""
        found: List[str] = []
        whole = (Sent(MANIFEST, len(manifest), hashlib.sha256(manifest).hexdigest()),) if manifest else ()
        for item in sent + whole:
            try:
                size, digest = _read_back(os.path.join(self.folder, item.path))
            except OSError as error:
                found.append("%s: %s" % (printable(item.path), error.strerror or "cannot be read back"))
                continue
            if size != item.size:
                found.append("%s: %d bytes arrived of %d" % (printable(item.path), size, item.size))
            elif digest != item.sha256:
                found.append("%s: its SHA-256 differs" % printable(item.path))
        return tuple(found)

    def told(self, path: str) -> Told:
        """Each file is read back."""
        del path
        return Told("", True)

    def _make(self, source: str) -> None:
        here, there = os.path.realpath(source), os.path.realpath(self.folder)
        if (here + "/").startswith(there + "/") or (there + "/").startswith(here + "/"):
            raise CannotUpload("the target %s and the checkpoint folder %s lie in each other" % (self.folder, source))
        os.makedirs(self.folder, exist_ok=True)

    def _there(self, output: Output) -> Optional[Sent]:
        """The file as it lies there, where it is the same; None when it is to be copied."""
        try:
            before, there = os.stat(output.source), os.lstat(os.path.join(self.folder, output.path))
            if not (stat.S_ISREG(there.st_mode) and there.st_size == before.st_size):
                return None
            here = _read_back(output.source)
            if here != _read_back(os.path.join(self.folder, output.path)):
                return None
            return Sent(output.path, *here) if not _changed(before, os.stat(output.source)) else None
        except OSError:
            return None

    def _copied(self, output: Output) -> Optional[Sent]:
        place = os.path.join(self.folder, output.path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        temporary = self._temporary(place)
        try:
            sent = _copy(output, temporary)
        except BaseException:
            _gone(temporary)
            raise
        if sent is None:
            _gone(temporary)
            return None
        os.replace(temporary, place)
        _sync(os.path.dirname(place))
        return sent

    def _temporary(self, place: str) -> str:
        folder, name = os.path.split(place)
        # Short enough for any name: a temporary one must not fail where the final one would fit.
        temporary = os.path.join(folder, "." + hashlib.sha256(os.fsencode(name)).hexdigest()[:16] + self._suffix)
        _gone(temporary)
        return temporary


def _copy(output: Output, temporary: str) -> Optional[Sent]:
    seen = hashlib.sha256()
    out = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    with open(output.source, "rb") as reading, open(out, "wb") as writing:
        before = os.fstat(reading.fileno())
        for chunk in iter(lambda: reading.read(_CHUNK), b""):
            seen.update(chunk)
            writing.write(chunk)
            if writing.tell() > before.st_size:
                # Somebody writes as fast as we read: this would not end, and fill the target.
                return None
        writing.flush()
        os.fsync(writing.fileno())
        after, size = os.fstat(reading.fileno()), writing.tell()
    if _changed(before, after) or size != before.st_size:
        return None
    return Sent(output.path, size, seen.hexdigest())


def _gone(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _changed(before: os.stat_result, after: os.stat_result) -> bool:
    return (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns)


def _read_back(path: str) -> Tuple[int, str]:
    seen, size = hashlib.sha256(), 0
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(0, "no regular file arrived")
        # From the disk where the system obeys, not from what is still in memory of the copy.
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        for chunk in iter(lambda: stream.read(_CHUNK), b""):
            seen.update(chunk)
            size += len(chunk)
    return size, seen.hexdigest()


def _sync(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError:
        # Some shares cannot do it; reading back is what is believed.
        pass
    finally:
        os.close(handle)
