"""What a run turned out to need and to give, measured on its host: data for the next plan and for the notes.

It must not decide anything, and an unmeasured number is absent.
"""

import glob
import os
import re
import time
from typing import Any, Dict, List, Optional

from aicrun.agent import telemetry
from aicrun.agent.home import Home
from aicrun.agent.records import Unreadable, read_json, write_record
from aicrun.wire import names
from aicrun.wire.jobs import SCHEMA, JobReport, JobRequest, StepReport
from aicrun.wire.status import status_of

MOST = 20


def measure(home: Home, request: JobRequest, report: JobReport) -> Dict[str, Any]:
    """Write `facts.json` beside the run record of the ended job and return it; raises `OSError`."""
    standing = status_of(report)
    command = next((step for step in report.steps if step.step == "command"), None)
    found: Dict[str, Any] = {
        "schema": SCHEMA,
        "run": request.run,
        "run_id": request.run_id,
        "job_id": request.job_id,
        "digest": request.digest,
        "at": time.time(),
        "status": standing.status.value,
        "reason": standing.reason,
        "why": standing.why,
        "code": standing.code,
        "signal": standing.signal,
        "attempts": report.attempt,
        "wall_s": _duration(command),
        "steps": {step.step: _duration(step) for step in report.steps if step.exit is not None},
        "progress": dict(report.progress),
        "steps_per_s": _throughput(report.progress, _duration(command)),
        "cards": list(report.cards),
        "env_key": request.setup.key,
        "python": request.setup.python_version,
        "torch": installed(request.setup.path, "torch") if request.setup.path else "",
        "upload": _upload(report),
        "inputs": _inputs(home, request),
    }
    found.update(telemetry.facts_of(home.job_dir(request.job_id)))
    found = {key: value for key, value in found.items() if value not in (None, "", {}, [])}
    write_record(os.path.join(home.record_dir(request.run, request.job_id), names.FACTS), found)
    return found


def _inputs(home: Home, request: JobRequest) -> Dict[str, Any]:
    """What its setup found at each input; the setup's own record goes a week after the job."""
    try:
        setup = read_json(os.path.join(home.job_dir(request.job_id), names.SETUP_RESULT))
    except Unreadable:
        return {}
    found = setup.get("inputs") if isinstance(setup, dict) else None
    return found if isinstance(found, dict) else {}


def measured(home: Home, run: str) -> List[Dict[str, Any]]:
    """The facts of the newest jobs of `run`, newest first, `MOST` at most; each with its age as `age_s`.

    What cannot be read is left out: facts only ever advise.
    """
    found = []
    for path in glob.glob(os.path.join(glob.escape(home.run_dir(run)), "*", names.FACTS)):
        try:
            facts = read_json(path)
        except Unreadable:
            continue
        if isinstance(facts, dict) and isinstance(facts.get("at"), (int, float)):
            found.append(facts)
    found.sort(key=lambda facts: float(facts["at"]), reverse=True)
    now = time.time()
    return [dict(facts, age_s=max(0.0, round(now - float(facts["at"]), 1))) for facts in found[:MOST]]


def installed(env_path: str, package: str) -> str:
    """The version of a package in an environment, read from its metadata folder's name; "" when it is not there."""
    pattern = os.path.join(glob.escape(env_path), "lib", "python3*", "site-packages", package + "-*.dist-info")
    for path in sorted(glob.glob(pattern)):
        return os.path.basename(path)[len(package) + 1 : -len(".dist-info")]
    return ""


def _duration(step: Optional[StepReport]) -> Optional[float]:
    return None if step is None or step.exit is None else round(step.exit.duration_s, 3)


def _throughput(progress: Dict[str, str], wall_s: Optional[float]) -> Optional[float]:
    match = re.match(r"\s*(\d+)", str(progress.get("step", "")))
    if not match or not wall_s:
        return None
    return float("%.4g" % (int(match.group(1)) / wall_s))


def _upload(report: JobReport) -> Dict[str, Any]:
    if report.upload is None:
        return {}
    result = report.upload
    return {
        "destination": result.destination,
        "verified": result.verified,
        "files": result.files,
        "bytes": result.bytes,
        "error": result.error,
    }
