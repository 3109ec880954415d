"""Names in a run's checkpoint folder that hold a secret of it: hidden in what is told, also when the value is gone.

A file is known again by its inode, so that nothing is kept from which a value could be guessed. It must not rename
anything: the file is the run's own.
"""

import os
from typing import Dict, Iterator

from aicrun.agent import handles, vault
from aicrun.agent.home import Home, listed
from aicrun.agent.records import Unreadable, read_json, read_record, write_record
from aicrun.agent.redact import Redactor
from aicrun.wire import names
from aicrun.wire.jobs import SCHEMA, JobRequest

ENTRIES_MOST = 10000


def let_go(home: Home, job_dir: str) -> None:
    """Remove the values that are kept for the job, once what its checkpoint folder shows of them is remembered."""
    try:
        _remember(home, job_dir, Redactor(vault.read(job_dir).values()))
    except (OSError, Unreadable):
        # The values go all the same: a name that is shown is less than a value that stays.
        pass
    finally:
        vault.remove(job_dir)


def let_go_unneeded(home: Home) -> None:
    """`let_go` for every job that has no keeper: nobody will ask for them any more."""
    for job_id in listed(home.jobs()):
        job_dir = os.path.join(home.jobs(), job_id)
        if not any(name.startswith(names.SECRETS) for name in listed(job_dir)):
            continue
        # Under the lock no job is just being made, or its keeper just being started.
        with home.host_lock():
            if not handles.keeper_lives(job_dir):
                let_go(home, job_dir)


def shown(home: Home, run: str, job_id: str, path: str) -> str:
    """The name at the end of `path`, a file or folder among the job's checkpoints, as it may be told."""
    name = os.path.basename(path)
    try:
        told = Redactor(vault.read(home.job_dir(job_id)).values()).text(name)
        hidden = read_json(os.path.join(home.record_dir(run, job_id), names.HIDDEN_NAMES)) or {}
        return str(hidden["names"].get(_key(os.lstat(path)), told)) if "names" in hidden else told
    except (OSError, Unreadable):
        return vault.HIDDEN


def _remember(home: Home, job_dir: str, redactor: Redactor) -> None:
    request = read_record(os.path.join(job_dir, names.REQUEST), JobRequest) if redactor else None
    if request is None or not request.checkpoints:
        return
    found: Dict[str, str] = {}
    for count, entry in enumerate(_entries(request.checkpoints)):
        told = redactor.text(entry.name)
        if told != entry.name:
            found[_key(entry.stat(follow_symlinks=False))] = told
        if count >= ENTRIES_MOST:
            break
    if found:
        path = os.path.join(home.record_dir(request.run, request.job_id), names.HIDDEN_NAMES)
        write_record(path, {"schema": SCHEMA, "names": found})


def _entries(folder: str) -> Iterator["os.DirEntry[str]"]:
    with os.scandir(folder) as listing:
        for entry in listing:
            yield entry
            if entry.is_dir(follow_symlinks=False):
                yield from _entries(entry.path)


def _key(state: os.stat_result) -> str:
    return "%d:%d" % (state.st_dev, state.st_ino)
