"""What can be seen of a run from outside while it works: values in its log, entries in its checkpoint folder.

Best effort and bounded in time and bytes; whatever fails here is simply not shown. No status ever depends on it.
"""

import os
import re
import signal
from types import FrameType
from typing import Any, Dict, List, Optional, Tuple

from aicrun.agent import log_files
from aicrun.agent.records import Unreadable, read_json
from aicrun.wire import names
from aicrun.wire.seen import Checkpoints

PROGRESS_BYTES = 64 * 1024
PATTERN_S = 0.1
ENTRIES_MOST = 10000
# What lies beside the peaks in the file of a job's samples.
ASIDE = ("schema", "last")
_VALUE_CHARS = 200


class _Slow(Exception):
    pass


def progress(patterns: Dict[str, Any], folder: str) -> Dict[str, str]:
    """The newest match of each pattern in the last 64 KiB of a step's log, its groups joined by `/`."""
    state = log_files.read_state(folder) if patterns else None
    if state is None:
        return {}
    data, _ = log_files.read_bytes(folder, max(0, state.total - PROGRESS_BYTES), PROGRESS_BYTES)
    text = data.decode("utf-8", "replace").replace("\r", "\n")
    found = {}
    for name, wanted in sorted(patterns.items()):
        pattern = wanted.get("pattern") if isinstance(wanted, dict) else wanted
        value = _newest(pattern, text) if isinstance(pattern, str) else None
        if value is not None:
            found[str(name)] = value
    return found


def checkpoints(path: str, now: float) -> Optional[Checkpoints]:
    """The newest entry of the run's checkpoint folder by modification, and totals; None when it has no folder set.

    Files and folders count: a link (`latest`) has no bytes of its own, and a pipe or socket is no checkpoint.
    """
    if not path:
        return None
    entries: List[Tuple[float, str, int]] = []
    left = ENTRIES_MOST
    try:
        with os.scandir(path) as listing:
            for entry in listing:
                if not (entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)):
                    continue
                modified, size, left = _weigh(entry, left)
                entries.append((modified, entry.name, size))
                if left <= 0:
                    break
    except OSError:
        return Checkpoints(path)
    if not entries:
        return Checkpoints(path)
    modified, newest, size = max(entries)
    total = sum(entry[2] for entry in entries)
    return Checkpoints(path, newest, max(0.0, now - modified), size, len(entries), total)


def _weigh(entry: "os.DirEntry[str]", left: int) -> Tuple[float, int, int]:
    """(newest modification, bytes) of one entry with all below it, and how many entries may still be looked at."""
    try:
        state = entry.stat(follow_symlinks=False)
        modified, size, left = state.st_mtime, 0, left - 1
        if not entry.is_dir(follow_symlinks=False):
            return modified, state.st_size, left
        with os.scandir(entry.path) as listing:
            for below in listing:
                if left <= 0:
                    break
                newer, more, left = _weigh(below, left)
                modified, size = max(modified, newer), size + more
    except OSError:
        return 0.0, 0, left - 1
    return modified, size, left


def _newest(pattern: str, text: str) -> Optional[str]:
    """The last match of a user's pattern, given up after `PATTERN_S`: a careless one may take for ever."""
    before = signal.signal(signal.SIGALRM, _too_slow)
    signal.setitimer(signal.ITIMER_REAL, PATTERN_S)
    try:
        last: Optional["re.Match[str]"] = None
        for match in re.finditer(pattern, text, re.MULTILINE):
            last = match
    except (re.error, _Slow, RecursionError, OverflowError):
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if last is None:
        return None
    groups = [group for group in last.groups() if group is not None] or [last.group()]
    return "/".join(groups)[:_VALUE_CHARS]


def _too_slow(_number: int, _frame: Optional[FrameType]) -> None:
    raise _Slow


def sample(job_dir: str, now: float) -> Dict[str, Any]:
    """The newest sample of a running command with its `age_s` by this host's clock, and the peaks so far beside it.

    Empty when nothing was measured. A sampler that died is told by an age that grows.
    """
    path = os.path.join(job_dir, names.TELEMETRY_PEAKS)
    try:
        found, written = read_json(path), os.stat(path).st_mtime
    except (Unreadable, OSError):
        return {}
    last = found.get("last") if isinstance(found, dict) else None
    if not isinstance(last, dict):
        return {}
    peaks = {key: value for key, value in found.items() if key not in ASIDE}
    return dict(last, age_s=round(max(0.0, now - written), 1), peaks=peaks)
