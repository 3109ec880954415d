"""Which checkpoint a run goes on from: the newest of its own that is whole. It must not change or remove one."""

import os
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

from aicrun.agent import checkpoint_folder, hidden_names, history
from aicrun.agent.home import Home, listed
from aicrun.agent.programs import Program
from aicrun.agent.records import Unreadable, read_record
from aicrun.agent.refused import Refused
from aicrun.wire import checkpoint as wire
from aicrun.wire import lean, names
from aicrun.wire.checkpoint import Resume
from aicrun.wire.jobs import JobReport, JobRequest, RunRecord

LATEST = "latest"
_SKIPPED_MOST = 3


class Start(NamedTuple):
    """The checkpoint, its path and its age, all empty when there is none; `skipped` are newer ones, each with why."""

    name: str = ""
    path: str = ""
    age_s: float = 0.0
    skipped: Tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """For the run's history."""
        told = "from %s" % self.name if self.name else "from nothing"
        return "; ".join((told, *self.skipped[:_SKIPPED_MOST]))


def with_start(home: Home, request: JobRequest, program: Program) -> Program:
    """The command's program as it goes on from there: the variable that names it, and the arguments of the rule.

    Nobody of the run may write into its checkpoint folder any more. What was found stands in the run's history.
    Raises `Refused` (start_failed) when the folder cannot be read: what lies there must not be begun over.
    """
    if request.resume is None:
        return program

    def shown(path: str) -> str:
        return hidden_names.shown(home, request.run, request.job_id, path)

    try:
        found = start(home, (request.run, request.run_id), request.checkpoints, request.resume, shown)
    except OSError as error:
        facts = {"folder": request.checkpoints}
        told = "the checkpoints in %s cannot be read: %s" % (request.checkpoints, error.strerror)
        raise Refused("start_failed", told, facts) from error
    history.note(home.job_dir(request.job_id), "resumes", detail=found.words)
    env = dict(program.env, **{names.RESUME_FROM: found.path})
    more = tuple(found.path.join(pieces) for pieces in request.resume.args) if found.path else ()
    return lean.replace(program, env=env, argv=program.argv + (more if request.is_argv else ()))


def start(home: Home, run: Tuple[str, str], folder: str, wanted: Resume, shown: Callable[[str], str]) -> Start:
    """What `run`, a name and an id, would go on from now; `shown` gives a path's name as it may be told.

    The newest of those that a reader found whole, else the newest that has settled. Of a folder that others use too it
    is only what came since the run began. Raises `OSError` when the folder cannot be read.
    """
    now = time.time()
    began = began_at(home, run, folder)
    skipped: List[str] = []
    settled = Start()
    for seen in _newest_first(folder, wanted, now):
        why = _why_not(seen, wanted, now - began)
        if why:
            skipped.append("%s skipped: %s" % (wanted.path or shown(seen.path), why))
        elif seen.told.complete == wire.YES:
            return Start(shown(seen.path), seen.path, seen.told.age_s, tuple(skipped))
        elif not settled.path:
            settled = Start(shown(seen.path), seen.path, seen.told.age_s, tuple(skipped))
    if wanted.path and not settled.path and not skipped:
        skipped.append("%s is not there" % wanted.path)
    return settled if settled.path else Start(skipped=tuple(skipped))


def began_at(home: Home, run: Tuple[str, str], folder: str) -> float:
    """When `run`, a name and an id, began to fill `folder`, by this host's clock; 0 where nobody else does."""
    # Its own folder holds nothing of others, however the clocks of host and disk differ.
    return 0.0 if os.path.basename(folder.rstrip("/")) == run[1] else _began(home, *run)


def told(home: Home, report: JobReport) -> JobReport:
    """The report of a run that resumes, with what it would go on from: dear, so that only who plans or looks asks."""
    kept = report.checkpoints
    if kept is None or not kept.path or "resume" not in report.execution:
        return report

    def shown(path: str) -> str:
        return hidden_names.shown(home, report.run, report.job_id, path)

    try:
        found = start(home, (report.run, report.run_id), kept.path, of_execution(report.execution), shown)
    except OSError as error:
        return lean.replace(report, checkpoints=lean.replace(kept, unreadable=error.strerror or "cannot be read"))
    age_s = round(found.age_s, 1) if found.name else None
    more = lean.replace(kept, start=found.name, start_age_s=age_s, skipped="; ".join(found.skipped[:1]))
    return lean.replace(report, checkpoints=more)


def of_execution(execution: Dict[str, Any]) -> Resume:
    """The rule as a spec has it, without the arguments."""
    written = execution.get("resume")
    rule = written if isinstance(written, dict) else {}
    path = str(rule.get("from") or LATEST)
    return Resume("" if path == LATEST else path, str(rule.get("complete_when") or ""))


def _newest_first(folder: str, wanted: Resume, now: float) -> Iterator[checkpoint_folder.Seen]:
    moment = checkpoint_folder.Moment(now, is_over=True)
    if wanted.path:
        # It may be a link, to one of the same folder.
        real, top = os.path.realpath(os.path.join(folder, wanted.path)), os.path.realpath(folder)
        if real.startswith(top + "/") and os.path.exists(real):
            yield checkpoint_folder.one(real, moment)
        return
    # What lies at the top is most often the model alone, without what a training goes on with.
    top_ones = []
    for seen in checkpoint_folder.each(folder, moment):
        if seen.told.name == wire.TOP:
            top_ones.append(seen)
        else:
            yield seen
    yield from top_ones


def _why_not(seen: checkpoint_folder.Seen, wanted: Resume, lasts_s: float) -> str:
    if seen.told.age_s > lasts_s:
        return "it was there before the run began"
    if seen.oldest_age_s > lasts_s:
        return "it holds files from before the run began"
    if seen.told.complete not in (wire.YES, wire.SETTLED):
        return seen.told.why
    if wanted.complete_when and not os.path.exists(os.path.join(seen.path, wanted.complete_when)):
        return "%s is missing" % wanted.complete_when
    return ""


def _began(home: Home, run: str, run_id: str) -> float:
    """When the first job of the run id was made, by this host's clock; 0 when no record tells."""
    found = []
    for job_id in listed(home.run_dir(run)):
        try:
            record = read_record(os.path.join(home.record_dir(run, job_id), names.RECORD), RunRecord)
        except Unreadable:
            continue
        if record is not None and record.run_id == run_id:
            found.append(record.created_at)
    return min(found, default=0.0)
