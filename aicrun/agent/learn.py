"""What is learned of a job that has ended: measured facts, and its block in the machine's notes.

It must never touch the job's end: that stands already, and what goes wrong here is an event in its history.
"""

import time

from aicrun.agent import facts, notes
from aicrun.agent.evidence import gather
from aicrun.agent.history import note
from aicrun.agent.home import Home
from aicrun.agent.report import report_from
from aicrun.wire.codec import replace
from aicrun.wire.jobs import JobRequest


def learn(home: Home, request: JobRequest) -> None:
    """Measure and write down what is to be had; never raises."""
    try:
        known = gather(home, request.run, request.job_id)
        if known.evidence.end is not None:
            # An upload after the end has a keeper of its own, which calls here: it is no life of the job.
            known = replace(known, evidence=replace(known.evidence, keeper_lives=False, tree_lives=False))
        report = report_from(home, known, time.time())
        measured = facts.measure(home, request, report)
        notes.record(home, request, report, measured)
    except Exception as error:  # noqa: BLE001  a notes file never touches an end
        note(home.job_dir(request.job_id), "notes_failed", detail="%s: %s" % (type(error).__name__, error))
