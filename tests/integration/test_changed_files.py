"""A plan names the files of a source that changed since the last job, while its host has their listing."""

from __future__ import annotations

import shutil
from pathlib import Path

from integration.project import Project


def test_a_changed_source_is_told_file_by_file(project: Project) -> None:
    project.write(more="checkpoints: {path: out}\n")
    (project.folder / "old.py").write_text("1\n")
    (project.folder / "same.py").write_text("1\n")
    assert project.apply("--follow").returncode == 0
    (project.folder / "old.py").unlink()
    (project.folder / "new.py").write_text("2\n")
    (project.folder / "work.py").write_text((project.folder / "work.py").read_text() + "# more\n")
    kept = project.run("plan")
    assert kept.returncode == 0
    assert "  source    3 files: + new.py, - old.py, ~ work.py\n" in kept.stdout
    assert "now " not in kept.stdout
    again = project.run("plan", "--again")
    assert "\n  source                3 files: + new.py, - old.py, ~ work.py\n" in again.stdout
    (change,) = [one for one in project.json("plan")["runs"][0]["changes"] if one["path"] == "source"]
    assert change["files"] == ["+ new.py", "- old.py", "~ work.py"]
    # The store is safe to lose: then the two trees tell that something changed, and nothing more.
    for listing in Path(project.person.home).rglob("store/trees"):
        shutil.rmtree(listing)
    lost = project.run("plan")
    assert lost.returncode == 0 and "  source    was " in lost.stdout


def test_of_many_files_the_first_are_named_and_all_with_v(project: Project) -> None:
    project.write("python3 work.py 900", more="checkpoints: {path: out}\n")
    assert project.apply().returncode == 0
    for number in range(30):
        (project.folder / f"part-{number:02}.py").write_text("x\n")
    short, whole = project.run("plan"), project.run("plan", "-v")
    assert short.returncode == 8
    told = " ".join(short.stdout.split())
    assert "± source 30 files: + part-00.py, " in told and "+ part-07.py and 22 more" in told
    assert [line for line in short.stdout.splitlines() if len(line) > 80] == []
    assert "+ part-29.py" in " ".join(whole.stdout.split())
