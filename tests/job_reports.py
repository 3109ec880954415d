"""Job reports as a host would give them, for the screens that show them."""

from __future__ import annotations

from typing import Any

from aicrun.lifecycle.find import Found
from aicrun.wire.codec import replace
from aicrun.wire.jobs import (
    Client,
    JobReport,
    NextAttempt,
    Source,
    StepExit,
    StepReport,
    StopIntent,
    Upload,
    UploadResult,
)
from aicrun.wire.seen import Checkpoints

TARGET = "/kept/sft-run/3f9a1c0e77b2d416/"


def ended(step: str, took_s: float, code: int | None = 0, **more: Any) -> StepReport:
    """A step that ended."""
    end = StepExit(step, 1, took_s, 0.0, code=code, **more)
    return StepReport(step, "ended", pid=48211, exit=end, log_bytes=217088 if step == "command" else 0)


SETUP = ended("setup", 2.0)
RUNNING = StepReport("command", "running", pid=48211, age_s=11280.0, log_bytes=4096)
KEPT = Checkpoints(
    "/home/ana/aic-jobs/sft-run/checkpoints/3f9a1c0e77b2d416", "checkpoint-9000", 540.0, 17287651328, 3, 17287651328 * 3
)


def report(**changes: Any) -> JobReport:
    """A run in progress for 3h 08m on lab."""
    base = JobReport(
        job_id="7c1e09d2a4b86f13",
        run="sft-run",
        run_id="3f9a1c0e77b2d416",
        digest="4be1c07a" * 8,
        client=Client("ana", "laptop", "0.1.0"),
        age_s=11290.0,
        decision="go",
        phase="command",
        supervised=True,
        steps=(SETUP, RUNNING),
        execution={"command": "python sft.py", "env": {"LR": "1e-4"}, "secrets": ["HF_TOKEN"]},
        source=Source("9f2c1ab0" * 8, 43, 1258291, "9f2c1ab0" * 5, "main", ("sft.py", "cfg.yaml")),
        workspace="/home/ana/aic-jobs/sft-run",
        checkpoints=KEPT,
        upload_request=Upload("file:/kept/sft-run/", "file", TARGET),
        spec_file="run.yaml",
        progress={"step": "4120/9000", "loss": "1.2041"},
    )
    return replace(base, **changes)


def on_lab(**changes: Any) -> Found:
    """The same, on the machine lab."""
    return Found("lab", report(**changes))


def succeeded() -> Found:
    """It ended well, and its upload was verified."""
    upload = UploadResult(TARGET, True, 14, 17287651328)
    return on_lab(
        phase="ended",
        ended_age_s=172800.0,
        steps=(SETUP, ended("command", 24480.0), ended("upload", 252.0)),
        upload=upload,
        progress={"step": "9000/9000", "loss": "0.9131"},
        facts={"vram_peak_mib": 18330, "utilization_mean_percent": 94, "steps_per_s": 0.41},
    )


def failed(**changes: Any) -> Found:
    """Its command ended with exit code 1 after 41 minutes."""
    base = {"phase": "ended", "ended_age_s": 60.0, "steps": (SETUP, ended("command", 2460.0, 1)), "progress": {}}
    return on_lab(**{**base, **changes})


def stopped() -> Found:
    """Somebody stopped it after 14 minutes."""
    end = ended("command", 840.0, None, signal=15, stop_sent=True)
    return failed(steps=(SETUP, end), stop=StopIntent("ana@laptop", 120, 0.0))


def pausing(**changes: Any) -> Found:
    """Its first attempt ended with exit code 75, the next is due in 40 s."""
    due = NextAttempt(2, 4, "exit:75", 39.6)
    steps = (SETUP, ended("command", 840.0, 75))
    base = {"phase": "waiting", "steps": steps, "attempts_most": 4, "next_attempt": due, "progress": {}}
    return on_lab(**{**base, **changes})


def stopped_in_the_pause() -> Found:
    """Somebody stopped it before its next attempt."""
    due = NextAttempt(2, 4, "exit:75", not_made="stopped")
    return pausing(phase="ended", ended_age_s=60.0, next_attempt=due, stop=StopIntent("ana@laptop", 120, 0.0))


def lost() -> Found:
    """The machine rebooted while it ran."""
    return failed(
        steps=(SETUP, StepReport("command", "lost", log_bytes=2516582)),
        lost="reboot",
        lost_detail="lab rebooted while it was in progress",
    )


def upload_failed() -> Found:
    """The training ended well, its upload did not."""
    result = UploadResult(TARGET, False, error="No space left on device")
    return failed(steps=(SETUP, ended("command", 24480.0), ended("upload", 3.0, 1)), upload=result)
