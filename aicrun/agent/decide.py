"""The write-once decision of a job, `go` or `no`, and every call that tries to write it (start-protocol, section 2).

Nothing here ever changes or removes a decision. Only progress depends on the gate's clock, never safety.
"""

import os
import time
from typing import Any, Dict, Optional, Tuple

from aicrun.agent import bodies, family, hooks
from aicrun.agent.handles import keeper_lives
from aicrun.agent.history import note
from aicrun.agent.home import Home
from aicrun.agent.launch import poke
from aicrun.agent.records import FULL, NewerRecord, Unreadable, give_room, place_once, read_record
from aicrun.agent.refused import Refused
from aicrun.wire import names
from aicrun.wire.jobs import Decision, RunRecord

Answer = Tuple[Dict[str, Any], bytes]

AWAIT_MOST_S = 60.0
_AWAIT_TICK_S = 0.05
_PROVED = Decision("go", "", "its own steps")


def standing(home: Home, run: str, job_id: str) -> Optional[Decision]:
    """The decision that stands, None while there is none; raises `Unreadable`.

    A decision that was lost or torn since is not undone: whatever began, began after a durable `go`.
    """
    try:
        found = read_record(os.path.join(home.record_dir(run, job_id), names.DECISION), Decision)
    except NewerRecord:
        raise
    except Unreadable:
        if _began(home, run, job_id):
            return _PROVED
        raise
    return _PROVED if found is None and _began(home, run, job_id) else found


def _began(home: Home, run: str, job_id: str) -> bool:
    """True when something is left of a job's steps: its end, their folders, or processes that carry its mark."""
    job_dir = home.job_dir(job_id)
    if os.path.exists(os.path.join(home.record_dir(run, job_id), names.END)):
        return True
    if os.path.isdir(job_dir):
        return os.path.exists(os.path.join(job_dir, names.ATTEMPTS))
    return family.any_marked(job_id)


def decide(home: Home, run: str, job_id: str, wanted: Decision) -> Decision:
    """Write `wanted` if nothing stands; what stands then. The caller holds the host lock.

    Raises `OSError` when the disk refuses it. A `no` has room of its own, so that a full disk keeps nothing reserved.
    """
    path = os.path.join(home.record_dir(run, job_id), names.DECISION)
    if standing(home, run, job_id) is None and _placed(path, wanted):
        give_room(path)
        note(home.job_dir(job_id), wanted.decision, by=wanted.by, detail=wanted.reason)
    hooks.reached("decided")
    found = standing(home, run, job_id)
    if found is None:
        raise Refused("state_unusable", "the decision of job %s cannot be read back" % job_id)
    return found


def _placed(path: str, wanted: Decision) -> bool:
    try:
        return place_once(path, wanted)
    except OSError as error:
        if wanted.decision != "no" or error.errno not in FULL or not give_room(path):
            raise
    return place_once(path, wanted)


def begin(home: Home, run: str, job_id: str, by: str) -> Decision:
    """Decide `go`; what stands then. Where the disk refuses it the reservation ends with it, and `OSError` is raised.

    The caller holds the host lock.
    """
    try:
        return decide(home, run, job_id, go(by))
    except OSError:
        found = decide(home, run, job_id, no("the disk refused its start", "host"))
        poke(home.job_dir(job_id))
        if found.decision == "go":
            return found
        raise


def no(reason: str, by: str) -> Decision:
    """A `no` of now."""
    return Decision("no", reason, by, time.time())


def go(by: str) -> Decision:
    """A `go` of now."""
    return Decision("go", "", by, time.time())


def settle(home: Home, run: str, job_id: str) -> Optional[Decision]:
    """What stands, after what has become certain was written: a dead keeper or a passed gate is `no`.

    The caller holds the host lock, under which a record is made together with its keeper.
    """
    found = standing(home, run, job_id)
    if found is not None:
        return found
    if not keeper_lives(home.job_dir(job_id)):
        return decide(home, run, job_id, no("keeper lost", "host"))
    if gate_passed(home, job_id):
        return decide(home, run, job_id, no("expired", "host"))
    return None


def settled(home: Home, run: str, job_id: str) -> Optional[Decision]:
    """`settle`, taking the lock only when it looks as if something had to be written."""
    found = standing(home, run, job_id)
    if found is not None or (keeper_lives(home.job_dir(job_id)) and not gate_passed(home, job_id)):
        return found
    with home.host_lock():
        return settle(home, run, job_id)


def expire(home: Home, run: str, job_id: str) -> Optional[Decision]:
    """The keeper's timer: write `no` when the gate has passed; what stands, None while it is open."""
    if not gate_passed(home, job_id):
        return None
    with home.host_lock():
        if not gate_passed(home, job_id):
            return standing(home, run, job_id)
        return decide(home, run, job_id, no("expired", "keeper"))


