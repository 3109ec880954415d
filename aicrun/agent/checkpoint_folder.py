"""The entries of a checkpoint folder one by one: what each is, whether it is whole, whether it was uploaded.

It must not change anything there. How many entries and bytes are looked at is bounded; links are not followed.
"""

import os
import re
from typing import Callable, Iterator, List, NamedTuple, Optional, Tuple

from aicrun.agent import checkpoint_files
from aicrun.agent.outputs import MANIFEST
from aicrun.wire import checkpoint as wire
from aicrun.wire.jobs import UploadResult

ENTRIES_MOST = 100_000
# A checkpoint that no reader knows counts as whole when nothing of it changed for so long.
SETTLED_S = 60.0
_NUMBERED = re.compile(r"checkpoint-\d+\Z")
_GROWING = ("tmp-", ".")
_GROWING_ENDS = (".tmp", ".part", ".partial", ".incomplete")


class _Entry(NamedTuple):
    name: str
    path: str
    files: int
    size: int
    modified: float
    top: Tuple[str, ...]
    is_folder: bool


class Moment(NamedTuple):
    """When it is looked, by the wall clock; `is_over`: nobody writes any more; `upload` is one that was verified."""

    now: float
    is_over: bool = False
    upload: Optional[UploadResult] = None


def in_folder(folder: str, moment: Moment, shown: Callable[[str], str] = os.path.basename) -> List[wire.Checkpoint]:
    """What lies there, newest first, without ids; empty when there is no such folder.

    `shown` gives a path's name as it may be told. Files at the top that are a model together are one checkpoint.
    """
    return list(each(folder, moment, shown))


def each(folder: str, moment: Moment, shown: Callable[[str], str] = os.path.basename) -> Iterator[wire.Checkpoint]:
    """The same one by one, each read when it is asked for."""
    entries = sorted(_entries(folder), key=lambda entry: (-entry.modified, entry.name))
    # A trainer that keeps its state writes it last: a folder without one beside others was cut short.
    has_states = any(checkpoint_files.TRAINER_STATE in entry.top for entry in entries if entry.is_folder)
    return (_told(entry, moment, has_states, shown) for entry in entries)


def _told(entry: _Entry, moment: Moment, has_states: bool, shown: Callable[[str], str]) -> wire.Checkpoint:
    is_top, upload = entry.name == wire.TOP, moment.upload
    if entry.is_folder:
        said = checkpoint_files.of_folder(entry.path, list(entry.top))
    else:
        said = checkpoint_files.of_file(entry.path)
    age_s = max(0.0, moment.now - entry.modified)
    complete, why = _complete(entry, said, moment.is_over or age_s >= SETTLED_S, has_states)
    if said.faults and not why:
        file, fault = said.faults[0]
        why = "%s %s" % (shown(os.path.join(entry.path, file) if entry.is_folder else entry.path), fault)
    uploaded_age_s = None
    if upload is not None and entry.modified <= upload.at and complete != wire.NO:
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


def _complete(entry: _Entry, said: checkpoint_files.Said, is_settled: bool, has_states: bool) -> Tuple[str, str]:
    """(one of `COMPLETE`, why not; empty where a file of it says so)"""
    if entry.name != wire.TOP and (entry.name.startswith(_GROWING) or entry.name.endswith(_GROWING_ENDS)):
        return wire.NO, "its name says that it is being written"
    if said.faults:
        return wire.NO, ""
    if has_states and _NUMBERED.match(entry.name) and checkpoint_files.TRAINER_STATE not in entry.top:
        return wire.NO, "%s is missing" % checkpoint_files.TRAINER_STATE
    if said.is_known:
        return wire.YES, ""
    return (wire.SETTLED if is_settled else wire.WRITING), ""


def _entries(folder: str) -> List[_Entry]:
    found: List[_Entry] = []
    loose: List[Tuple[str, os.stat_result]] = []
    left = ENTRIES_MOST
    try:
        with os.scandir(folder) as listing:
            for entry in listing:
                if entry.is_dir(follow_symlinks=False):
                    files, size, modified, top = _below(entry.path, left)
                    left -= files
                    if files:
                        found.append(_Entry(entry.name, entry.path, files, size, modified, tuple(top), True))
                elif entry.is_file(follow_symlinks=False) and entry.name != MANIFEST:
                    loose.append((entry.name, entry.stat(follow_symlinks=False)))
                    left -= 1
                if left <= 0:
                    break
    except OSError:
        return []
    return found + _loose(folder, loose)


def _loose(folder: str, files: List[Tuple[str, os.stat_result]]) -> List[_Entry]:
    """Of the files at the top: one checkpoint of all, where they are a model, else one of each that is by its name."""
    top = tuple(sorted(name for name, _ in files))
    if (
        checkpoint_files.CONFIG in top
        or checkpoint_files.ADAPTER_CONFIG in top
        or checkpoint_files.TRAINER_STATE in top
    ):
        size, modified = sum(state.st_size for _, state in files), max(state.st_mtime for _, state in files)
        return [_Entry(wire.TOP, folder, len(files), size, modified, top, True)]
    return [
        _Entry(name, os.path.join(folder, name), 1, state.st_size, state.st_mtime, (), False)
        for name, state in files
        if name.endswith(checkpoint_files.SINGLE)
        or any(name.endswith(one + end) for one in checkpoint_files.SINGLE for end in _GROWING_ENDS)
    ]


def _below(folder: str, most: int) -> Tuple[int, int, float, List[str]]:
    """(files, bytes, newest change, names of files at its top) below a folder; what cannot be read is not counted."""
    files, size, modified = 0, 0, 0.0
    top: List[str] = []
    for above, _, names_here in os.walk(folder):
        for name in names_here:
            try:
                state = os.lstat(os.path.join(above, name))
            except OSError:
                continue
            files, size, modified = files + 1, size + state.st_size, max(modified, state.st_mtime)
            if above == folder:
                top.append(name)
        if files >= most:
            break
    return files, size, modified, top
