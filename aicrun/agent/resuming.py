"""Which checkpoint a run goes on from: the newest of its own that is whole. It must not change or remove one."""

import os
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

from aicrun.agent import checkpoint_folder, hidden_names, history
from aicrun.agent.home import Home, listed
from aicrun.agent.programs import Program
from aicrun.agent.records import Unreadable, read_record
from aicrun.wire import checkpoint as wire
from aicrun.wire import lean, names
from aicrun.wire.checkpoint import Resume
from aicrun.wire.jobs import JobRequest, RunRecord

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
    """
    if request.resume is None:
        return program

    def shown(path: str) -> str:
        return hidden_names.shown(home, request.run, request.job_id, path)

    found = start(home, (request.run, request.run_id), request.checkpoints, request.resume, shown)
    if found.path or found.skipped:
        history.note(home.job_dir(request.job_id), "resumes", detail=found.words)
    env = dict(program.env, **{names.RESUME_FROM: found.path})
    more = tuple(found.path.join(pieces) for pieces in request.resume.args) if found.path else ()
    return lean.replace(program, env=env, argv=program.argv + (more if request.is_argv else ()))


def start(home: Home, run: Tuple[str, str], folder: str, wanted: Resume, shown: Callable[[str], str]) -> Start:
    """What `run`, a name and an id, would go on from now; `shown` gives a path's name as it may be told.

    Of a folder that others used before it is only what came since the run began.
    """
    now, began = time.time(), _began(home, *run)
    skipped: List[str] = []
    for one in _newest_first(folder, wanted, now):
        if now - one.age_s < began:
            break
        path = folder if one.name == wire.TOP else os.path.join(folder, wanted.path or one.name)
        why = _why_not(one, path, wanted)
        if not why:
            return Start(shown(path), path, one.age_s, tuple(skipped))
        skipped.append("%s skipped: %s" % (shown(path), why))
    return Start(skipped=tuple(skipped))


def of_execution(execution: Dict[str, Any]) -> Resume:
    """The rule as a spec has it, without the arguments."""
    written = execution.get("resume")
    rule = written if isinstance(written, dict) else {}
    path = str(rule.get("from") or LATEST)
    return Resume("" if path == LATEST else path, str(rule.get("complete_when") or ""))


def _newest_first(folder: str, wanted: Resume, now: float) -> Iterator[wire.Checkpoint]:
    moment = checkpoint_folder.Moment(now, is_over=True)
    if wanted.path:
        above, name = os.path.split(os.path.normpath(os.path.join(folder, wanted.path)))
        yield from (one for one in checkpoint_folder.each(above, moment) if one.name == name)
        return
    found = checkpoint_folder.each(folder, moment)
    # What lies at the top is most often the model alone, without what a training goes on with.
    top = []
    for one in found:
        if one.name == wire.TOP:
            top.append(one)
        else:
            yield one
    yield from top


def _why_not(one: wire.Checkpoint, path: str, wanted: Resume) -> str:
    if one.complete not in (wire.YES, wire.SETTLED):
        return one.why
    if wanted.complete_when and not os.path.exists(os.path.join(path, wanted.complete_when)):
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
