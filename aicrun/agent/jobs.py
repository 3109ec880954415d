"""What can be asked about jobs: list, one job, wait for a change, all records of a run. It must not change a job.

Two exceptions, for honesty's sake: an end that nobody recorded is recorded when it is first seen, so that the same
question has the same answer after the next reboot; and a deadline that no keeper is left to keep is kept.
"""

import os
import time
from typing import Any, Dict, List, Optional, Set, Tuple

from aicrun.agent import bodies, decide, hidden_names, left_groups, overdue
from aicrun.agent.evidence import gather
from aicrun.agent.home import Home
from aicrun.agent.keepers import unit_words
from aicrun.agent.programs import boot_argv
from aicrun.agent.records import Unreadable, place_once, read_json, read_record
from aicrun.agent.refused import Refused
from aicrun.agent.report import broken, report_from
from aicrun.wire import names
from aicrun.wire.codec import replace, to_json
from aicrun.wire.jobs import End, JobReport, RunRecord
from aicrun.wire.status import Status, status_of

Answer = Tuple[Dict[str, Any], bytes]

WAIT_MOST_S = 60.0
PREFIX_LEAST = 4
_WAIT_TICK_S = 0.1
_CANDIDATES_SHOWN = 8
# Runs of one name, by their ids, whose checkpoint folders are looked at for a plan.
_STARTS_MOST = 5


def one(home: Home, run: str, job_id: str, *, events: bool = False) -> JobReport:
    """The report of one record, settled first; a record that cannot be read gives `report.broken`.

    An empty `job_id` stands for all that may lie in the run's folder. It may take the host lock: who holds it asks
    `seen`.
    """
    if not job_id:
        return broken(run, job_id, Unreadable(home.run_dir(run), "its folder cannot be opened"))
    try:
        decide.settled(home, run, job_id)
        return seen(home, run, job_id, events=events)
    except Unreadable as error:
        return broken(run, job_id, error)


def seen(home: Home, run: str, job_id: str, *, events: bool = False) -> JobReport:
    """The report of one record as it stands, its lost end recorded; raises `Unreadable`."""
    known = gather(home, run, job_id)
    if overdue.attend(home, known):
        known = gather(home, run, job_id)
    report = report_from(home, known, time.time(), events=events)
    if known.evidence.end is None and known.evidence.decision == "go":
        said = unit_words(known.launch) if report.lost == "supervisor_lost" else ""
        if said:
            report = replace(report, lost_detail="%s; %s" % (report.lost_detail, said))
        if not _record_lost_end(home, report):
            # Somebody else was faster, with other words: one question has one answer.
            return report_from(home, gather(home, run, job_id), time.time(), events=events)
    return report


def reports_of_run(home: Home, run: str) -> Tuple[Tuple[JobReport, ...], Tuple[str, ...]]:
    """All records of a run that count, newest first, and `run/job id` of those that cannot be read.

    Those decided `no` and those a person has told to forget do not count.
    """
    reports: List[JobReport] = []
    unreadable: List[str] = []
    least_s = 0.0
    for job_id in _newest_of_run_first(home, run):
        report = one(home, run, job_id)
        if report.newer_schema or not report.run_id:
            unreadable.append("%s/%s" % (run, job_id))
        elif report.decision != "no" and not report.forgotten:
            # However the clock was set between two jobs: the earlier one is not the younger one.
            least_s = max(least_s, report.age_s)
            reports.append(replace(report, age_s=least_s))
    return tuple(_with_starts(home, reports)), tuple(unreadable)


def _with_starts(home: Home, reports: List[JobReport]) -> List[JobReport]:
    """The reports of one run with what each would go on from, looked for once for those that share it."""
    known: Dict[Tuple[str, str, str], JobReport] = {}
    found = []
    for report in reports:
        kept = report.checkpoints
        key = (report.run_id, kept.path if kept is not None else "", str(report.execution.get("resume")))
        if kept is None or "resume" not in report.execution or (key not in known and len(known) >= _STARTS_MOST):
            found.append(report)
            continue
        if key not in known:
            known[key] = _with_start(home, report)
        found.append(replace(report, checkpoints=known[key].checkpoints))
    return found


