"""The state folder of one account on one host: where everything lies, and the lock that orders changes.

It must not know what the files mean. Everything in it is 0700/0600; nothing of a user's own ever lies in it.
"""

import contextlib
import errno
import fcntl
import os
import stat
from typing import Iterator, List, Mapping, Optional, Tuple

from aicrun.agent.host_id import host_id
from aicrun.agent.records import NewerRecord, Unreadable, make_private, place_once, read_record, write_record
from aicrun.agent.refused import Refused
from aicrun.wire import lean, names
from aicrun.wire.patterns import pattern

__all__ = ["Home", "NewerRecord", "Unreadable", "open_home", "place_once", "read_record", "write_record"]

LOCK_WAIT_S = 30.0
# Local on every host and kept over restarts; what we make in it is checked for its owner.
LOCAL_DISK = "/var/tmp"  # noqa: S108

# File systems whose locks and whose crash behaviour are another machine's; names as in /proc/self/mountinfo.
NETWORK_FILE_SYSTEMS = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "9p")
    + ("fuse.glusterfs", "fuse.sshfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.juicefs")
    + ("fuse.JuiceFS", "fuse.mfs", "fuse.seaweedfs", "orangefs", "panfs")
)
_TAKES_NOTHING = frozenset((errno.EROFS, errno.ENOSPC, errno.EDQUOT))
_ESCAPED = pattern(r"\\([0-7]{3})")


@lean.dataclass(frozen=True)
class Home:
    """Where this account keeps its state: `root` (small, lasting) and `jobs_root` (local disk; mostly the same)."""

    root: str
    jobs_root: str
    host_id: str

    def runs(self) -> str:
        """The folder of all run records, one folder for each run name."""
        return os.path.join(self.root, names.RUNS)

    def run_dir(self, run: str) -> str:
        """The folder of the records of one run name."""
        return os.path.join(self.root, names.RUNS, run)

    def record_dir(self, run: str, job_id: str) -> str:
        """The small record of one job; it outlives the sweep."""
        return os.path.join(self.root, names.RUNS, run, job_id)

    def jobs(self) -> str:
        """The folder of all job folders."""
        return os.path.join(self.jobs_root, names.JOBS)

    def job_dir(self, job_id: str) -> str:
        """The private folder of one job: request, logs, step records."""
        return os.path.join(self.jobs_root, names.JOBS, job_id)

    def step_dir(self, job_id: str, attempt: int, step: str) -> str:
        """The folder of one step of one attempt (from 1)."""
        return os.path.join(self.job_dir(job_id), names.ATTEMPTS, str(attempt), step)

    def store(self) -> str:
        """The content-addressed store of sources and inputs."""
        return os.path.join(self.jobs_root, names.STORE)

    def objects(self) -> str:
        """The folder of all contents of the store, each below the first two digits of its hash."""
        return os.path.join(self.store(), "objects")

    def object_path(self, content: str) -> str:
        """Where the bytes with SHA-256 `content` lie, or would lie."""
        return os.path.join(self.objects(), content[:2], content)

    def trash(self) -> str:
        """Where folders of `jobs_root` go before they are removed."""
        return os.path.join(self.jobs_root, names.TRASH)

    def record_trash(self) -> str:
        """Where folders of `root` go before they are removed (a rename cannot cross file systems)."""
        return os.path.join(self.root, names.TRASH)

    def tombstone(self, job_id: str) -> str:
        """The mark of a job id that was withdrawn before it was ever heard of."""
        return os.path.join(self.root, names.TOMBSTONES, job_id + ".json")

    def run_names(self) -> Tuple[str, ...]:
        """All run names that have a record here, sorted."""
        return tuple(sorted(name for name in listed(self.runs()) if names.RUN_NAME.match(name)))

    def job_ids(self, run: str) -> Tuple[str, ...]:
        """The ids of all records of one run, sorted; what is half made or foreign is left out."""
        return tuple(sorted(name for name in listed(self.run_dir(run)) if names.HEX16.match(name)))

    def run_of(self, job_id: str) -> Optional[str]:
        """The run that the job's record stands under, None when there is no such record.

        Raises `Refused` (state_unusable) when it was not found and may stand where nothing can be read.
        """
        if not names.HEX16.match(job_id):
            return None
        doubt: Optional[Refused] = None
        for run in self.run_names():
            try:
                if _is_there(self.record_dir(run, job_id)):
                    return run
            except Refused as error:
                doubt = error
        if doubt is not None:
            raise doubt
        return None

    def notes_path(self) -> str:
        """The notes of this host."""
        return os.path.join(self.root, names.NOTES)

    @contextlib.contextmanager
    def host_lock(self) -> Iterator[None]:
        """Hold the one lock that orders reserve, decide, delete; raises `Refused` (no_lock) after `LOCK_WAIT_S`.

        It lies on the local disk: a network file system's lock may hang for ever.
        """
        path = os.path.join(self.jobs_root, names.HOST_LOCK)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _lock(handle, path)
            yield
        finally:
            # Closing releases it: our children never keep this descriptor, for they close everything they have.
            os.close(handle)


