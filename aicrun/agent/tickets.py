"""Tickets: who waits and who holds, machine-wide, as files that count only while their owner locks them.

A ticket's name and its owner's account are facts; its words lie beside it and are hostile text. It must not decide
whose turn it is (`line.py`). Names and words are frozen by `tests/golden/locks_v1.json`.
"""

import contextlib
import errno
import fcntl
import json
import os
import stat
import time
from typing import Any, Dict, Iterable, List, Optional, Tuple

from aicrun.agent import line
from aicrun.agent.lock_folder import LockFolder, unusable
from aicrun.agent.refused import Refused
from aicrun.wire import lean, names
from aicrun.wire.codec import dump
from aicrun.wire.patterns import pattern

ACTIVE_MOST = 32
WAITING_MOST = 256
WORDS_SCHEMA = 1
# Boot-time in nanoseconds, zero-padded so that names sort as the line does, and the job.
NAME = "t-%020d-%s"
WORDS_SUFFIX = ".words"
DRAIN = "drain-%d"
_NAME = pattern(r"t-(\d{20})-([0-9a-f]{16})\Z")
_WORDS_CAP_BYTES = 8192
_CARDS_MOST = 64
_STALE_S = 60.0
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@lean.dataclass(frozen=True)
class Words:
    """What a ticket's owner says: `says` as in `line.Ticket`, `since_s` in boot-time seconds."""

    job_id: str
    run: str
    says: str
    cards: Tuple[str, ...]
    pid: int
    priority: int = 0
    since_s: float = 0.0


@lean.dataclass
class Held:
    """A ticket of this process. `handle` is its lock; pump and command inherit it, only `keeper` ends it.

    `is_said`: its file holds `words`, as they are now.
    """

    folder: LockFolder
    number: int
    words: Words
    handle: int
    keeper: int
    is_said: bool = True

    @property
    def name(self) -> str:
        """The name of its file."""
        return NAME % (self.number, self.words.job_id)

    @property
    def seen(self) -> line.Ticket:
        """The same as everybody else sees it."""
        words = self.words
        told = (words.says, words.cards, words.priority, words.run, words.pid, words.since_s)
        return line.Ticket(self.number, words.job_id, os.geteuid(), True, *told)

    def say(self, says: str) -> None:
        """Replace its words by `waiting`, `holds`, `pauses` or nothing, of now.

        Words are a courtesy, the lock is what counts. Where they cannot be written the old ones go, unless they say
        less than is true: a ticket never says more than is held. `repeat` tries again.
        """
        self.words = lean.replace(self.words, says=says, since_s=now_s())
        self.is_said = False
        self.repeat()
        if not self.is_said and says in ("", line.PAUSES):
            self._unlink(self.name + WORDS_SUFFIX)

    def repeat(self) -> None:
        """Write the words of now where that was not possible before."""
        if self.is_said:
            return
        try:
            temporary = _written(self.folder, self.words)
        except OSError:
            return
        folder = self.folder.handle
        try:
            os.rename(temporary, self.name + WORDS_SUFFIX, src_dir_fd=folder, dst_dir_fd=folder)
            self.is_said = True
        except OSError:
            self._unlink(temporary)

    def end(self) -> None:
        """Leave the line for good: the files go first, so that nobody finds words without a lock."""
        if os.getpid() != self.keeper:
            raise RuntimeError("only the keeper that took a ticket may end it")
        for name in (self.name, self.name + WORDS_SUFFIX):
            self._unlink(name)
        fcntl.flock(self.handle, fcntl.LOCK_UN)
        os.close(self.handle)

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self.folder.handle)


def now_s() -> float:
    """Boot-time, which every account of one machine reads alike and which also counts a suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def take(folder: LockFolder, words: Words) -> Held:
    """A new ticket at the end of the line, locked before it has its name; raises `Refused`.

    too_many_jobs: this account has `ACTIVE_MOST` that do not wait, or `WAITING_MOST` that do. no_lock: the folder
    cannot be written.
    """
    try:
        _check_counts(read(folder), os.geteuid())
        words = lean.replace(words, since_s=now_s())
        temporary = ".t-%s" % os.urandom(8).hex()
        handle = os.open(temporary, os.O_RDONLY | _NEW, 0o600, dir_fd=folder.handle)
        try:
            os.fchmod(handle, 0o644)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return Held(folder, _named(folder, temporary, words), words, handle, os.getpid())
        except BaseException:
            os.close(handle)
            raise
        finally:
            os.unlink(temporary, dir_fd=folder.handle)
    except OSError as error:
        raise unusable(folder.path, error.strerror or str(error)) from error


def read(folder: LockFolder) -> Tuple[line.Ticket, ...]:
    """All tickets in the order of their numbers, the dead ones too (`live` False)."""
    found = []
    for name in sorted(os.listdir(folder.handle)):
        match = _NAME.match(name)
        ticket = _read_one(folder, name, int(match.group(1)), match.group(2)) if match else None
        if ticket is not None:
            found.append(ticket)
    return tuple(found)


def still(folder: LockFolder, ticket: line.Ticket) -> Optional[line.Ticket]:
    """The same ticket as it stands now, None when it is gone or dead: all that a waiter looks at each second."""
    found = _read_one(folder, NAME % (ticket.number, ticket.job_id), ticket.number, ticket.job_id)
    return found if found is not None and found.live else None


def clean(folder: LockFolder) -> int:
    """Remove this account's dead tickets and half-made files: how many."""
    mine, count = os.geteuid(), 0
    for name in os.listdir(folder.handle):
        is_ticket, is_words = _NAME.match(name), name.endswith(WORDS_SUFFIX) and _NAME.match(name[: -len(WORDS_SUFFIX)])
        if not (is_ticket or is_words or name.startswith((".t-", ".w-", ".new-"))):
            continue
        try:
            state = os.stat(name, dir_fd=folder.handle, follow_symlinks=False)
            if state.st_uid != mine or not _is_dead(folder, name, state, bool(is_words)):
                continue
            os.unlink(name, dir_fd=folder.handle)
        except OSError:
            # Somebody was quicker.
            continue
        count += 1
    return count


