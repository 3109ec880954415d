"""What people want of a running job now: its stop intent, its limits and its retries, re-read when their files change.

It must not act. A broken file counts as no wish, for a keeper must not fall over what somebody else wrote.
"""

import os
from typing import Dict, Optional, Tuple, Type, TypeVar

from aicrun.agent.kept import Supervision
from aicrun.agent.records import Unreadable, read_record
from aicrun.wire import names
from aicrun.wire.jobs import JobRequest, Limits, Retry, StopIntent

T = TypeVar("T")


class Wishes:
    """The wishes for one job; cheap to ask often."""

    def __init__(self, job_dir: str, record_dir: str, request: JobRequest) -> None:
        # Beside the record it stands when the job's folder was taken away.
        self._stop_paths = (os.path.join(job_dir, names.STOP), os.path.join(record_dir, names.STOP))
        self._supervision_path = os.path.join(record_dir, names.SUPERVISION)
        self._request = request
        self._seen: Dict[str, Tuple[int, int, int]] = {}
        self._read: Dict[str, object] = {}
        self._served = -1.0
        self._asked: Optional[StopIntent] = None

    def stop(self) -> Optional[StopIntent]:
        """The stop that is asked for and not served yet."""
        intent = self.any_stop()
        return intent if intent is not None and intent.at > self._served else None

    def any_stop(self) -> Optional[StopIntent]:
        """The stop intent, served or not."""
        found = [intent for path in self._stop_paths for intent in (self._current(path, StopIntent),) if intent]
        return found[-1] if found else self._asked

    def ask(self, intent: StopIntent) -> None:
        """A stop that no disk took: it counts for as long as this process lives, unless a file says another."""
        self._asked = intent

    def served(self, intent: StopIntent) -> None:
        """A stop has ended its step: what runs after it (an upload, always) is not stopped by it."""
        self._served = intent.at

    def limits(self) -> Limits:
        """The limits of now."""
        changed = self._current(self._supervision_path, Supervision)
        return changed.limits if changed is not None else self._request.limits

    def retry(self) -> Retry:
        """The retry rule of now."""
        changed = self._current(self._supervision_path, Supervision)
        return changed.retry if changed is not None and changed.retry is not None else self._request.retry

    def _current(self, path: str, kind: Type[T]) -> Optional[T]:
        try:
            state = os.stat(path, follow_symlinks=False)
        except OSError:
            return None
        key = (state.st_ino, state.st_mtime_ns, state.st_size)
        if self._seen.get(path) != key:
            try:
                self._read[path] = read_record(path, kind)
            except Unreadable:
                self._read[path] = None
            self._seen[path] = key
        value = self._read.get(path)
        return value if isinstance(value, kind) else None
