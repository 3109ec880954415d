"""What a keeper makes of SIGTERM from the service manager: a stop of its unit, or the end of all around it.

From anybody else it is a wake-up and nothing more: no command of a person ends a keeper and leaves its run behind. It
must not end anything itself; whoever waits for a child sees it out.
"""

import os
import time
from typing import Optional

from aicrun.agent import children, units
from aicrun.agent.history import note
from aicrun.agent.records import write_kept
from aicrun.agent.wishes import Wishes
from aicrun.wire import names
from aicrun.wire.jobs import StopIntent
from aicrun.wire.launched import Launched

BY = "systemctl stop"
# A shutdown waits for this answer.
ASK_S = 2.0
_MANAGER = "systemd"


class Dismissal:
    """Called with the pid that sent SIGTERM to the keeper of `job_dir`."""

    def __init__(self, job_dir: str, wishes: Wishes, launched: Optional[Launched]) -> None:
        self._job_dir = job_dir
        self._wishes = wishes
        self._mode = launched.mode if launched is not None else ""
        self._unit = launched.unit if launched is not None else ""

    def __call__(self, sender: int) -> None:
        """Take it for a stop of the run; raises `children.Leave` when more than the run is being ended."""
        if units.name_of(sender) != _MANAGER:
            return
        tools = units.Tools(os.environ, ASK_S)
        host = units.stopping("A", tools)
        if host:
            raise children.Leave("reboot", "the machine was shut down")
        own = self._unit and self._mode == "B"
        user = units.stopping("B", tools) if own else False
        if host is None or user is None:
            # No stop of a person's may be made of it. Whether it was a shutdown shows in the next start of the machine.
            raise children.Leave("", "the service manager ended this keeper, and systemctl did not tell for what")
        if self._unit and not user:
            self._stop()
            return
        around = "its user manager was ended" if self._unit else "the service manager ended %s" % _around()
        raise children.Leave("supervisor_lost", around)

    def _stop(self) -> None:
        if self._wishes.any_stop() is not None:
            return
        intent = StopIntent(BY, self._wishes.limits().grace_s, time.time())
        try:
            write_kept(os.path.join(self._job_dir, names.STOP), intent)
        except OSError:
            # Full, or gone: the manager waits for an end, and the job's end, whose room is reserved, tells the stop.
            self._wishes.ask(intent)
        note(self._job_dir, "stop_asked", by=BY)


def _around() -> str:
    group = units.cgroup().rstrip("/")
    return "all that was in %s" % os.path.basename(group) if group else "all that was around it"
