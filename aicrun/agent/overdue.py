"""The deadline of a command whose keeper is gone: whoever asks about the job next has it ended. It must not wait.

A keeper ends its command itself; here only the ordinary stop is asked for, by nobody, and a stopper is started. So it
is for a stop that a person asked for, when whoever was to carry it out is gone.
"""

import os
import time
from typing import Optional

from aicrun.agent import family, handles, launch
from aicrun.agent.evidence import Known, limits_of
from aicrun.agent.history import note
from aicrun.agent.home import Home
from aicrun.agent.records import place_once
from aicrun.agent.state import Place, place
from aicrun.wire import names
from aicrun.wire.jobs import StepStart, StopIntent

# Who asked for such a stop; no person's name has it, for theirs hold an `@`.
BY = "limits.max_duration"


def attend(home: Home, known: Known) -> bool:
    """Have a command without a keeper ended once `max_duration` is over; True when it was asked for just now."""
    where, start = place(known.evidence), _command(known)
    if _is_left_undone(known, where):
        _start_stopper(home.job_dir(known.record.job_id))
        return False
    if where.phase != "command" or where.supervised or start is None or known.leftover_pids:
        return False
    job_dir = home.job_dir(known.record.job_id)
    limits = limits_of(known, job_dir)
    if limits.max_duration_s is None or not family.on_this_boot(start) or ran_s(start) <= limits.max_duration_s:
        return False
    try:
        mine = place_once(os.path.join(job_dir, names.STOP), StopIntent(BY, limits.grace_s, time.time()))
        if mine:
            note(job_dir, "stop_asked", detail="max_duration is over, and its keeper is gone")
    except OSError:
        # A full disk: the next who asks tries again.
        return False
    _start_stopper(job_dir)
    return mine


def _is_left_undone(known: Known, where: Place) -> bool:
    """True when a stop was asked for what still lives, and its keeper is gone."""
    steps = [step.start for step in known.evidence.steps if step.start is not None and step.main_lives]
    if where.phase in ("ended", "never_started") or where.supervised or known.leftover_pids or not steps:
        return False
    # An older one has ended an earlier step: an upload that goes on after it is not meant.
    return known.stop is not None and known.stop.at >= max(start.started_at for start in steps)


def _start_stopper(job_dir: str) -> None:
    try:
        if not handles.is_held(os.path.join(job_dir, names.STOPPER_LOCK)):
            launch.detach("stopper", job_dir)
    except OSError:
        # No process can be had: the next who asks tries again.
        return


def words(stop: Optional[StopIntent]) -> str:
    """What an end that nobody recorded owes to such a stop; empty for any other."""
    return "limits.max_duration was over: the agent ended what was left of it" if stop and stop.by == BY else ""


def _command(known: Known) -> Optional[StepStart]:
    return next((step.start for step in known.evidence.steps if step.step == "command" and step.exit is None), None)


def ran_s(start: StepStart) -> float:
    """How long a step of this boot runs, by the kernel's own clock: nobody can set it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start.ticks / float(os.sysconf("SC_CLK_TCK"))
