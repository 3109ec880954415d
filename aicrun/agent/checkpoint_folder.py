"""The entries of a checkpoint folder one by one: what each is, whether it is whole, whether it was uploaded.

It must not change anything there. How many entries and bytes are looked at is bounded; links are not followed.
"""

import os
import re
import stat
from typing import Callable, Iterator, List, NamedTuple, Optional, Tuple

from aicrun.agent import checkpoint_files
from aicrun.agent.outputs import MANIFEST, PRUNED, printable
from aicrun.wire import checkpoint as wire
from aicrun.wire.jobs import UploadResult

ENTRIES_MOST = 100_000
# A checkpoint that no reader knows counts as whole when nothing of it changed for so long.
SETTLED_S = 60.0
# Folders that are checkpoints by their names, whatever lies in them.
_NAMED = re.compile(r"(?:^|[-_.])(?:last|latest|best|final|checkpoint|ckpt|epoch|model|state)(?:$|[-_.=\d])", re.I)
_NUMBERED = re.compile(r"checkpoint-\d+\Z")
_GROWING = ("tmp-", ".")
_GROWING_ENDS = (".tmp", ".part", ".partial", ".incomplete")


class _Entry(NamedTuple):
    """`oldest` is of the files that hold weights or states, of all where there are none."""

    name: str
    path: str
    files: int
    size: int
    modified: float
    oldest: float
    top: Tuple[str, ...]
    is_folder: bool


class Moment(NamedTuple):
    """When it is looked, by the wall clock; `is_over`: nobody writes any more; `upload` is one that was verified."""

    now: float
    is_over: bool = False
    upload: Optional[UploadResult] = None


class Seen(NamedTuple):
    """A checkpoint as it is told, without its id, its path, and the age of the oldest file that belongs to it."""

    told: wire.Checkpoint
    path: str
    oldest_age_s: float


def in_folder(folder: str, moment: Moment, shown: Callable[[str], str] = os.path.basename) -> List[wire.Checkpoint]:
    """What lies there, newest first; empty when there is no such folder. Raises `OSError` when it cannot be listed.

    `shown` gives a path's name as it may be told. Files at the top that are a model together are one checkpoint. What
    neither its name nor a file of it tells to be a checkpoint (logs, samples) is none.
    """
    return [seen.told for seen in each(folder, moment, shown)]


def each(folder: str, moment: Moment, shown: Callable[[str], str] = os.path.basename) -> Iterator[Seen]:
    """The same one by one, each read when it is asked for."""
    entries = sorted(_entries(folder), key=_newest_first)
    # A trainer that keeps its state writes it last: a folder without one beside others was cut short.
    has_states = any(checkpoint_files.TRAINER_STATE in entry.top for entry in entries if entry.is_folder)
    return (_seen(entry, moment, has_states, shown) for entry in entries)


def _newest_first(entry: _Entry) -> Tuple[float, int, str]:
    # Clocks of disks are coarse: of two that were written in one tick the later step is newer.
    return (-entry.modified, -(checkpoint_files.step_of(entry.name) or 0), entry.name)


def one(path: str, moment: Moment, shown: Callable[[str], str] = os.path.basename) -> Seen:
    """The file or folder at `path`, whatever it is called; raises `OSError`."""
    state, name = os.stat(path), os.path.basename(path)
    if stat.S_ISDIR(state.st_mode):
        entry = _below(name, path, ENTRIES_MOST)
    else:
        entry = _Entry(name, path, 1, state.st_size, state.st_mtime, state.st_mtime, (), False)
    return _seen(entry, moment, False, shown)


def _seen(entry: _Entry, moment: Moment, has_states: bool, shown: Callable[[str], str]) -> Seen:
    return Seen(_told(entry, moment, has_states, shown), entry.path, max(0.0, moment.now - entry.oldest))


def _told(entry: _Entry, moment: Moment, has_states: bool, shown: Callable[[str], str]) -> wire.Checkpoint:
    is_top, upload, said = entry.name == wire.TOP, moment.upload, _said(entry)
    age_s = max(0.0, moment.now - entry.modified)
    complete, why = _complete(entry, said, moment.is_over or age_s >= SETTLED_S, has_states)
    if said.faults and not why:
        file, fault = said.faults[0]
        why = "%s %s" % (shown(os.path.join(entry.path, file) if entry.is_folder else entry.path), fault)
    uploaded_age_s = None
    if upload is not None and entry.modified <= upload.at and complete != wire.NO and not _left_out(entry, upload):
        uploaded_age_s = round(max(0.0, moment.now - upload.at), 1)
    return wire.Checkpoint(
        id="",
        name=entry.name if is_top else shown(entry.path),
        bytes=entry.size,
        files=entry.files,
        age_s=round(age_s, 1),
        complete=complete,
        why=why,
        step=said.step if said.step is not None or is_top else checkpoint_files.step_of(entry.name),
        train_loss=said.train_loss,
        eval_loss=said.eval_loss,
        model=said.model,
        version=said.version,
        inference_ready=said.inference_ready and complete == wire.YES,
        uploaded_age_s=uploaded_age_s,
    )


