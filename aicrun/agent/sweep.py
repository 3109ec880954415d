"""What goes a week after it was needed: logs and private files of ended jobs, unused store contents, old agents.

It must not touch run records, workspaces, working trees, environments or checkpoints. Everything goes through a trash
folder, so that a folder is there whole or not at all.
"""

import os
import shutil
import time
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from aicrun.agent import cgroups, handles, hidden_names, keepers, left_groups
from aicrun.agent.digest import bundle_root
from aicrun.agent.home import Home
from aicrun.agent.kept import Launch
from aicrun.agent.process import boot_identity
from aicrun.agent.records import Unreadable, read_json, read_record
from aicrun.wire import lean, names
from aicrun.wire.jobs import Decision, End, JobRequest

WEEK_S = names.LOGS_KEPT_S
# A content may lie between the push and the start that needs it: never removed earlier, whatever a person asks.
STORE_LEAST_S = 3600


@lean.dataclass(frozen=True)
class Row:
    """One thing to remove: `what` is `job`, `store`, `agent`, `group` or `trash`; `bytes` as its files say.

    Of a job also its `run`, its `job_id`, and how long ago it ended.
    """

    what: str
    path: str
    bytes: int
    why: str
    run: str = ""
    job_id: str = ""
    ended_age_s: Optional[float] = None


def sweep(home: Home, now: float, older_than_s: float = WEEK_S) -> Tuple[Row, ...]:
    """Remove what is due at `now` (seconds since the epoch) and say what it was; one that resists is left for later."""
    _freshen(bundle_root())
    hidden_names.let_go_unneeded(home)
    done = []
    for row in due(home, now, older_than_s):
        if _removed(home, row):
            done.append(row)
    return tuple(done)


def due(home: Home, now: float, older_than_s: float) -> Tuple[Row, ...]:
    """What `sweep` would remove; changes nothing."""
    rows = list(_groups(home)) + list(_jobs(home, now, older_than_s))
    rows += _store(home, now - max(older_than_s, STORE_LEAST_S))
    rows += _agents(home, now - max(older_than_s, STORE_LEAST_S))
    for trash in dict.fromkeys((home.trash(), home.record_trash())):
        rows += [Row("trash", path, _bytes(path), "left by an interrupted removal") for path in _listed(trash)]
    return tuple(rows)


def gc(home: Home, body: Dict[str, Any], payload: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Call `gc`: the rows that were removed, or with `dry_run` would be; `older_than_s` defaults to a week."""
    del payload
    older_than_s = float(body.get("older_than_s", WEEK_S))
    rows = due(home, time.time(), older_than_s) if body.get("dry_run") else sweep(home, time.time(), older_than_s)
    return {"rows": [lean.asdict(row) for row in rows]}, b""


def _groups(home: Home) -> Iterator[Row]:
    """Empty control groups of jobs whose keeper was killed; before their folder goes, which alone names them."""
    for path in _listed(home.jobs()):
        if not handles.keeper_lives(path):
            for group in left_groups.empty(path):
                yield Row("group", group, 0, "left by a keeper that was killed; nothing lives in it")


def _jobs(home: Home, now: float, older_than_s: float) -> Iterator[Row]:
    for path in _listed(home.jobs()):
        request, ended_at = _ended(home, path)
        if request is None or ended_at is None or ended_at >= now - older_than_s or handles.keeper_lives(path):
            continue
        if not _is_of_a_young_boot(path, older_than_s):
            named = (request.run, request.job_id, round(now - ended_at, 1))
            yield Row("job", path, _bytes(path), "ended; its record stays", *named)


def _is_of_a_young_boot(job_dir: str, older_than_s: float) -> bool:
    """True for a job of this boot when that is younger than `older_than_s`: the clock was set far ahead since."""
    try:
        kept = read_record(os.path.join(job_dir, names.LAUNCH), Launch)
    except Unreadable:
        return False
    boot = boot_identity()
    boot_age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - boot.init_ticks / float(os.sysconf("SC_CLK_TCK"))
    return kept is not None and kept.boot == boot and boot_age_s < older_than_s


def _ended(home: Home, job_dir: str) -> Tuple[Optional[JobRequest], Optional[float]]:
    """The job in a folder, and when it ended; None for what is not known."""
    # A job without a recorded end is never swept: its folder is the only evidence of what became of it.
    try:
        request = read_record(os.path.join(job_dir, names.REQUEST), JobRequest)
        if request is None:
            return None, None
        record = home.record_dir(request.run, request.job_id)
        end = read_record(os.path.join(record, names.END), End)
        if end is not None:
            return request, end.at
        decision = read_record(os.path.join(record, names.DECISION), Decision)
    except Unreadable:
        return None, None
    return request, decision.at if decision is not None and decision.decision == "no" else None


def _store(home: Home, before: float) -> Iterator[Row]:
    objects = os.path.join(home.store(), "objects")
    folders = [os.path.join(home.store(), "trees"), os.path.join(home.store(), "git")] + _listed(objects)
    for path in (path for folder in folders for path in _listed(folder)):
        touched = _touched_at(path)
        if touched is not None and touched < before:
            yield Row("store", path, _bytes(path), "not asked for since; a client sends it again")


def _agents(home: Home, before: float) -> Iterator[Row]:
    used = _agents_in_use(home) | {os.path.basename(bundle_root())}
    for path in _listed(os.path.join(home.root, names.AGENTS)):
        touched = _touched_at(path)
        if os.path.basename(path) not in used and touched is not None and touched < before:
            yield Row("agent", path, _bytes(path), "another version, and no job uses it")


def _agents_in_use(home: Home) -> Set[str]:
    used = set()
    for path in _listed(home.jobs()):
        try:
            data = read_json(os.path.join(path, names.LAUNCH))
        except Unreadable:
            continue
        if isinstance(data, dict) and handles.keeper_lives(path):
            used.add(os.path.basename(str(data.get("agent", ""))))
    return used


def _removed(home: Home, row: Row) -> bool:
    try:
        if row.what in ("trash", "store"):
            _erase(row.path)
            return True
        if row.what == "group":
            return cgroups.remove(row.path)
        if row.what == "job":
            keepers.forget_unit(row.path)
        trash = home.trash() if row.what == "job" else home.record_trash()
        grave = os.path.join(trash, os.path.basename(row.path))
        with home.host_lock():
            if row.what == "job" and handles.keeper_lives(row.path):
                return False
            os.rename(row.path, grave)
        shutil.rmtree(grave)
    except OSError:
        return False
    return True


def _erase(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _listed(folder: str) -> List[str]:
    try:
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    except OSError:
        return []


def _touched_at(path: str) -> Optional[float]:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return None


def _freshen(path: str) -> None:
    try:
        os.utime(path)
    except OSError:
        # A checkout or a read-only folder; nobody sweeps those.
        pass


def _bytes(path: str) -> int:
    total = 0
    for at, _, files in os.walk(path):
        for name in files:
            try:
                total += os.lstat(os.path.join(at, name)).st_size
            except OSError:
                continue
    if not os.path.isdir(path):
        try:
            total = os.lstat(path).st_size
        except OSError:
            total = 0
    return total
