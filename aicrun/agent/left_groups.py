"""Control groups that a keeper which was killed could not remove. It must remove only empty ones that were recorded.

A group is known by the start records of its job alone; the folders of other jobs and other accounts are never listed.
"""

import os
from typing import List, Tuple

from aicrun.agent import cgroups
from aicrun.agent.family import on_this_boot
from aicrun.agent.records import Unreadable, read_record
from aicrun.wire import names
from aicrun.wire.jobs import StepStart


def found(job_dir: str) -> Tuple[str, ...]:
    """The groups of all steps and attempts of a job that are still there."""
    job_id, attempts = os.path.basename(job_dir), os.path.join(job_dir, names.ATTEMPTS)
    groups: List[str] = []
    for attempt in _listed(attempts):
        for step in _listed(os.path.join(attempts, attempt)):
            try:
                start = read_record(os.path.join(attempts, attempt, step, names.STEP_START), StepStart)
            except Unreadable:
                continue
            if start is not None and on_this_boot(start):
                groups += cgroups.recorded(cgroups.name(job_id, start.attempt), start.cgroup, start.cgroup_memory)
    return tuple(dict.fromkeys(groups))


def empty(job_dir: str) -> Tuple[str, ...]:
    """Those of `found` in which nothing lives."""
    return tuple(group for group in found(job_dir) if not cgroups.pids(group))


def remove(job_dir: str) -> None:
    """Remove those in which nothing lives; the caller knows that the job has no keeper."""
    for group in empty(job_dir):
        cgroups.remove(group)


def _listed(folder: str) -> Tuple[str, ...]:
    try:
        return tuple(sorted(os.listdir(folder)))
    except OSError:
        return ()
