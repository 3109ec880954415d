"""Ends the tree of a job whose keeper is gone: TERM, grace, KILL, from what was recorded of its steps.

A detached process of ours, for a grace may take minutes. It must never write a step's exit: nobody waited for it, so
how it ended is unknown. What cannot be ended is named, and the job then counts as not stopped.
"""

import os
import signal
import sys
import time
from typing import Callable, List

from aicrun.agent import children, evidence, family, handles, hidden_names, hooks, left_groups, overdue
from aicrun.agent.ending_tree import STUCK_AFTER_S
from aicrun.agent.history import note
from aicrun.agent.home import Home, open_home
from aicrun.agent.kept import Stuck, StuckProcess
from aicrun.agent.process import Proc, boot_identity
from aicrun.agent.records import Unreadable, place_once, read_record, write_record
from aicrun.agent.refused import Refused
from aicrun.wire import names
from aicrun.wire.jobs import End, StopIntent

_TICK_S = 0.05


def main(job_dir: str) -> int:
    """Stop the job in `job_dir`; one stopper at a time, and none while a keeper lives."""
    children.prepare()
    try:
        if handles.hold(os.path.join(job_dir, names.STOPPER_LOCK), 0.0) is None or handles.keeper_lives(job_dir):
            return 0
        home = open_home(os.environ)
        hidden_names.let_go(home, job_dir)
        job_id = os.path.basename(job_dir)
        run = home.run_of(job_id)
        if run is None:
            return 0
        if _end_tree(job_dir, evidence.gather(home, run, job_id)):
            left_groups.remove(job_dir)
            _record_end(home, evidence.gather(home, run, job_id))
    except (OSError, Refused, Unreadable) as error:
        sys.stderr.write("%s\n" % error)
        return 1
    return 0


def _end_tree(job_dir: str, known: evidence.Known) -> bool:
    """True when nothing of the job lives any more."""
    orphans = family.Orphans(known.record.job_id, evidence.starts_of(known.evidence.steps))
    began = time.monotonic()
    living, members = [start for start in orphans.starts if family.main_lives(start)], orphans.members()
    for start in living:
        family.signal_group(start.pid, start.ticks, signal.SIGTERM)
    family.signal_all(members, signal.SIGTERM)
    if living or members:
        # A second stopper, asked for while the first was at it, finds nobody and has sent nothing.
        note(job_dir, "stop_sent", detail="by the agent, for the keeper is gone")
    if _gone(orphans, lambda: began + _grace_s(job_dir)):
        return True
    note(job_dir, "kill_sent", detail="by the agent, for the keeper is gone")
    until = time.monotonic() + hooks.number("STUCK_S", STUCK_AFTER_S)
    empty, members, near = 0, orphans.members(), orphans.near()
    while empty < 2 and time.monotonic() < until:
        family.kill_all(members, near)
        children.wait(_TICK_S)
        members = orphans.members()
        empty = empty + 1 if not members and near.nobody() else 0
    _tell_stuck(job_dir, members)
    return empty > 1


def _gone(orphans: family.Orphans, deadline: Callable[[], float]) -> bool:
    near = orphans.near()
    while orphans.members() or not near.nobody():
        if time.monotonic() >= deadline():
            return False
        children.wait(_TICK_S)
    return True


def _grace_s(job_dir: str) -> float:
    # Read again and again: a second stop may shorten it.
    try:
        intent = read_record(os.path.join(job_dir, names.STOP), StopIntent)
    except Unreadable:
        intent = None
    return float(intent.grace_s) if intent is not None else 0.0


def _tell_stuck(job_dir: str, members: List[Proc]) -> None:
    if members:
        who = tuple(StuckProcess(member.pid, member.ticks) for member in members)
        write_record(os.path.join(job_dir, names.STUCK), Stuck(who, boot_identity(), time.time()))


def _record_end(home: Home, known: evidence.Known) -> None:
    seen = known.evidence
    if seen.end is not None:
        return
    command = any(step.step == "command" and step.start is not None for step in seen.steps)
    exits = tuple(step.exit for step in seen.steps if step.exit is not None)
    recorded = any(one.step == "command" for one in exits)
    lost = "" if recorded else "supervisor_lost" if command else "never_started"
    why = overdue.words(known.stop) or "stopped after its keeper was gone"
    detail = "%s; nobody could see how it ended" % why
    due = evidence.next_attempt(known)
    end = End(
        seen.attempt, time.time(), exits, known.upload, known.stop, lost, detail if lost else "", next_attempt=due
    )
    place_once(os.path.join(home.record_dir(known.record.run, known.record.job_id), names.END), end)
