"""Inputs that lie on the machine: looked for before anything starts, found by name, weighed and never changed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from integration.project import Project

SPEC = """inputs:
  corpus: {{path: {corpus}}}
  checkpoint: {{path: ~/start.bin}}
"""
READS = (
    'test -f "$AICRUN_INPUT_CORPUS/a/one.txt" && test "$FLEXAI_INPUT_CHECKPOINT_DIR" = "$AICRUN_INPUT_CHECKPOINT"'
    ' && test -f "$AICRUN_INPUT_CHECKPOINT" && test -d "$FLEXAI_OUTPUT_CHECKPOINT_DIR" && python3 work.py'
)


def flat(done: subprocess.CompletedProcess[str]) -> str:
    """What a command said, however its lines were broken."""
    return " ".join((done.stdout + done.stderr).split())


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


def test_two_inputs_of_one_variable_are_refused(project: Project) -> None:
    project.write(more="inputs: {corpus: {path: /a}, Corpus: {path: /b}}\n")
    assert "two inputs would be AICRUN_INPUT_CORPUS" in project.run("validate").stderr


SENT = """inputs:
  corpus: {from: ../corpus}
  checkpoint: {from: ~/start.bin}
"""


def test_a_folder_and_a_file_of_the_person_are_sent_once_and_lie_read_only_where_the_job_reads_them(
    project: Project, tmp_path: Path
) -> None:
    home = project.person.home
    corpus, blob = home / "corpus", tmp_path / "blob"
    (corpus / "a").mkdir(parents=True)
    (corpus / "a" / "one.txt").write_text("x" * 1000)
    blob.write_bytes(b"y" * (3 << 20))
    # As a cache of models is made: the name here, the bytes elsewhere.
    (corpus / "two.bin").symlink_to(blob)
    (corpus / "three.txt").symlink_to("a/one.txt")
    (home / "start.bin").write_text("weights")
    more = f'test -L "$AICRUN_INPUT_CORPUS/three.txt" && cmp {blob} "$AICRUN_INPUT_CORPUS/two.bin" && '
    project.write(f"'{more}{READS}'", more=SENT)
    planned = flat(project.run("plan", "-v"))
    assert "input corpus: 3 files, 3.0 MiB: ../corpus" in planned, planned
    done = project.apply("--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    job = project.job()["job"]
    kept = job["facts"]["setup"]["inputs"]
    assert kept["corpus"]["from"] == "../corpus" and kept["corpus"]["new"] and kept["corpus"]["files"] == 3
    place = Path(kept["corpus"]["path"])
    assert place.name == "corpus" and not os.stat(place / "two.bin").st_mode & 0o222
    assert kept["checkpoint"]["path"].endswith("/start.bin")
    (corpus / "a" / "four.txt").write_text("")
    (corpus / "a" / "four.txt").unlink()
    planned = flat(project.run("plan", "--again", "-v"))
    assert "input corpus: 3 files, 3.0 MiB: there already" in planned, planned
    again = flat(project.apply("--again"))
    assert "3.0 MiB to here" not in again, again
    assert not project.job()["job"]["facts"]["setup"]["inputs"]["corpus"]["new"]


def test_another_content_is_another_run_and_one_that_is_gone_is_told(project: Project) -> None:
    start = project.person.home / "start.bin"
    start.write_text("weights")
    project.write(more="inputs: {start: {from: ~/start.bin}}\n")
    assert project.run("plan", "run.yaml", "-o", "plan.json").returncode == 0
    assert project.apply("--follow").returncode == 0
    start.write_text("other weights")
    stale = project.run("apply", "plan.json", "--yes")
    assert stale.returncode == 9 and "input start of quick" in flat(stale), flat(stale)
    assert "input start: 1 file, 13 B: ~/start.bin" in flat(project.run("plan"))
    start.write_text("weights")
    assert "input start" not in flat(project.run("plan"))
    start.unlink()
    gone = project.run("plan")
    assert gone.returncode == 4 and "inputs.start.from names ~/start.bin, which is not there" in flat(gone).replace(
        '"', ""
    ), flat(gone)
