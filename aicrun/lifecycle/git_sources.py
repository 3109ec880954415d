"""What a repository's revision is, asked of the machines that may run it: they fetch it, with their own credentials.

It must not decide where a run goes: what a machine answered stands in its reading, for the plan to judge.
"""

from __future__ import annotations

from dataclasses import replace

from aicrun.hosts.backend import Backend, GitQuestion
from aicrun.lifecycle.session import Session
from aicrun.lifecycle.survey import ask_all
from aicrun.lifecycle.wanted import for_its_python
from aicrun.plan.environment import files_read
from aicrun.plan.model import Fleet, MachineView, Wanted
from aicrun.plan.reconcile import admitted
from aicrun.spec.model import Machine
from aicrun.wire.codec import replace as with_fields
from aicrun.wire.facts import GitSource
from aicrun.wire.hashes import sha256
from aicrun.wire.jobs import Source

# A first fetch of a large repository takes its time; a name is found out within a second.
TIMEOUT_S = 300


def resolved(session: Session, wanted: tuple[Wanted, ...], fleet: Fleet) -> tuple[tuple[Wanted, ...], Fleet]:
    """The runs with the commits of their repositories, and the fleet with what each machine said of them.

    Of a run whose repository nobody could ask, the commit of its newest job counts, if that has the same revision.
    """
    if not any(_is_git(item) for item in wanted):
        return wanted, fleet
    asked = {view.machine.name: _questions(view, wanted) for view in fleet.machines if view.state == "answered"}
    machines = tuple(view.machine for view in fleet.machines if asked.get(view.machine.name))

    def ask(backend: Backend, machine: Machine) -> tuple[GitSource, ...]:
        return tuple(backend.git_source(one) for one in asked[machine.name])

    patient = replace(session, deadline_s=max(session.deadline_s, TIMEOUT_S + 10.0))
    said: dict[str, tuple[GitSource, ...]] = {}
    for heard in ask_all(patient, machines, ask) if machines else ():
        failed = heard.error.message if heard.error is not None else ""
        said[heard.machine.name] = heard.answer or tuple(
            GitSource(one.git, one.revision, "unreachable", detail=failed) for one in asked[heard.machine.name]
        )
    views = tuple(_with_answers(view, said.get(view.machine.name, ())) for view in fleet.machines)
    seen = replace(fleet, machines=views)
    return tuple(_with_source(item, seen) if _is_git(item) else item for item in wanted), seen


def _is_git(item: Wanted) -> bool:
    return item.spec.source is not None and bool(item.spec.source.git)


def _questions(view: MachineView, wanted: tuple[Wanted, ...]) -> tuple[GitQuestion, ...]:
    found: dict[GitQuestion, None] = {}
    for item in wanted:
        source = item.spec.source
        if source is not None and source.git and admitted(item, view):
            files = files_read(item.spec.setup)
            found[GitQuestion(source.git, source.revision, files, view.machine.path, TIMEOUT_S)] = None
    return tuple(found)


def _with_answers(view: MachineView, said: tuple[GitSource, ...]) -> MachineView:
    if view.reading is None or not said:
        return view
    return replace(view, reading=with_fields(view.reading, git=said))


def _with_source(item: Wanted, fleet: Fleet) -> Wanted:
    spec = item.spec.source
    if spec is None:
        return item
    answers = [
        one
        for view in fleet.machines
        if view.reading is not None
        for one in view.reading.git
        if (one.git, one.revision) == (spec.git, spec.revision)
    ]
    best = next((one for one in answers if one.word == "ok"), None)
    if best is not None:
        files = {one.path: one.text for one in best.texts if one.path in files_read(item.spec.setup)}
        source = _source(spec.git, spec.revision, best.commit, best.name)
        return replace(item, spec=for_its_python(item.spec, files), source=source, files=files)
    known = None if any(one.word == "missing" for one in answers) else _of_newest_job(item, fleet)
    return replace(item, source=known or _source(spec.git, spec.revision, "", ""))


def _of_newest_job(item: Wanted, fleet: Fleet) -> Source | None:
    spec = item.spec.source
    jobs = [
        job
        for view in fleet.machines
        if view.reading is not None
        for job in view.reading.jobs
        if job.run == item.spec.name
    ]
    for job in sorted(jobs, key=lambda job: job.age_s):
        source = job.source
        if spec is not None and source is not None and (source.git, source.revision) == (spec.git, spec.revision):
            return source
    return None


def _source(git: str, revision: str, commit: str, name: str) -> Source:
    return Source(sha256(f"git {commit}".encode()), 0, 0, commit, name, git=git, revision=revision)
