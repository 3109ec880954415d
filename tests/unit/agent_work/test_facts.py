"""Measured facts: written once per job, read back newest first, absent where nothing was measured."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aicrun.agent import facts
from aicrun.agent.home import Home
from aicrun.wire.jobs import Client, JobReport, JobRequest, Setup, StepExit, StepReport, Upload, UploadResult

Job = Callable[..., JobRequest]


def report(**changes: Any) -> JobReport:
    fields: dict[str, Any] = {"age_s": 1.0, "decision": "go", "phase": "ended"} | changes
    return JobReport("a" * 16, "sft-run", "b" * 16, "d" * 64, Client("ana", "laptop", "0.1.0"), **fields)


def step(name: str, **end: Any) -> StepReport:
    return StepReport(name, "ended", exit=StepExit(name, 1, end.pop("duration_s", 2.0), 0.0, **end))


def measure(home: Home, request: JobRequest, told: JobReport) -> dict[str, Any]:
    os.makedirs(home.record_dir(request.run, request.job_id), exist_ok=True)
    return facts.measure(home, request, told)


def test_a_success_with_its_upload_and_throughput(home: Home, job: Job) -> None:
    request = job(upload=Upload("file:/x", "file", "file:/x"))
    told = report(
        steps=(step("setup", code=0), step("command", code=0, duration_s=100.0)),
        upload=UploadResult("file:/x", True, 3, 99),
        upload_request=request.upload,
        progress={"step": "41/100", "loss": "0.1"},
    )
    found = measure(home, request, told)
    assert (found["status"], found["wall_s"], found["steps_per_s"]) == ("succeeded", 100.0, 0.41)
    assert found["upload"]["verified"] is True
    assert found["steps"] == {"setup": 2.0, "command": 100.0}
    stored = json.loads(Path(home.record_dir(request.run, request.job_id), "facts.json").read_bytes())
    assert stored == found


def test_what_was_not_measured_is_absent(home: Home, job: Job) -> None:
    found = measure(home, job(), report(steps=(step("command", signal=9),)))
    assert (found["status"], found["reason"], found["signal"]) == ("failed", "signal", 9)
    assert not {"code", "steps_per_s", "upload", "torch", "cards"} & set(found)


def test_the_torch_of_the_environment_is_read_from_its_metadata(home: Home, job: Job, account: Path) -> None:
    env = account / "envs/k"
    (env / "lib/python3.12/site-packages/torch-2.8.0+cu128.dist-info").mkdir(parents=True)
    setup = Setup(key="k" * 16, path=str(env), python_version="3.12.4")
    found = measure(home, job(setup=setup), report(steps=(step("command", code=0),)))
    assert (found["torch"], found["python"]) == ("2.8.0+cu128", "3.12.4")


def test_measured_is_newest_first_and_skips_what_cannot_be_read(home: Home, job: Job) -> None:
    for number in range(3):
        request = job(job_id=f"{number:016x}")
        found = measure(home, request, report(steps=(step("command", code=number),)))
        place = Path(home.record_dir(request.run, request.job_id), "facts.json")
        place.write_text(json.dumps(dict(found, at=1000.0 + number)))
    torn = Path(home.record_dir("sft-run", "f" * 16))
    torn.mkdir()
    (torn / "facts.json").write_text("{")
    assert [item["job_id"][-1] for item in facts.measured(home, "sft-run")] == ["2", "1", "0"]
    assert all(item["age_s"] > 0 for item in facts.measured(home, "sft-run"))
    assert facts.measured(home, "no-such") == []
