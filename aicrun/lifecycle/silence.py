"""What a start ends with when a machine falls silent: each says whether anything can have started, and what to type.

It must not ask anybody; which of these is true is known where the question was asked.
"""

from __future__ import annotations

from aicrun.errors import AicrunError, HostUnreachable, Way
from aicrun.plan.commands import typed
from aicrun.spec.model import RunSpec
from aicrun.wire.jobs import JobRequest


def not_known(request: JobRequest, spec: RunSpec, error: AicrunError) -> HostUnreachable:
    """What was sent may have started the run, and its machine gives no answer."""
    return HostUnreachable(
        "AIC-E592",
        f"{request.run}: {request.machine} does not answer; whether it started is not known",
        facts=(
            ("sent", f"job {request.job_id}; nothing is sent again blindly"),
            ("error", error.message),
        ),
        ways=(Way("safe, and adopts it if it started", typed("apply", spec)),),
    )


def not_started(request: JobRequest, spec: RunSpec, error: AicrunError) -> HostUnreachable:
    """The machine of the run fell silent before a confirm was sent to it."""
    return HostUnreachable(
        "AIC-E595",
        f"{request.run}: {request.machine} does not answer; nothing was started",
        facts=(
            ("reserved", f"job {request.job_id}, if it arrived; that ends within a minute"),
            ("error", error.message),
        ),
        ways=(
            Way(f"try {request.machine}", f"aicrun doctor {request.machine}"),
            Way("then the same again", typed("apply", spec)),
        ),
    )


def started(request: JobRequest, error: AicrunError) -> HostUnreachable:
    """The confirm was answered with `go`, and then there was silence."""
    return HostUnreachable(
        "AIC-E596",
        f"{request.run}: {request.machine} fell silent after the start was confirmed",
        facts=(("started", f"job {request.job_id}; it goes on there by itself"), ("error", error.message)),
        ways=(Way("how it stands, once it answers", f"aicrun inspect {request.run}"),),
    )


def may_hold(request: JobRequest, spec: RunSpec, machine: str, why: str) -> HostUnreachable:
    """A machine cannot say that it holds no other copy of the run."""
    return HostUnreachable(
        "AIC-E594",
        f"{machine} may hold {request.run}; nothing was started",
        facts=((machine, why),),
        ways=(
            Way(f"try {machine}", f"aicrun doctor {machine}"),
            Way("this once without it", typed("apply", spec, "--except", machine)),
        ),
    )


def old_not_known(request: JobRequest, spec: RunSpec, old: tuple[str, str], error: AicrunError) -> HostUnreachable:
    """The machine of the job that this start takes the place of fell silent, asked or not to give it up.

    `old`: that job, and its machine.
    """
    job, machine = old
    return HostUnreachable(
        "AIC-E597",
        f"{request.run}: {machine} does not answer; the new job was not started",
        facts=(
            ("old job", f"{job} may go on, or have given way already"),
            ("error", error.message),
        ),
        ways=(
            Way("how it stands, once it answers", f"aicrun inspect {job}"),
            Way("then look again", typed("plan", spec)),
        ),
    )
