"""A run of a source that was not committed: what it trained can be had again, by whoever asks."""

from __future__ import annotations

import stat
import subprocess

from git_rig import Repository
from integration.project import Project

VALUE = "a-planted-value-0123456789"


def test_what_a_run_was_made_of_is_its_commit_and_what_differed(project: Project) -> None:
    project.write("sh keys.sh && python3 work.py", more="secrets: [KEY]\n")
    made = Repository.__new__(Repository)
    made.folder = project.folder
    made("init", "-q", "-b", "main")
    (project.folder / "keys.sh").write_text("exit 1\n")
    made("add", "-A")
    made("commit", "-q", "-m", "first")
    # Somebody tries a value by hand, in a file: where the value is a secret of the run, no record of ours has it.
    (project.folder / "keys.sh").write_text(f'test "$KEY" = {VALUE}\n')
    (project.folder / "new.py").write_text("print(1)\n")
    project.person.env["KEY"] = VALUE
    assert project.apply("--follow").returncode == 0
    told = project.run("inspect", "quick", "--diff")
    assert told.returncode == 0, told.stderr
    assert VALUE not in told.stdout
    assert '+test "$KEY" = ***\n' in told.stdout
    other = project.person.home / "other"
    made("clone", "-q", str(project.folder), str(other))
    subprocess.run(["git", "apply"], cwd=other, input=told.stdout, text=True, check=True)
    assert (other / "new.py").read_text() == "print(1)\n"
    assert project.json("inspect", "quick", "--diff")["diff"] == told.stdout
    kept = list(project.person.home.glob(".local/state/aicrun/*/runs/quick/*/source.diff"))
    assert [stat.S_IMODE(place.stat().st_mode) for place in kept] == [0o600]

    # Committed, there is nothing more to tell.
    made("add", "-A")
    made("commit", "-q", "-m", "second")
    assert project.apply("--again", "--follow").returncode == 0
    clean = project.run("inspect", "quick", "--diff")
    assert (clean.returncode, clean.stdout) == (0, "")
    assert f"the source of quick is commit {made('rev-parse', 'HEAD')[:12]} as it is" in clean.stderr
    assert project.json("inspect", "quick", "--diff")["diff"] is None