def open_home(env: Mapping[str, str]) -> Home:
    """The state of this account on this host, made when missing; raises `Refused` (state_unusable) with the path.

    `$XDG_STATE_HOME/aicrun/<host id>`, by default below `~/.local/state`. On a network file system job folders and
    locks go to `/var/tmp/aicrun-<uid>/<host id>`.
    """
    base = env.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(_home_folder(env), ".local", "state")
    top = os.path.join(base, "aicrun")
    try:
        _make_private(top, parents=True)
        this_host = host_id(top)
        root = os.path.join(top, this_host)
        jobs_root = root
        if is_network(root):
            jobs_root = os.path.join(LOCAL_DISK, "aicrun-%d" % os.getuid(), this_host)
            _make_private(os.path.dirname(jobs_root))
        for folder in (root, os.path.join(root, names.RUNS), os.path.join(root, names.TOMBSTONES)):
            _make_private(folder)
        for folder in (jobs_root, os.path.join(jobs_root, names.JOBS), os.path.join(jobs_root, names.TRASH)):
            _make_private(folder)
        _make_private(os.path.join(root, names.TRASH))
        _try_link(root)
    except OSError as error:
        path = error.filename or top
        facts = {"path": str(path), "cause": error.strerror or str(error)}
        raise Refused(
            "state_unusable", "the state folder %s cannot be used: %s" % (path, error.strerror), facts
        ) from error
    return Home(root, jobs_root, this_host)


def is_network(path: str, mountinfo: str = "/proc/self/mountinfo") -> bool:
    """True when `path` (or its nearest existing parent) lies on a network file system."""
    return file_system(path, mountinfo) in NETWORK_FILE_SYSTEMS


def file_system(path: str, mountinfo: str = "/proc/self/mountinfo") -> str:
    """The type of the file system that holds `path`, "" when it cannot be told."""
    return mounted(path, mountinfo)[0]


def mounted(path: str, mountinfo: str = "/proc/self/mountinfo") -> Tuple[str, str]:
    """(type, what is mounted) of the file system that holds `path`, both "" when unknown; the longest point wins."""
    real = os.path.realpath(path)
    best, found = -1, ("", "")
    try:
        with open(mountinfo, encoding="utf-8", errors="surrogateescape") as stream:
            lines = stream.readlines()
    except OSError:
        return found
    for line in lines:
        fields = line.split(None, 5)
        right = fields[5].partition(" - ")[2] if len(fields) > 5 else ""
        if not right:
            continue
        point = fields[4]
        if "\\" in point:
            point = _ESCAPED.sub(lambda match: chr(int(match.group(1), 8)), point)
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        # `>=`: of two mounts on one point the later one is what is seen.
        if inside and len(point) >= best:
            kind, source = (right.split() + [""])[:2]
            best, found = len(point), (kind, source)
    return found


