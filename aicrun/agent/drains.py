"""The call `drain`: no new run starts here, for this account or, said by root, for all; what runs goes on.

It must not touch a job: a keeper in line sees the mark by itself (`card_hold.py`), a start is refused (`reserve.py`).
"""

import os
from typing import Any, Dict, Optional, Tuple

from aicrun.agent import bodies, drain_marks, handles, line, lock_folder, tickets
from aicrun.agent.home import Home
from aicrun.agent.refused import Refused
from aicrun.wire.codec import to_json
from aicrun.wire.facts import Drain


def drain(home: Home, body: Dict[str, Any], payload: bytes) -> Tuple[Dict[str, Any], bytes]:
    """{on, why, by} -> {drain, going, waiting}: the mark that counts now, jobs that go on, jobs that stand in line.

    Counts are of the jobs that the mark is about. Raises `Refused`: drained when a mark stays that this account may not
    take away, no_lock when the folder cannot be written.
    """
    del payload
    on = body.get("on")
    if not isinstance(on, bool):
        raise Refused("invalid_request", "on: true or false is expected", {"field": "on"})
    why, by = bodies.text(body, "why", "")[: drain_marks.TEXT_MOST], bodies.by(body)
    with lock_folder.opened(lock_folder.here()) as folder:
        if on:
            drain_marks.put(folder, why, by)
        else:
            drain_marks.lift(folder)
        mark = drain_marks.seen(folder)
        if mark is not None and not on:
            raise drain_marks.refusal(mark, "only %s lifts it" % mark.account)
        everybody = os.geteuid() == drain_marks.ROOT
        here = [one for one in tickets.read(folder) if one.live and (everybody or one.uid == os.geteuid())]
        waiting = [one.job_id for one in here if one.says == line.WAITING]
        going = {one.job_id for one in here}
    going.update(job_id for job_id in os.listdir(home.jobs()) if handles.keeper_lives(home.job_dir(job_id)))
    found = None if mark is None else to_json(mark)
    return {"drain": found, "going": len(going.difference(waiting)), "waiting": len(waiting)}, b""


def now() -> Optional[Drain]:
    """The mark that counts, for who holds no folder. It makes none; where no folder can be trusted there is no mark."""
    try:
        with lock_folder.seen(lock_folder.here()) as folder:
            return None if folder is None else drain_marks.seen(folder)
    except (Refused, OSError):
        return None
