"""What people want of a running job now: its stop intent, its limits and its retries, re-read when their files change.

It must not act. What cannot be read now stands as it was read last, for a keeper must neither fall over what somebody
else wrote nor act on a guess.
"""

import os
from typing import Dict, Optional, Set, Tuple, Type, TypeVar

from aicrun.agent.kept import Supervision
from aicrun.agent.records import Unreadable, read_record
from aicrun.wire import lean, names
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
        # There, never read yet, and not to be read now.
        self._hidden: Set[str] = set()
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
        """The limits of now; no deadline where they were changed and nobody can read how."""
        changed = self._current(self._supervision_path, Supervision)
        if changed is None and self._supervision_path in self._hidden:
            return lean.replace(self._request.limits, max_duration_s=None, stall_s=None)
        return changed.limits if changed is not None else self._request.limits

    def retry(self) -> Retry:
        """The retry rule of now."""
        changed = self._current(self._supervision_path, Supervision)
        return changed.retry if changed is not None and changed.retry is not None else self._request.retry

    def _current(self, path: str, kind: Type[T]) -> Optional[T]:
        """What stands there, or stood when it was read last; None when nothing ever did."""
        try:
            state = os.stat(path, follow_symlinks=False)
            key = (state.st_ino, state.st_mtime_ns, state.st_size)
            if self._seen.get(path) != key:
                found = read_record(path, kind)
                self._seen[path] = key
                self._read[path] = found
            self._hidden.discard(path)
        except (FileNotFoundError, NotADirectoryError):
            self._hidden.discard(path)
        except (OSError, Unreadable):
            # Not kept as seen: a disk that fails for a moment is asked again.
            self._hidden.add(path)
        value = self._read.get(path)
        return value if isinstance(value, kind) else None