def _with_start(home: Home, report: JobReport) -> JobReport:
    if "resume" not in report.execution:
        return report
    # Imported here: few runs resume, and every agent makes reports.
    from aicrun.agent import resuming

    return resuming.told(home, report)


def look(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{run} -> {reports, unreadable}."""
    reports, unreadable = reports_of_run(home, bodies.run_name(body))
    return {"reports": [to_json(report) for report in reports], "unreadable": list(unreadable)}, b""


def jobs(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{ids, statuses, limit} -> {reports, omitted}: newest first; with `ids` exactly those that exist."""
    ids, wanted = bodies.texts(body, "ids"), set(bodies.texts(body, "statuses"))
    unknown = wanted - {status.value for status in Status}
    if unknown:
        raise Refused("invalid_request", "no such status: %s" % ", ".join(sorted(unknown)), {"field": "statuses"})
    limit = bodies.number(body, "limit", names.LIST_DEFAULT, names.LIST_MOST)
    places = _newest_first(home, set(ids) if ids else None)
    reports: List[JobReport] = []
    omitted = 0
    for run, job_id in places:
        # Without a filter what lies beyond the limit need not be read to be counted.
        if len(reports) >= limit and not wanted:
            omitted += 1
            continue
        report = one(home, run, job_id)
        if wanted and status_of(report).status.value not in wanted:
            continue
        if len(reports) < limit:
            reports.append(report)
        else:
            omitted += 1
    return {"reports": [to_json(report) for report in reports], "omitted": omitted}, b""


def job(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{key} -> {report}: the newest job of a run name or run id, or a job id, or four or more digits of an id."""
    run, job_id = find(home, bodies.text(body, "key"))
    return told(_with_start(home, one(home, run, job_id, events=True)))


def environment(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{job_id} -> {env, shell}: what a job's command found in its environment, empty when it never came to that.

    `shell` is the argv of a shell where it works, for a terminal on this machine.

    Raises `Refused` (not_found) for an unknown job, and for one whose private folder was swept.
    """
    job_id = bodies.job_id(body)
    decide.run_of(home, job_id)
    job_dir = home.job_dir(job_id)
    if not os.path.isdir(job_dir):
        raise Refused("not_found", "the private files of job %s were swept" % job_id, {"job": job_id})
    kept = read_json(os.path.join(job_dir, names.ENVIRONMENT))
    env = kept.get("env") if isinstance(kept, dict) else None
    return {"env": env if isinstance(env, dict) else {}, "shell": list(boot_argv("shell", job_dir))}, b""


def wait(home: Home, body: Dict[str, Any], payload: bytes) -> Answer:
    """{job_id, known, timeout_s} -> {report}: as soon as its status differs from `known`, else after `timeout_s`."""
    job_id, known = bodies.job_id(body), bodies.text(body, "known", "")
    deadline = time.monotonic() + bodies.seconds(body, "timeout_s", 0.0, WAIT_MOST_S)
    run = decide.run_of(home, job_id)
    while True:
        report = one(home, run, job_id)
        if status_of(report).status.value != known or time.monotonic() >= deadline:
            return told(report)
        time.sleep(_WAIT_TICK_S)


def told(report: JobReport) -> Answer:
    """A report as an answer."""
    return {"report": to_json(report)}, b""


def find(home: Home, key: str) -> Tuple[str, str]:
    """(run, job id) that `key` names; raises `Refused`: not_found, or invalid_request with the candidates."""
    if names.RUN_NAME.match(key) and home.job_ids(key):
        return _newest(home, [(key, job_id) for job_id in home.job_ids(key)])
    places, doubt = _places(home)
    exact = [place for place in places if place[1] == key]
    if exact:
        return exact[0]
    if len(key) < PREFIX_LEAST or key.strip("0123456789abcdef"):
        raise Refused("not_found", "there is no run or job %s here" % key[:80], {"key": key[:80]})
    by_id = {place[1]: [place] for place in places if place[1].startswith(key)}
    for place in places:
        run_id = _run_id(home, place)
        if run_id.startswith(key):
            by_id.setdefault(run_id, []).append(place)
    if len(by_id) > 1:
        shown = ", ".join("%s (%s)" % (found, by_id[found][0][0]) for found in sorted(by_id)[:_CANDIDATES_SHOWN])
        raise Refused("invalid_request", "%s begins several ids: %s" % (key, shown), {"key": key})
    if not by_id and doubt is not None:
        raise doubt
    if not by_id:
        raise Refused("not_found", "there is no run or job %s here" % key, {"key": key})
    return _newest(home, next(iter(by_id.values())))


def _places(home: Home) -> Tuple[List[Tuple[str, str]], Optional[Refused]]:
    """All (run, job id), and why that may not be all of them."""
    places: List[Tuple[str, str]] = []
    doubt: Optional[Refused] = None
    for run in home.run_names():
        try:
            places += [(run, job_id) for job_id in home.job_ids(run)]
        except Refused as error:
            doubt = error
    return places, doubt


def _run_id(home: Home, place: Tuple[str, str]) -> str:
    try:
        record = read_record(os.path.join(home.record_dir(*place), names.RECORD), RunRecord)
    except Unreadable:
        return ""
    return record.run_id if record is not None else ""


def _newest_first(home: Home, ids: Optional[Set[str]]) -> List[Tuple[str, str]]:
    places = []
    for run in home.run_names():
        try:
            job_ids = home.job_ids(run)
        except Refused:
            # The folder of one run hides no other; it stands for what may lie in it, first of all.
            job_ids = ("",)
        for job_id in job_ids:
            if ids is None or job_id in ids:
                places.append((_made_at(home, run, job_id) if job_id else time.time_ns(), run, job_id))
    return [(run, job_id) for _, run, job_id in sorted(places, reverse=True)]


def _newest(home: Home, places: List[Tuple[str, str]]) -> Tuple[str, str]:
    """The newest of a name's jobs; before one that was decided never to start, the newest that has not ended."""
    ids = {job_id for _, job_id in places}
    newest = max(places, key=lambda place: _order(home, place[0], place[1], ids))
    if len(places) == 1 or not _is_no(home, *newest):
        return newest
    going = [place for place in places if not os.path.lexists(os.path.join(home.record_dir(*place), names.END))]
    going = [place for place in going if not _is_no(home, *place)]
    return max(going, key=lambda place: _order(home, place[0], place[1], ids), default=newest)


def _is_no(home: Home, run: str, job_id: str) -> bool:
    """True for a job that was decided never to start, settled first; it may take the host lock."""
    try:
        decision = decide.settled(home, run, job_id)
    except Unreadable:
        return False
    return decision is not None and decision.decision == "no"


def _newest_of_run_first(home: Home, run: str) -> List[str]:
    ids = set(home.job_ids(run))
    return sorted(ids, key=lambda job_id: _order(home, run, job_id, ids), reverse=True)


def _order(home: Home, run: str, job_id: str, ids: Set[str]) -> Tuple[int, int, str]:
    """Sorts the jobs of one run by age, whatever the clock was: a job names all that ended before it was made."""
    try:
        record = read_record(os.path.join(home.record_dir(run, job_id), names.RECORD), RunRecord)
    except Unreadable:
        record = None
    named = ids.intersection(record.named) if record is not None else ids
    return (len(named), _made_at(home, run, job_id), job_id)


def _made_at(home: Home, run: str, job_id: str) -> int:
    # A record is written once, when its job is made, so its own time orders jobs without reading them.
    try:
        return os.stat(os.path.join(home.record_dir(run, job_id), names.RECORD)).st_mtime_ns
    except OSError:
        return 0


def _record_lost_end(home: Home, report: JobReport) -> bool:
    """The end of a job that its keeper could not write any more: what is durable by now, and what nobody knows.

    False when another end stands there already.
    """
    if report.phase not in ("ended", "never_started"):
        return True
    hidden_names.let_go(home, home.job_dir(report.job_id))
    end = End(
        attempts=report.attempt,
        at=time.time(),
        exits=tuple(step.exit for step in report.steps if step.exit is not None),
        upload=report.upload,
        stop=report.stop,
        lost="never_started" if report.phase == "never_started" else report.lost,
        detail=report.lost_detail,
        next_attempt=report.next_attempt,
    )
    try:
        mine = place_once(os.path.join(home.record_dir(report.run, report.job_id), names.END), end)
        left_groups.remove(home.job_dir(report.job_id))
    except OSError:
        # A full disk: the same evidence gives the same answer, and the next call tries again.
        return True
    return mine