def counts(tickets: Iterable[line.Ticket], uid: int) -> Tuple[int, int]:
    """(not waiting, waiting) live tickets of one account; counted from locks, never stored."""
    live = [one for one in tickets if one.live and one.uid == uid]
    waiting = sum(1 for one in live if one.says in (line.WAITING, line.PAUSES))
    return len(live) - waiting, waiting


def _check_counts(tickets: Tuple[line.Ticket, ...], uid: int) -> None:
    active, waiting = counts(tickets, uid)
    if active >= ACTIVE_MOST:
        facts = {"active": str(active), "most": str(ACTIVE_MOST)}
        raise Refused("too_many_jobs", "%d jobs of this account hold cards here, the most" % active, facts)
    if waiting >= WAITING_MOST:
        facts = {"waiting": str(waiting), "most": str(WAITING_MOST)}
        raise Refused("too_many_jobs", "%d jobs of this account wait in line here, the most" % waiting, facts)


def _named(folder: LockFolder, temporary: str, words: Words) -> int:
    """Give ticket and words their names: the words first, for a ticket without words would be nobody's."""
    said = _written(folder, words)
    try:
        while True:
            number = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            name = NAME % (number, words.job_id)
            try:
                _link(folder, said, name + WORDS_SUFFIX)
                _link(folder, temporary, name)
            except FileExistsError:
                continue
            return number
    finally:
        os.unlink(said, dir_fd=folder.handle)


def _link(folder: LockFolder, old: str, new: str) -> None:
    os.link(old, new, src_dir_fd=folder.handle, dst_dir_fd=folder.handle, follow_symlinks=False)


def _written(folder: LockFolder, words: Words) -> str:
    name = ".w-%s" % os.urandom(8).hex()
    handle = os.open(name, os.O_WRONLY | _NEW, 0o600, dir_fd=folder.handle)
    raw = dump(dict(lean.asdict(words), schema=WORDS_SCHEMA))
    try:
        os.fchmod(handle, 0o644)
        if os.write(handle, raw) != len(raw):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        os.unlink(name, dir_fd=folder.handle)
        raise
    finally:
        os.close(handle)
    return name


def _read_one(folder: LockFolder, name: str, number: int, job_id: str) -> Optional[line.Ticket]:
    try:
        handle = os.open(name, _READ, dir_fd=folder.handle)
    except OSError:
        return None
    try:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode):
            return None
        live = _is_locked(handle)
        said = _words(folder, name + WORDS_SUFFIX, state.st_uid) if live else {}
    finally:
        os.close(handle)
    ticket = line.Ticket(number, job_id, state.st_uid, live)
    return lean.replace(ticket, **_fields(said)) if said else ticket


def _is_locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _words(folder: LockFolder, name: str, uid: int) -> Dict[str, Any]:
    """The raw words if they are the ticket owner's, else nothing."""
    try:
        handle = os.open(name, _READ, dir_fd=folder.handle)
    except OSError:
        return {}
    try:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode) or state.st_uid != uid or state.st_size > _WORDS_CAP_BYTES:
            return {}
        found = json.loads(os.read(handle, _WORDS_CAP_BYTES).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    finally:
        os.close(handle)
    return found if isinstance(found, dict) else {}


def _fields(said: Dict[str, Any]) -> Dict[str, Any]:
    """Hostile text cut down to what it may be; what is of the wrong kind is as if it were not said."""
    says, run, cards = said.get("says"), said.get("run"), said.get("cards")
    priority, since = said.get("priority"), said.get("since_s")
    return {
        "says": says if says in (line.WAITING, line.HOLDS, line.PAUSES) else "",
        "cards": tuple(one for one in _listed(cards) if isinstance(one, str) and len(one) <= 96),
        "priority": priority if isinstance(priority, int) and not isinstance(priority, bool) else 0,
        "run": run if isinstance(run, str) and names.RUN_NAME.match(run) else "",
        "pid": said["pid"] if isinstance(said.get("pid"), int) and 0 < said["pid"] < 1 << 22 else 0,
        "since_s": float(since) if isinstance(since, (int, float)) and 0 <= since < 1e12 else 0.0,
    }


def _listed(value: Any) -> List[Any]:
    return value[:_CARDS_MOST] if isinstance(value, list) else []


def _is_dead(folder: LockFolder, name: str, state: os.stat_result, is_words: bool) -> bool:
    """Whether nobody needs this file of ours any more."""
    old = time.time() - state.st_ctime > _STALE_S
    if is_words:
        # Words get their name before their ticket does.
        return old and not _exists(folder, name[: -len(WORDS_SUFFIX)])
    handle = os.open(name, _READ, dir_fd=folder.handle)
    try:
        return (old or not name.startswith(".")) and not _is_locked(handle)
    finally:
        os.close(handle)


def _exists(folder: LockFolder, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder.handle, follow_symlinks=False)
    except OSError:
        return False
    return True
