"""The complete job that a plan will start on its machine, but for the ids that a start draws.

It must not decide where the run goes, and holds no secret's value. What only the start knows stays as `${run.id}` and
`${job.id}` until `filled`; `$${…}` is unescaped there and nowhere earlier.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aicrun.plan.commands import asked
from aicrun.plan.environment import has_environment, setup_on
from aicrun.plan.inputs import fetches, input_variables, inputs_at
from aicrun.plan.model import Candidate, CardOn, Wanted
from aicrun.plan.needed_room import needed_room
from aicrun.plan.placeholders import escaped, fill, finish
from aicrun.plan.places import absolute, cache, data, machine_values, workspace
from aicrun.plan.whose_home import home_of
from aicrun.spec.model import Machine, RunSpec, UploadSpec
from aicrun.wire import names
from aicrun.wire.checkpoint import Resume
from aicrun.wire.codec import replace
from aicrun.wire.facts import HostReading
from aicrun.wire.hashes import digest
from aicrun.wire.jobs import CardNeed, Client, JobRequest, Limits, Retry, Setup, Upload
from aicrun.wire.tools import REMOTE_SCHEMES

RUN_ID = "${run.id}"
JOB_ID = "${job.id}"
START = "resume.checkpoint"


@dataclass(frozen=True, slots=True)
class Site:
    """Where a job will be, and as what: `run_id` empty when the start draws a new one, `named` what it may follow.

    `first_attempt` is above 1 when the job goes on with the retries of one that was lost. `left_out` are machines that
    may hold another copy and were not asked.
    """

    machine: Machine
    reading: HostReading
    chosen: tuple[Candidate, ...]
    run_id: str = ""
    named: tuple[str, ...] = ()
    first_attempt: int = 1
    left_out: tuple[str, ...] = ()


def execution_of(wanted: Wanted) -> dict[str, Any]:
    """The execution fields as written, with the hashes of what this client sends: `source_tree`, `input_trees`."""
    fields = dict(wanted.spec.execution)
    if wanted.source is not None:
        fields["source_tree"] = wanted.source.tree
    if wanted.sent:
        fields["input_trees"] = {name: sent.tree for name, sent in wanted.sent.items()}
    return fields


def digest_of(wanted: Wanted) -> str:
    """The spec digest of the run: 64 hex digits."""
    return digest(execution_of(wanted))


def draft(wanted: Wanted, site: Site) -> JobRequest:
    """The job of `wanted` at `site`; `job_id`, `rank`, `client` and, unless kept, `run_id` are empty."""
    spec = wanted.spec
    folder = workspace(spec, site.machine, site.reading.home)
    values = values_at(wanted, site)
    checkpoints, link = _checkpoints(wanted, folder, values, site.reading.home)
    setup = setup_on(wanted, site.machine, site.reading)
    return JobRequest(
        # Job id, rank and client are the start's to say.
        *("", spec.name, site.run_id, "", digest_of(wanted), Client("", "", ""), execution_of(wanted)),
        workspace=folder,
        command=tuple(fill(part, values) for part in spec.command),
        named=site.named,
        is_argv=spec.is_argv,
        shell=spec.shell,
        cwd=fill(spec.cwd, values),
        env=_env(wanted, site, values),
        machine=site.machine.name,
        supervision=dict(spec.supervision),
        source=wanted.source,
        setup=_filled_setup(setup, values),
        checkpoints=checkpoints,
        checkpoint_link=link,
        upload=upload_to(spec.checkpoints.upload, values, site.reading.home) if spec.checkpoints.upload else None,
        limits=limits(spec),
        cards=tuple(item.uuid for item in site.chosen if isinstance(item, CardOn)),
        card_indexes=tuple(item.index for item in site.chosen if isinstance(item, CardOn)),
        path=tuple(absolute(part, site.reading.home) for part in site.machine.path),
        progress={item.name: {"pattern": item.pattern, "goal": item.goal} for item in spec.progress},
        notes=spec.notes,
        max_jobs=site.machine.max_jobs,
        queue_wait_s=spec.queue_wait_s,
        priority=spec.queue_priority,
        retry=retry(spec),
        first_attempt=site.first_attempt,
        card_need=card_need(spec),
        left_out=site.left_out,
        preflight=preflight(spec),
        inputs=_inputs(wanted, site),
        fetches=fetches(wanted, site.machine, site.reading.home),
        room=needed_room(wanted, site.machine, site.reading),
        resume=_resume(spec, values),
        keep=spec.checkpoints.keep,
        **_typed(spec),
    )


def _typed(spec: RunSpec) -> dict[str, Any]:
    """What was typed to start it, for the commands to type next."""
    return {"spec_file": spec.file, "spec_folder": spec.folder, "asked": asked(spec)}


def _resume(spec: RunSpec, values: Mapping[str, str]) -> Resume | None:
    """The rule as the host follows it: of each argument the pieces between which the checkpoint's path stands."""
    rule = spec.resume
    if rule is None:
        return None
    filled_in = (fill(arg, {**values, START: "\0"}) for arg in rule.args)
    return Resume(rule.path, rule.complete_when, tuple(tuple(arg.split("\0")) for arg in filled_in))


