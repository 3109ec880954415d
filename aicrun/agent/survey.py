"""The answer to `survey`: everything a plan wants to know about this host, in one reading. It changes nothing."""

import os
import sys
import time
from typing import Any, Dict, List, Tuple

from aicrun.agent import built, cards, drains, handles, lookup, machine, notes, prospect
from aicrun.agent.digest import agent_digest, bundle_root
from aicrun.agent.holders import with_holders
from aicrun.agent.home import Home
from aicrun.agent.process import boot_identity
from aicrun.agent.pythons import pythons
from aicrun.agent.refused import Refused
from aicrun.wire import lean
from aicrun.wire.codec import to_json
from aicrun.wire.facts import Cards, Disk, HostReading
from aicrun.wire.jobs import JobReport

RUNS_MOST = 1000
PATHS_MOST = 100


def survey(home: Home, body: Dict[str, Any], payload: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Call `survey`: `question` as `hosts.backend.Question` writes it; the answer holds one `reading`."""
    del payload
    question = body.get("question")
    if not isinstance(question, dict):
        raise Refused("invalid_request", "a survey needs a question")
    runs = [str(run) for run in question.get("runs") or ()][:RUNS_MOST]
    paths = [str(path) for path in question.get("paths") or ()][:PATHS_MOST]
    data = str(question.get("data") or "")
    reading = _reading(home, runs, paths, data, question.get("cards") is not False)
    envs = (envs_folder(data, reading.home), list(reading.envs_ready))
    found = lookup.programs(question.get("programs"), question.get("path") or (), reading.home, envs)
    folders = lookup.wheel_folders(question.get("wheels"), reading.home)
    inputs = lookup.inputs(question.get("inputs"), reading.home)
    reading = lean.replace(reading, programs=tuple(found), wheels=tuple(folders), inputs=tuple(inputs))
    keys = question.get("brought")
    if keys:
        # Imported here, as below: what nobody asked about is not loaded.
        from aicrun.agent import brought

        ready = brought.ready(brought.folder(data, reading.home), keys)
        reading = lean.replace(reading, inputs_ready=tuple(ready))
    return {"reading": to_json(reading)}, b""


def _reading(home: Home, runs: List[str], paths: List[str], data: str, with_cards: bool) -> HostReading:
    began = time.monotonic()
    name, home_folder, shell = machine.account(os.environ.get("HOME", ""))
    count = machine.cpus()
    memory_mib, memory_free_mib = machine.memory()
    reports, unreadable, measured = _of_runs(home, runs)
    system = os.uname()
    return HostReading(
        hostname=system.nodename,
        host_id=home.host_id,
        boot=boot_identity(),
        account=name,
        uid=os.geteuid(),
        home=home_folder,
        shell=shell,
        system=system.sysname,
        architecture=system.machine,
        libc=machine.libc(),
        python="%d.%d.%d" % sys.version_info[:3],
        agent_digest=agent_digest(bundle_root()),
        cpus=count,
        memory_mib=memory_mib,
        cards=with_holders(cards.here(looks=cards.LOOKS)) if with_cards else Cards("unknown", "not_asked"),
        state_root=home.root,
        jobs_root=home.jobs_root,
        survival=prospect.outlook(os.environ),
        cpus_free=machine.cpus_free(count),
        memory_free_mib=memory_free_mib,
        data=data,
        active_jobs=active_jobs(home),
        container=machine.in_container(),
        disks=_disks(home, paths, home_folder),
        pythons=tuple(pythons(home, os.environ)),
        uv=built.find_uv(home, home_folder),
        notes=notes.head(home),
        jobs=tuple(reports),
        unreadable_records=tuple(unreadable),
        measured=tuple(measured),
        envs_ready=built.ready_keys(envs_folder(data, home_folder)),
        took_s=round(time.monotonic() - began, 4),
        drain=drains.now(),
    )


def _disks(home: Home, paths: List[str], home_folder: str) -> Tuple[Disk, ...]:
    # Where records and logs lie is no folder that a client could name before it is told.
    own = (home.root, home.jobs_root) if paths else ()
    found = (machine.disk(path, home_folder) for path in dict.fromkeys((*paths, *own)))
    return tuple(disk for disk in found if disk is not None)


def envs_folder(data: str, home_folder: str) -> str:
    """Where environments lie: below the data volume, else below the account's own share."""
    top = home_folder + data[1:] if data == "~" or data.startswith("~/") else data
    return os.path.join(top or os.path.join(home_folder, ".local", "share"), "aicrun", "envs")


def active_jobs(home: Home) -> int:
    """How many jobs of this account have a living keeper."""
    return sum(1 for job_id in os.listdir(home.jobs()) if handles.keeper_lives(home.job_dir(job_id)))


def _of_runs(home: Home, runs: List[str]) -> Tuple[List[JobReport], List[str], List[Dict[str, Any]]]:
    """(reports, records that cannot be read, what was measured) of the runs asked about."""
    if not runs:
        return [], [], []
    from aicrun.agent import facts, jobs

    reports: List[JobReport] = []
    unreadable: List[str] = []
    for run in dict.fromkeys(runs):
        found, torn = jobs.reports_of_run(home, run)
        reports += found
        unreadable += torn
    return reports, unreadable, [found for run in runs for found in facts.measured(home, run)]