def listed(path: str) -> List[str]:
    """The names in a folder, none when there is no such folder.

    Raises `Refused` (state_unusable) for a folder that is there and cannot be read: that is not an empty one, and
    whoever took it for empty would start a run twice.
    """
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _unreadable(path, error) from error


def _is_there(path: str) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _unreadable(path, error) from error
    return True


def _unreadable(path: str, error: OSError) -> Refused:
    message = "%s cannot be read: %s" % (path, error.strerror)
    return Refused("state_unusable", message, {"path": path, "cause": str(error.strerror)})


def _home_folder(env: Mapping[str, str]) -> str:
    home = env.get("HOME", "")
    if os.path.isabs(home):
        _check_home(home)
        return home
    # Imported here: most agents have HOME, and pwd may ask a network directory.
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        raise Refused("state_unusable", "HOME is not set and this account has no home folder") from None


def _check_home(home: str) -> None:
    """Root with the HOME of another account (`sudo` keeps it) would leave there what that account can never use.

    Raises `Refused` (state_unusable). A home that belongs to no account here is a container's matter.
    """
    if os.getuid() != 0:
        return
    try:
        uid = os.stat(home).st_uid
    except OSError:
        return
    if uid == 0:
        return
    # Imported here: a home of root's own is the rule.
    import pwd

    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return
    if os.path.realpath(entry.pw_dir) == os.path.realpath(home):
        told = "HOME is %s, the home of %s, and this is root: log in as %s, or with HOME=/root"
        facts = {"path": home, "owner": entry.pw_name}
        raise Refused("state_unusable", told % (home, entry.pw_name, entry.pw_name), facts)


def _make_private(path: str, parents: bool = False) -> None:
    if parents:
        make_private(os.path.dirname(path))
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    state = os.lstat(path)
    if not stat.S_ISDIR(state.st_mode):
        raise OSError(errno.ENOTDIR, "it is no folder (a link is not followed)", path)
    if state.st_uid != os.getuid():
        raise OSError(errno.EPERM, "it belongs to somebody else", path)
    if state.st_mode & 0o777 != 0o700:
        os.chmod(path, 0o700)


def _try_link(root: str) -> None:
    """Write-once decisions need `link()`: a file system without it (some FUSE and FAT mounts) must be refused.

    One that takes nothing now (read-only after a fault, full) is not: what is there can still be read, and each call
    that writes meets it by itself.
    """
    one = os.path.join(root, ".link-%s" % os.urandom(6).hex())
    two = one + ".2"
    try:
        os.close(os.open(one, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        if error.errno in _TAKES_NOTHING:
            return
        raise
    try:
        os.link(one, two)
        os.unlink(two)
    except OSError as error:
        why = "its file system has no hard links (%s)" % error.strerror
        raise OSError(error.errno, why, root) from error
    finally:
        os.unlink(one)


def _lock(handle: int, path: str) -> None:
    try:
        if not _taken(handle, fcntl.LOCK_NB):
            _wait_in_line(handle, path)
    except OSError as error:
        raise Refused("no_lock", "%s cannot be locked: %s" % (path, error.strerror), {"path": path}) from error


def _wait_in_line(handle: int, path: str) -> None:
    """In the kernel's own line: whoever only looked again and again would starve beside a call that comes right back.

    A thread waits, for flock has no time-out. Where it waits in vain it lets go by itself: the descriptor is closed by
    then, and a lock ends with its last one.
    """
    # Imported here: a start without a rival needs no thread.
    import threading

    failed: List[OSError] = []

    def wait() -> None:
        try:
            _taken(handle, 0)
        except OSError as error:
            failed.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(LOCK_WAIT_S)
    if failed:
        raise failed[0]
    if waiting.is_alive():
        message = "another aicrun call holds %s for over %d s" % (path, LOCK_WAIT_S)
        raise Refused("no_lock", message, {"path": path})


def _taken(handle: int, flags: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | flags)
    except BlockingIOError:
        return False
    return True