def card_need(spec: RunSpec) -> CardNeed:
    """What the host looks for on each card under its lock, as the plan did before."""
    gpu = spec.machine.gpu
    if gpu is None:
        return CardNeed()
    return CardNeed(gpu.vram_mib + gpu.headroom_mib, gpu.foreign_allowed, gpu.max_utilization_percent)


def preflight(spec: RunSpec) -> str:
    """The preflight as the request has it; unasked for, one looks where a card and an environment are wanted."""
    setup = spec.setup
    if setup is None or setup.preflight == "none":
        return ""
    if not setup.preflight:
        return "auto" if spec.machine.gpu is not None and (has_environment(setup) or setup.venv) else ""
    return setup.preflight if setup.preflight in ("cuda", "rocm") else f"run:{setup.preflight}"


def filled(draft: JobRequest, *, job_id: str, run_id: str, rank: str, client: Client) -> JobRequest:
    """The draft with its ids in place of the placeholders that wait for them; ready to be sent."""
    values = {"run.id": run_id, "job.id": job_id}
    upload = draft.upload
    if upload is not None:
        upload = replace(upload, to=finish(upload.to, values), destination=finish(upload.destination, values))
    return replace(
        draft,
        job_id=job_id,
        run_id=run_id,
        rank=rank,
        client=client,
        command=tuple(finish(part, values) for part in draft.command),
        cwd=finish(draft.cwd, values),
        env={key: finish(value, values) for key, value in draft.env.items()},
        workspace=finish(draft.workspace, values),
        checkpoints=finish(draft.checkpoints, values),
        checkpoint_link=finish(draft.checkpoint_link, values),
        setup=_finished_setup(draft.setup, values),
        upload=upload,
        resume=_finished_resume(draft.resume, values),
    )


def _finished_resume(resume: Resume | None, values: Mapping[str, str]) -> Resume | None:
    if resume is None:
        return None
    return replace(resume, args=tuple(tuple(finish(piece, values) for piece in arg) for arg in resume.args))


def limits(spec: RunSpec) -> Limits:
    """The limits of one attempt, as the keeper enforces them."""
    return Limits(spec.limits.grace_s, spec.limits.max_duration_s, spec.limits.stall_s)


def retry(spec: RunSpec) -> Retry:
    """The retry rule, as the keeper follows it; without one no attempt is due."""
    rule = spec.retry
    return Retry() if rule is None else Retry(rule.most, rule.when, rule.backoff_s, rule.backoff_most_s)


