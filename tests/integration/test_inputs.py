"""Inputs that lie on the machine: looked for before anything starts, found by name, weighed and never changed."""

from __future__ import annotations

import json

from integration.project import Project

SPEC = """inputs:
  corpus: {{path: {corpus}}}
  checkpoint: {{path: ~/start.bin}}
"""
READS = (
    'test -f "$AICRUN_INPUT_CORPUS/a/one.txt" && test "$FLEXAI_INPUT_CHECKPOINT_DIR" = "$AICRUN_INPUT_CHECKPOINT"'
    ' && test -f "$AICRUN_INPUT_CHECKPOINT" && test -d "$FLEXAI_OUTPUT_CHECKPOINT_DIR" && python3 work.py'
)


def written(project: Project) -> None:
    corpus = project.person.home / "data/corpus"
    (corpus / "a").mkdir(parents=True, exist_ok=True)
    (corpus / "a" / "one.txt").write_text("x" * 1000)
    (corpus / "two.txt").write_text("y" * 24)
    (project.person.home / "start.bin").write_text("weights")
    project.write(f"'{READS}'", more=SPEC.format(corpus=corpus))


def test_a_run_finds_its_inputs_by_name_and_what_they_were_is_kept(project: Project) -> None:
    written(project)
    corpus = project.person.home / "data/corpus"
    assert f"inputs corpus from {corpus}," in " ".join(project.run("plan", "-v").stdout.split())
    done = project.apply("--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    log = project.run("logs", "quick", "--step", "setup").stdout
    assert f"input corpus: 2 files, 1024 bytes in {corpus}" in log
    kept = json.loads(next(project.person.home.rglob("setup.json")).read_text())["inputs"]["corpus"]
    assert kept == {"path": str(corpus), "files": 2, "bytes": 1024, "whole": True}
    assert sorted(path.name for path in corpus.rglob("*")) == ["a", "one.txt", "two.txt"]


def test_an_input_that_is_not_there_is_no_place_to_run(project: Project) -> None:
    written(project)
    (project.person.home / "start.bin").unlink()
    done = project.apply()
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 5, said
    assert f"input checkpoint, {project.person.home}/start.bin: No such file or directory" in said


def test_one_that_is_asked_for_from_elsewhere_is_refused_by_name(project: Project) -> None:
    project.write(more="inputs: {corpus: {from: 's3://bucket/corpus/'}}\n")
    done = project.run("validate")
    assert done.returncode == 4 and '"inputs.corpus.from" is not supported yet' in done.stderr + done.stdout
    project.write(more="inputs: {corpus: {path: /a}, Corpus: {path: /b}}\n")
    assert "two inputs would be AICRUN_INPUT_CORPUS" in project.run("validate").stderr
