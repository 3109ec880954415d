"""The ledger: this client's own note of which machine it asked to run what, and how each looked. Never the truth.

Losing it changes no answer: hosts are asked. It tells a later `apply` which machine a silent run may lie on, and
which half-made reservation of a killed client is still to be withdrawn.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from aicrun.wire.checkpoint import Checkpointed
from aicrun.wire.codec import WireError, dump, from_json, load
from aicrun.wire.jobs import Upload

_SCHEMA = 1
# A row is written in milliseconds; whoever holds the file for longer shall not make every command slow.
_BUSY_S = 0.5
_ID_LEAST = 4
_HEX = frozenset("0123456789abcdef")
_TABLE = """
CREATE TABLE IF NOT EXISTS starts (
  job_id TEXT PRIMARY KEY, run TEXT NOT NULL, machine TEXT NOT NULL, step TEXT NOT NULL,
  pid INTEGER NOT NULL, ticks INTEGER NOT NULL, at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS starts_of_run ON starts (run, at);
"""
# Came later; a version that does not know it leaves it alone.
_SEEN = """
CREATE TABLE IF NOT EXISTS seen (
  machine TEXT NOT NULL, reach TEXT NOT NULL, reading TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (machine, reach)
);
"""
_UPLOADS = """
CREATE TABLE IF NOT EXISTS uploads (
  job_id TEXT PRIMARY KEY, run TEXT NOT NULL, run_id TEXT NOT NULL, machine TEXT NOT NULL, upload TEXT NOT NULL,
  manifest TEXT NOT NULL, saved TEXT NOT NULL, at REAL NOT NULL
);
"""
_FETCHED = """
CREATE TABLE IF NOT EXISTS fetched (path TEXT PRIMARY KEY, device INTEGER NOT NULL, inode INTEGER NOT NULL);
"""


# One row of values, or many rows that are written together.
_Values = tuple[object, ...] | list[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Start:
    """One job id that this client minted; `step` is `reserving`, `confirming`, `started` or `withdrawn`."""

    job_id: str
    run: str
    machine: str
    step: str
    client_lives: bool


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A verified upload as this client saw it: where it lies, and which checkpoints its host told.

    `manifest` is the SHA-256 of its manifest, empty where the host did not tell. `job_id` and `machine` are empty for a
    target that a person named; so may `run_id` be. `at`: when the job was made, by this client's clock.
    """

    run: str
    run_id: str
    job_id: str
    machine: str
    upload: Upload
    manifest: str = ""
    saved: Checkpointed | None = None
    at: float = 0.0


class Ledger:
    """The file `ledger.db`, 0600. `remark` says what was wrong; one that cannot be used is gone without."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.remark = ""
        self._base: sqlite3.Connection | None = None
        self._unusable = False
        self._lock = threading.Lock()

    def note(self, job_id: str, run: str, machine: str, step: str) -> None:
        """Write down where a start stands; called before the host is asked, so that a killed client left a trace."""
        row = (job_id, run, machine, step, os.getpid(), _ticks(os.getpid()), time.time())
        self._run("INSERT OR REPLACE INTO starts VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def starts(self, run: str) -> tuple[Start, ...]:
        """All starts of `run` by this client, newest first."""
        rows = self._run(
            "SELECT job_id, run, machine, step, pid, ticks FROM starts WHERE run = ? ORDER BY at DESC", (run,)
        )
        return tuple(
            Start(job_id, name, machine, step, _ticks(pid) == ticks != 0)
            for job_id, name, machine, step, pid, ticks in rows
        )

    def machines_of(self, run: str) -> tuple[str, ...]:
        """Machines that may hold `run` as far as this client knows."""
        return tuple(dict.fromkeys(start.machine for start in self.starts(run) if start.step != "withdrawn"))

    def remember(self, seen: dict[tuple[str, str], str]) -> None:
        """Keep how machines looked just now: (name, how it is reached) to its reading as text; the last one counts."""
        now = time.time()
        rows: list[tuple[object, ...]] = [(machine, reach, reading, now) for (machine, reach), reading in seen.items()]
        self._run("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?)", rows)

    def remembered(self) -> dict[tuple[str, str], tuple[str, float]]:
        """(name, how it is reached) to the last reading as text and its age in seconds, by this client's clock."""
        rows = self._run("SELECT machine, reach, reading, at FROM seen", ())
        now = time.time()
        return {(machine, reach): (reading, max(0.0, now - at)) for machine, reach, reading, at in rows}

    def note_uploads(self, uploads: Iterable[Uploaded]) -> None:
        """Remember verified uploads, so that they are found when their host is gone; writes nothing that is known."""
        rows: list[tuple[object, ...]] = []
        for one in uploads:
            known = self._run("SELECT upload, manifest, saved FROM uploads WHERE job_id = ?", (one.job_id,))
            upload, manifest, saved = known[0] if known else ("", "", "")
            told = dump(one.saved).decode() if one.saved is not None else saved if manifest == one.manifest else ""
            row = (dump(one.upload).decode(), one.manifest, told)
            if row != (upload, manifest, saved):
                rows.append((one.job_id, one.run, one.run_id, one.machine, *row, one.at))
        if rows:
            self._run("INSERT OR REPLACE INTO uploads VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def uploads(self, key: str) -> tuple[Uploaded, ...]:
        """Verified uploads of a run name, else of ids that begin with `key`, the newest job's first."""
        rows = self._run("SELECT * FROM uploads WHERE run = ? ORDER BY at DESC", (key,))
        if not rows and len(key) >= _ID_LEAST and not set(key) - _HEX:
            alike = (key + "%",) * 2
            rows = self._run("SELECT * FROM uploads WHERE run_id LIKE ? OR job_id LIKE ? ORDER BY at DESC", alike)
        return tuple(one for row in rows if (one := _uploaded(row)) is not None)

    def note_fetched(self, path: str) -> None:
        """Remember what was brought to `path`, so that it is taken for no code; nothing when nothing lies there."""
        with contextlib.suppress(OSError):
            state = os.lstat(path)
            row = (os.path.realpath(path), state.st_dev, state.st_ino)
            self._run("INSERT OR REPLACE INTO fetched VALUES (?, ?, ?)", row)

    def fetched(self) -> tuple[str, ...]:
        """The files and folders that were brought here and still lie there, by their real paths."""
        rows = self._run("SELECT path, device, inode FROM fetched", ())
        return tuple(path for path, *identity in rows if identity == _identity(path))

    def drop(self, job_id: str) -> None:
        """Forget one job: it was deleted on its host. Where it was uploaded to stays known."""
        self._run("DELETE FROM starts WHERE job_id = ?", (job_id,))

    def close(self) -> None:
        """Close the file."""
        if self._base is not None:
            self._base.close()
            self._base = None

    def _run(self, statement: str, values: _Values) -> list[tuple[Any, ...]]:
        with self._lock:
            return [] if self._unusable else self._answered(statement, values)

    def _answered(self, statement: str, values: _Values) -> list[tuple[Any, ...]]:
        try:
            return self._once(statement, values)
        except sqlite3.OperationalError as error:
            # Locked for long, a full disk, a folder that cannot be written: the hosts still know everything.
            return self._go_without(_words(error))
        except sqlite3.DatabaseError as error:
            damage = error
        except OSError as error:
            return self._go_without(error.strerror or str(error))
        try:
            self._begin_anew(damage)
            return self._once(statement, values)
        except (sqlite3.Error, OSError) as error:
            return self._go_without(str(error))

    def _once(self, statement: str, values: _Values) -> list[tuple[Any, ...]]:
        base = self._opened()
        with base:
            if isinstance(values, list):
                return base.executemany(statement, values).fetchall()
            return base.execute(statement, values).fetchall()

    def _opened(self) -> sqlite3.Connection:
        if self._base is None:
            _make_private(os.path.dirname(self.path))
            flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(self.path, flags, 0o600))
            base = sqlite3.connect(self.path, timeout=_BUSY_S, check_same_thread=False)
            # Kept only when it proved to be a ledger: a damaged file raises here, on its first read.
            version = base.execute("PRAGMA user_version").fetchone()[0]
            if version > _SCHEMA:
                base.close()
                raise sqlite3.OperationalError(f"it was written by a newer aicrun (version {version})")
            if version == 0:
                base.executescript(_TABLE + f"PRAGMA user_version = {_SCHEMA};")
            base.executescript(_SEEN + _UPLOADS + _FETCHED)
            self._base = base
        return self._base

    def _go_without(self, why: str) -> list[tuple[Any, ...]]:
        self.close()
        self._unusable = True
        self.remark = f"the ledger {self.path} cannot be used ({why}); no answer depends on it"
        return []

    def _begin_anew(self, error: sqlite3.DatabaseError) -> None:
        self.close()
        aside = f"{self.path}.damaged"
        with contextlib.suppress(FileNotFoundError):
            # Gone already when another client found the damage at the same moment.
            os.replace(self.path, aside)
        self.remark = (
            f"the ledger could not be read ({error}) and was begun anew; no answer depends on it. Old: {aside}"
        )


def _uploaded(row: tuple[Any, ...]) -> Uploaded | None:
    job_id, run, run_id, machine, upload, manifest, saved, at = row
    try:
        told = from_json(Checkpointed, load(saved.encode())) if saved else None
        return Uploaded(run, run_id, job_id, machine, from_json(Upload, load(upload.encode())), manifest, told, at)
    except WireError:
        # Of another version: its host still knows.
        return None


def _identity(path: str) -> list[int]:
    try:
        state = os.lstat(path)
    except OSError:
        return []
    return [state.st_dev, state.st_ino]


def _words(error: sqlite3.OperationalError) -> str:
    if "locked" in str(error):
        return f"busy: another process has held it for over {_BUSY_S} s"
    return str(error)


def _make_private(folder: str) -> None:
    """Make the folder and what is missing above it, 0700 each, whatever the umask."""
    if not os.path.isdir(folder):
        _make_private(os.path.dirname(folder))
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)


def _ticks(pid: int) -> int:
    """Start ticks of a living process (0 when it is gone), so that a reused pid is not taken for the client.

    Field 22 of `/proc/PID/stat` (proc(5)); where there is no /proc, 1 for any living pid.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stream:
            return int(stream.read().rpartition(")")[2].split()[19])
    except FileNotFoundError:
        if os.path.isdir("/proc/self"):
            return 0
    except (OSError, ValueError, IndexError):
        return 0
    try:
        os.kill(pid, 0)
    except OSError:
        return 0
    return 1