def values_at(wanted: Wanted, site: Site) -> dict[str, str]:
    """Values of every placeholder on this machine; those of the ids stay placeholders when they are drawn later."""
    spec = wanted.spec
    folder = workspace(spec, site.machine, site.reading.home)
    return {
        **machine_values(site.machine, site.reading.home),
        "run.name": spec.name,
        "run.id": site.run_id or RUN_ID,
        "run.dir": posixpath.join(folder, names.JOBS, JOB_ID) if wanted.source is not None else folder,
        "gpu.count": str(spec.machine.gpu.count if spec.machine.gpu else 0),
        # Known on the machine only: to the shell it is a variable, in arguments the host fills it in.
        START: f"${{{names.RESUME_FROM}}}",
    }


def _env(wanted: Wanted, site: Site, values: Mapping[str, str]) -> dict[str, str]:
    """The job's own variables: the machine's, then the spec's on top; both cache folders always stand in it."""
    home, below = home_of(wanted.spec, site.machine, site.reading), data(site.machine, site.reading.home)
    env = {
        "HF_HOME": posixpath.join(below, "hf") if below else absolute("~/.cache/huggingface", home),
        "TORCH_HOME": posixpath.join(below, "torch") if below else absolute("~/.cache/torch", home),
        names.VARIABLES["machine.data"]: below,
        names.VARIABLES["machine.cache"]: cache(site.machine, site.reading.home),
    }
    # What the machine's owner wrote is no template: a `${…}` in it reaches the job as it stands.
    env.update({key: escaped(value) for key, value in site.machine.env.items()})
    env.update({key: escaped(value) for key, value in input_variables(_inputs(wanted, site)).items()})
    env.update({key: fill(value, values) for key, value in wanted.spec.env.items()})
    return env


def _inputs(wanted: Wanted, site: Site) -> dict[str, str]:
    """Where each input will be, whether it is there already or brought."""
    home = site.reading.home
    brought = {one.input: posixpath.join(one.folder, one.name) for one in fetches(wanted, site.machine, home)}
    return {**inputs_at(wanted.spec, site.machine, home), **brought}


def _checkpoints(wanted: Wanted, folder: str, values: Mapping[str, str], home: str) -> tuple[str, str]:
    """(absolute checkpoint folder, path in the tree that becomes a link to it)."""
    written = fill(wanted.spec.checkpoints.path, values)
    own = posixpath.join(folder, "checkpoints", values["run.id"])
    if not written:
        return own, ""
    if written.startswith(("/", "~")):
        return absolute(written, home), ""
    relative = posixpath.normpath(written)
    if wanted.source is None:
        # The tree is the user's own folder: nothing of it is changed, the command's folder is taken as it is.
        return posixpath.join(folder, relative), ""
    return own, relative


def upload_to(wanted: UploadSpec, values: Mapping[str, str], home: str) -> Upload:
    """The target as its host gets it, with `values` for placeholders, `run.id` among them.

    Without `home` a `~` is left to the host.
    """
    target = fill(wanted.to, values)
    if wanted.scheme == "file" and home:
        target = "file:" + absolute(target.partition(":")[2], home)
    destination = target
    if wanted.layout == "run":
        # The name of a remote alone is its start, `remote:/` its root; a revision of the hub stays last.
        top, at, revision = target.partition("@") if wanted.scheme == "hf" else (target, "", "")
        joint = "" if top.endswith((":", ":/")) else "/"
        destination = f"{top if not joint else top.rstrip('/')}{joint}{values['run.id']}/{at}{revision}"
    carrier = (wanted.tool, wanted.endpoint, wanted.profile) if wanted.scheme in REMOTE_SCHEMES else ("", "", "")
    told = (wanted.layout, wanted.when, wanted.required, *carrier, wanted.every_s, wanted.probe)
    return Upload(target, wanted.scheme, destination, *told)


def _filled_setup(setup: Setup, values: Mapping[str, str]) -> Setup:
    return replace(setup, run=tuple(fill(part, values) for part in setup.run))


def _finished_setup(setup: Setup, values: Mapping[str, str]) -> Setup:
    return replace(setup, run=tuple(finish(part, values) for part in setup.run))
