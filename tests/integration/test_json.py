"""With --json every command prints exactly one document, with a version; its keys are frozen."""

from __future__ import annotations

import json
from typing import Any

from frozen import frozen
from integration.project import Project


def document(project: Project, *args: str, code: int = 0) -> Any:
    done = project.run(*args, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    read = json.loads(done.stdout)
    assert read["schema_version"] == 1
    return read


def shape(value: Any, depth: int = 2) -> Any:
    """Keys of an object, and of the first object of a list in it."""
    if isinstance(value, dict) and depth:
        return {key: shape(item, depth - 1) for key, item in sorted(value.items())}
    if isinstance(value, list) and value and isinstance(value[0], dict) and depth:
        return [shape(value[0], depth - 1)]
    return "…"


def test_every_command_prints_one_document_of_a_frozen_shape(project: Project) -> None:
    project.write("python3 work.py 0", more="env: {LR: 1e-4}\n")
    seen = {
        "validate": document(project, "validate", "run.yaml"),
        "plan": document(project, "plan", "run.yaml"),
        "apply": document(project, "apply", "run.yaml", "--yes", "--follow"),
        "list": document(project, "list", "--all"),
        "inspect": document(project, "inspect", "quick"),
        "logs": document(project, "logs", "quick"),
        "wait": document(project, "wait", "quick"),
        "stop": document(project, "stop", "quick", "--yes"),
        "upload": document(project, "upload", "quick"),
        "checkpoints": document(project, "checkpoints", "quick"),
        "fetch": document(project, "fetch", "quick", "-o", "got"),
        "machines": document(project, "machines"),
        "notes": document(project, "notes", "here"),
        "gc": document(project, "gc", "here", "--dry-run"),
        "explain": document(project, "explain", "machine.gpu"),
        "delete": document(project, "delete", "quick", "--yes"),
        "init": document(project, "init", "--to", "other.yaml"),
        "error": document(project, "inspect", "nobody", code=3),
    }
    doctor = project.run("doctor", "here", "--json")
    seen["doctor"] = json.loads(doctor.stdout)
    # What a plan holds is its own schema; what a job's report holds is frozen with the wire.
    shapes = {name: {key: shape(item, 1) for key, item in sorted(read.items())} for name, read in seen.items()}
    shapes["plan"] = {key: "…" for key in sorted(seen["plan"]) if key in ("schema_version", "kind", "runs", "fleet")}
    shapes["apply"]["plan"] = "…"
    for name in ("inspect", "wait", "stop", "upload", "delete"):
        shapes[name]["job"] = "…"
    assert {read["kind"] for name, read in seen.items() if name != "plan"} == set(seen) - {"plan"}
    assert seen["checkpoints"]["job_id"] == seen["checkpoints"]["job"] == seen["inspect"]["job_id"]
    history, last = ([row["event"] for row in seen[name]["job"]["events"]] for name in ("inspect", "delete"))
    assert history and last[: len(history)] == history
    frozen("envelopes", dict(sorted(shapes.items())))


def test_errors_are_a_document_on_stdout_and_words_on_stderr(project: Project) -> None:
    (project.folder / "run.yaml").write_text("version: 1\nname: quick\ncomand: x\n")
    read = document(project, "plan", "run.yaml", code=4)
    assert read["kind"] == "error"
    assert {item["span"]["line"] for item in read["diagnostics"]} >= {3}
    assert project.run("plan", "run.yaml", "--json").stderr != ""


def test_a_refused_apply_is_one_document_too(project: Project) -> None:
    project.write("python3 work.py 0 7")
    assert project.apply("--follow").returncode == 10
    read = document(project, "apply", "run.yaml", "--yes", code=8)
    assert read["exit"] == 8
    assert read["runs"] == []
