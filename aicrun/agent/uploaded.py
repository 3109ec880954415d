"""What of a run is verified at its upload target, checkpoint by checkpoint, on the disk. It must not upload or remove.

A checkpoint is in the record only after its files were read back there, so that who goes on after a kill sends again at
most what nobody had verified. Later jobs of one run id take over what earlier ones verified at the same target.
"""

import os
from typing import TYPE_CHECKING, Dict, Iterable, List, Optional, Tuple

from aicrun.agent.home import Home, listed
from aicrun.agent.records import Unreadable, read_record, write_record
from aicrun.wire import lean, names
from aicrun.wire.jobs import JobRequest, RunRecord
from aicrun.wire.names import SCHEMA
from aicrun.wire.upload import Early

if TYPE_CHECKING:
    # Whoever tells of a job reads these records, and needs no more than them.
    from aicrun.agent.outputs import Output

Stamp = Tuple[int, int]


@lean.dataclass(frozen=True)
class SentFile:
    """A file as it was verified: its `path` below the checkpoint folder, and what it was on this host then.

    `mark` is what its target told then that changes with its bytes; empty for none.
    """

    path: str
    size: int
    mtime_ns: int
    sha256: str
    mark: str = ""


@lean.dataclass(frozen=True)
class SentCheckpoint:
    """A checkpoint that was whole and is verified; `modified` is the newest time of a file of it, by the wall clock.

    `pruned_at` above 0: since then it may be removed from the machine, and mostly is.
    """

    name: str
    files: Tuple[SentFile, ...]
    modified: float
    at: float
    step: Optional[int] = None
    pruned_at: float = 0.0

    @property
    def size(self) -> int:
        """The bytes of its files."""
        return sum(file.size for file in self.files)


@lean.dataclass(frozen=True)
class Dropped:
    """A name under which nothing counts that was verified at `at` or before, whichever job's record says it."""

    name: str
    at: float


@lean.dataclass(frozen=True)
class Uploaded:
    """All that is verified at `destination`, oldest first; `trouble` is why the last try failed, or empty."""

    destination: str = ""
    checkpoints: Tuple[SentCheckpoint, ...] = ()
    trouble: str = ""
    trouble_since: float = 0.0
    again_at: float = 0.0
    schema: int = SCHEMA
    dropped: Tuple[Dropped, ...] = ()

    def by_path(self) -> Dict[str, SentFile]:
        """Every verified file; a later checkpoint's counts where two name one."""
        return {file.path: file for checkpoint in self.checkpoints for file in checkpoint.files}

    def named(self, name: str) -> Optional[SentCheckpoint]:
        """The checkpoint of that name, None when it is not verified."""
        return next((one for one in self.checkpoints if one.name == name), None)

    def adding(self, checkpoint: SentCheckpoint) -> "Uploaded":
        """The same with one more, in place of an older one of its name."""
        others = tuple(one for one in self.checkpoints if one.name != checkpoint.name)
        return lean.replace(self, checkpoints=others + (checkpoint,))

    def without(self, name: str) -> "Uploaded":
        """The same without the checkpoint of that name: it may not be there any more as it was."""
        return self.keeping(tuple(one for one in self.checkpoints if one.name != name))

    def but(self, paths: Iterable[str]) -> "Uploaded":
        """The same without every checkpoint that one of these files is of."""
        out = frozenset(paths)
        return self.keeping(tuple(one for one in self.checkpoints if not any(file.path in out for file in one.files)))

    def keeping(self, kept: Tuple[SentCheckpoint, ...]) -> "Uploaded":
        """The same with no more than these of its checkpoints; the others do not come back out of an older record."""
        gone = {one.name: one.at for one in self.checkpoints if one not in kept}
        dropped = {one.name: one.at for one in self.dropped}
        dropped.update((name, max(at, dropped.get(name, at))) for name, at in gone.items())
        return lean.replace(self, checkpoints=kept, dropped=tuple(Dropped(*each) for each in sorted(dropped.items())))


def stamp(output: "Output") -> Stamp:
    """Size and time of a file now; (-1, -1) when it is gone."""
    try:
        state = os.stat(output.source)
    except OSError:
        return (-1, -1)
    return (state.st_size, state.st_mtime_ns)


def is_as_sent(checkpoint: SentCheckpoint, files: Dict[str, Stamp]) -> bool:
    """Whether exactly these files, with their sizes and times, are the ones that were verified."""
    return {file.path: (file.size, file.mtime_ns) for file in checkpoint.files} == files


def path_of(home: Home, run: str, job_id: str) -> str:
    """Where a job's record stands."""
    return os.path.join(home.record_dir(run, job_id), names.UPLOADED)


def read(home: Home, run: str, job_id: str) -> Uploaded:
    """The job's own record; an empty one when there is none or it cannot be read: then everything is sent again."""
    try:
        found = read_record(path_of(home, run, job_id), Uploaded) or Uploaded()
    except Unreadable:
        return Uploaded()
    # One without a file, as an older agent could write it, was never there.
    return lean.replace(found, checkpoints=tuple(one for one in found.checkpoints if one.files))


def of_run(home: Home, request: JobRequest) -> Uploaded:
    """What all jobs of the request's run id verified at its target; for one checkpoint the newest record counts."""
    destination = request.upload.destination if request.upload is not None else ""
    return of_jobs(home, (request.run, request.run_id, request.job_id), destination)


def of_jobs(home: Home, whose: Tuple[str, str, str], destination: str) -> Uploaded:
    """The same for a run's name and id and the id of one of its jobs."""
    run, run_id, own_id = whose
    found = Uploaded(destination)
    parts: List[SentCheckpoint] = []
    dropped: Dict[str, float] = {}
    for job_id in listed(home.run_dir(run)):
        try:
            record = read_record(os.path.join(home.record_dir(run, job_id), names.RECORD), RunRecord)
        except Unreadable:
            continue
        mine = read(home, run, job_id)
        is_mine = job_id == own_id or (record is not None and record.run_id == run_id)
        if is_mine and mine.destination == destination:
            parts += mine.checkpoints
            for one in mine.dropped:
                dropped[one.name] = max(one.at, dropped.get(one.name, one.at))
    for part in sorted(parts, key=lambda one: (one.at, one.pruned_at)):
        if part.name not in dropped or part.at > dropped[part.name]:
            found = found.adding(part)
    return lean.replace(found, dropped=tuple(Dropped(*each) for each in sorted(dropped.items())))


def write(home: Home, request: JobRequest, uploaded: Uploaded) -> None:
    """Make it durable; raises `OSError`."""
    write_record(path_of(home, request.run, request.job_id), uploaded)


def told(uploaded: Uploaded, now: float) -> Optional[Early]:
    """The same in short, for a report, by this host's clock; None when nothing was uploaded early or tried."""
    if not uploaded.checkpoints and not uploaded.trouble:
        return None
    newest = max(uploaded.checkpoints, key=lambda one: one.modified) if uploaded.checkpoints else None
    return Early(
        verified=len(uploaded.checkpoints),
        newest=newest.name if newest is not None else "",
        newest_age_s=round(max(0.0, now - newest.at), 1) if newest is not None else None,
        pruned=sum(one.pruned_at > 0 for one in uploaded.checkpoints),
        trouble=uploaded.trouble,
        trouble_age_s=round(max(0.0, now - uploaded.trouble_since), 1) if uploaded.trouble else None,
        again_s=round(max(0.0, uploaded.again_at - now), 1) if uploaded.trouble else None,
    )