def _left_out(entry: _Entry, upload: UploadResult) -> bool:
    """Whether an upload names the entry, or a file of it, among what it did not send."""
    lines = tuple("%s: " % printable(name) for name in (entry.top if entry.name == wire.TOP else (entry.name,)))
    return any(line.startswith(lines) for line in upload.skipped)


def _said(entry: _Entry) -> checkpoint_files.Said:
    try:
        if entry.is_folder:
            return checkpoint_files.of_folder(entry.path, list(entry.top))
        return checkpoint_files.of_file(entry.path)
    except Exception:  # noqa: BLE001  somebody else's bytes must not end a keeper, nor take a machine out of a list
        return checkpoint_files.Said(faults=(("", "cannot be understood"),))


def _complete(entry: _Entry, said: checkpoint_files.Said, is_settled: bool, has_states: bool) -> Tuple[str, str]:
    """(one of `COMPLETE`, why not; empty where a file of it says so)"""
    if entry.name != wire.TOP and (entry.name.startswith(_GROWING) or entry.name.endswith(_GROWING_ENDS)):
        return wire.NO, "its name says that it is being written"
    if said.faults:
        return wire.NO, ""
    if has_states and _NUMBERED.match(entry.name) and checkpoint_files.TRAINER_STATE not in entry.top:
        return wire.NO, "%s is missing" % checkpoint_files.TRAINER_STATE
    # Without a state it may be the first of a trainer that keeps one, cut short.
    if said.is_known and not (_NUMBERED.match(entry.name) and checkpoint_files.TRAINER_STATE not in entry.top):
        return wire.YES, ""
    return (wire.SETTLED if is_settled else wire.WRITING), ""


def _entries(folder: str) -> List[_Entry]:
    found: List[Tuple[os.stat_result, "os.DirEntry[str]"]] = []
    try:
        with os.scandir(folder) as listing:
            for entry in listing:
                if entry.name.startswith(PRUNED):
                    continue
                try:
                    found.append((entry.stat(follow_symlinks=False), entry))
                except OSError:
                    # A checkpoint that is rotated away meanwhile.
                    continue
    except FileNotFoundError:
        return []
    # The newest first: what is beyond the bound is what is of least use.
    found.sort(key=lambda pair: -pair[0].st_mtime)
    folders: List[_Entry] = []
    left = ENTRIES_MOST - len(found)
    for _, entry in found:
        if left > 0 and entry.is_dir(follow_symlinks=False):
            below = _below(entry.name, entry.path, left)
            left -= below.files
            if below.files and _is_checkpoint(below):
                folders.append(below)
    loose = [(entry.name, state) for state, entry in found if stat.S_ISREG(state.st_mode) and entry.name != MANIFEST]
    return folders + _loose(folder, loose)


def _is_checkpoint(entry: _Entry) -> bool:
    if checkpoint_files.step_of(entry.name) is not None or _NAMED.search(entry.name):
        return True
    return any(checkpoint_files.is_part(name) for name in entry.top)


def _loose(folder: str, files: List[Tuple[str, os.stat_result]]) -> List[_Entry]:
    """Of the files at the top: one checkpoint of all, where they are a model, else one of each that is by its name."""
    top = tuple(sorted(name for name, _ in files))
    is_model = checkpoint_files.CONFIG in top or checkpoint_files.ADAPTER_CONFIG in top
    if checkpoint_files.TRAINER_STATE in top or (is_model and any(map(checkpoint_files.is_model, top))):
        times = [state.st_mtime for _, state in files]
        size = sum(state.st_size for _, state in files)
        return [_Entry(wire.TOP, folder, len(files), size, max(times), min(times), top, True)]
    return [
        _Entry(name, os.path.join(folder, name), 1, state.st_size, state.st_mtime, state.st_mtime, (), False)
        for name, state in files
        if name.endswith(checkpoint_files.SINGLE)
        or any(name.endswith(one + end) for one in checkpoint_files.SINGLE for end in _GROWING_ENDS)
    ]


def _below(name: str, folder: str, most: int) -> _Entry:
    """What lies below a folder, of at most that many files and folders; what cannot be read is not counted."""
    size, modified, top, looked = 0, 0.0, [], 0
    all_of: List[float] = []
    parts: List[float] = []
    for above, folders, files in os.walk(folder):
        for file in files:
            try:
                state = os.lstat(os.path.join(above, file))
            except OSError:
                continue
            size, modified = size + state.st_size, max(modified, state.st_mtime)
            all_of.append(state.st_mtime)
            if checkpoint_files.is_part(file):
                parts.append(state.st_mtime)
            if above == folder:
                top.append(file)
            if len(all_of) >= most:
                break
        looked += len(folders)
        if len(all_of) + looked >= most:
            break
    oldest = min(parts or all_of or [0.0])
    return _Entry(name, folder, len(all_of), size, modified, oldest, tuple(top), True)