def touched(home: Home, job_id: str) -> None:
    """Restart the gate timer. The file's own text is the time, on the clock that also counts suspend."""
    path = os.path.join(home.job_dir(job_id), names.TOUCH)
    temporary = "%s.%d" % (path, os.getpid())
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as stream:
        stream.write(repr(time.clock_gettime(time.CLOCK_BOOTTIME)))
    os.replace(temporary, path)


def gate_passed(home: Home, job_id: str) -> bool:
    """True when nobody touched the reservation for `GATE_S` seconds."""
    try:
        with open(os.path.join(home.job_dir(job_id), names.TOUCH), encoding="ascii") as stream:
            last = float(stream.read(64))
    except (OSError, ValueError):
        return False
    gate_s = hooks.number("GATE_S", names.GATE_S)
    return time.clock_gettime(time.CLOCK_BOOTTIME) - last > gate_s


def run_of(home: Home, job_id: str) -> str:
    """The run of a job; raises `Refused` (not_found)."""
    run = home.run_of(job_id)
    if run is None:
        raise Refused("not_found", "there is no job %s here" % job_id, {"job": job_id})
    return run


def tombstone(home: Home, job_id: str) -> Optional[Decision]:
    """The `no` of an id that was withdrawn before it was heard of, None when there is none."""
    return read_record(home.tombstone(job_id), Decision)


def confirm(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{job_id, by} -> {decision, reason}: `go` if nothing stands; an id that was withdrawn or buried stays `no`."""
    job_id, by = bodies.job_id(body), bodies.by(body)
    with home.host_lock():
        buried = tombstone(home, job_id)
        if buried is not None:
            return _told(buried)
        run = run_of(home, job_id)
        decision = settle(home, run, job_id) or begin(home, run, job_id, by)
    poke(home.job_dir(job_id))
    return _told(decision)


def withdraw(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{job_id, reason, by} -> {decision, reason}: `no` if nothing stands; an unknown id leaves a tombstone."""
    job_id, by = bodies.job_id(body), bodies.by(body)
    wanted = no(bodies.text(body, "reason", "by client"), by)
    with home.host_lock():
        run = home.run_of(job_id)
        if run is None:
            place_once(home.tombstone(job_id), wanted)
            return _told(tombstone(home, job_id) or wanted)
        decision = settle(home, run, job_id) or decide(home, run, job_id, wanted)
    poke(home.job_dir(job_id))
    return _told(decision)


def unqueue(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{job_id, by} -> {decision, reason}: `no` if the job will never start, else `go`; a started one is not touched.

    A job that waits for cards leaves the line by the write-once mark `names.LEFT`, which its keeper writes as `go`
    when it takes them: whoever is first decides.
    """
    job_id, by = bodies.job_id(body), bodies.by(body)
    with home.host_lock():
        run = run_of(home, job_id)
        decision = settle(home, run, job_id) or decide(home, run, job_id, no("left the line", by))
        if decision.decision == "go":
            decision = _out_of_line(home, run, job_id, by)
    poke(home.job_dir(job_id))
    return _told(decision)


def _out_of_line(home: Home, run: str, job_id: str, by: str) -> Decision:
    folder = home.record_dir(run, job_id)
    record = read_record(os.path.join(folder, names.RECORD), RunRecord)
    waits = record is not None and bool(record.cards) and keeper_lives(home.job_dir(job_id))
    if not waits or os.path.exists(os.path.join(folder, names.END)):
        return go(by)
    path = os.path.join(folder, names.LEFT)
    place_once(path, no("left the line", by))
    return read_record(path, Decision) or go(by)


def await_decision(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{job_id, timeout_s} -> {decision, reason}: long poll; `undecided` after `timeout_s` (60 at most)."""
    job_id = bodies.job_id(body)
    deadline = time.monotonic() + bodies.seconds(body, "timeout_s", 0.0, AWAIT_MOST_S)
    run = run_of(home, job_id)
    while True:
        decision = settled(home, run, job_id)
        if decision is not None:
            return _told(decision)
        if time.monotonic() >= deadline:
            return {"decision": "undecided", "reason": ""}, b""
        time.sleep(_AWAIT_TICK_S)


def touch(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{job_id} -> {}: restart the gate timer of a reservation."""
    job_id = bodies.job_id(body)
    run_of(home, job_id)
    if os.path.isdir(home.job_dir(job_id)):
        touched(home, job_id)
    return {}, b""


def _told(decision: Decision) -> Answer:
    return {"decision": decision.decision, "reason": decision.reason}, b""
