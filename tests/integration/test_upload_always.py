"""`checkpoints.upload.when: always`: what a run saved is uploaded however it ended, and the end stays what it was."""

from __future__ import annotations

import time

from integration.project import Project
from support import until

ALWAYS = "checkpoints: {upload: {to: 'file:~/kept/', when: always}}\n"
SAVES = 'echo w >"$AICRUN_CHECKPOINT_DIR/model.bin"'


def uploaded(project: Project) -> list[str]:
    kept = project.person.home / "kept"
    return sorted(path.name for path in kept.rglob("*") if path.is_file())


def test_a_run_that_failed_is_uploaded_and_has_failed(project: Project) -> None:
    project.write(f"'{SAVES}; exit 3'", more=ALWAYS)
    done = project.apply("--follow")
    assert done.returncode == 10, done.stdout + done.stderr
    found = project.json("inspect", "quick")
    assert (found["status"], found["reason"], found["code"]) == ("failed", "exit_code", 3)
    assert found["job"]["upload"]["verified"] and uploaded(project) == ["aicrun-manifest.json", "model.bin"]


def test_a_run_that_was_stopped_is_uploaded_and_was_stopped(project: Project) -> None:
    project.write(f"'{SAVES}; echo saved; sleep 300'", more=ALWAYS)
    assert project.apply().returncode == 0
    until(lambda: "saved" in project.run("logs", "quick").stdout)
    done = project.run("stop", "quick", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert project.json("inspect", "quick")["status"] == "stopped"
    assert uploaded(project) == ["aicrun-manifest.json", "model.bin"]


def test_by_itself_only_a_success_is_uploaded(project: Project) -> None:
    project.write(f"'{SAVES}; exit 3'", more=ALWAYS.replace(", when: always", ""))
    assert project.apply("--follow").returncode == 10
    assert uploaded(project) == []


def test_what_a_kill_cut_short_is_left_out_and_named(project: Project) -> None:
    saves = 'cd "$AICRUN_CHECKPOINT_DIR"; mkdir checkpoint-1 checkpoint-2; echo {} >checkpoint-1/trainer_state.json'
    project.write(f"""'{saves}; sleep 0.05; echo w >checkpoint-2/model.bin; kill -9 $$'""", more=ALWAYS)
    done = project.apply("--follow")
    assert done.returncode == 10, done.stdout + done.stderr
    told = " ".join((done.stdout + done.stderr).split())
    assert "left out checkpoint-2: it is not whole: trainer_state.json is missing" in told, told
    assert "checkpoint-1, 3 B, on here and uploaded (checkpoint-2 is not whole): aicrun fetch" in told, told
    assert uploaded(project) == ["aicrun-manifest.json", "trainer_state.json"]


def test_a_second_run_in_one_folder_uploads_its_own_alone(project: Project) -> None:
    """The folder is the person's, and what the first run left lies in it still."""
    shared = project.person.home / "shared"
    more = f"checkpoints: {{path: '{shared}', upload: {{to: 'file:~/kept/'}}}}\n"
    for name in ("first", "second"):
        # Older than the second run, also where a file system counts in whole seconds.
        until(
            lambda: not shared.exists() or time.time() > max(path.stat().st_mtime for path in shared.rglob("*")) + 1.1
        )
        project.write(f"""'cd "$AICRUN_CHECKPOINT_DIR"; mkdir {name}; echo {name} >{name}/model.bin'""", name, more)
        done = project.apply("--follow")
        assert done.returncode == 0, done.stdout + done.stderr
    found = project.json("inspect", "second")["job"]["upload"]
    assert found["verified"] and found["files"] == 1, found
    kept = {str(path.relative_to(path.parents[2])) for path in (project.person.home / "kept").rglob("model.bin")}
    run_ids = [project.json("inspect", name)["run_id"] for name in ("first", "second")]
    assert kept == {f"{run_ids[0]}/first/model.bin", f"{run_ids[1]}/second/model.bin"}
    assert "left out first: it was there before the run began" in " ".join(done.stdout.split() + done.stderr.split())


def test_a_run_is_uploaded_elsewhere_when_its_own_target_cannot_be_used(project: Project) -> None:
    # It could be written to when the run began.
    project.write("python3 work.py && rm -rf ~/kept && touch ~/kept")
    assert project.apply("--follow").returncode == 10
    done = project.run("upload", "quick", "--with", "copy")
    assert done.returncode == 3 and "name it with --to" in done.stderr
    done = project.run("upload", "quick", "--to", "somewhere")
    assert done.returncode == 4 and 'is no known target: "somewhere"' in done.stderr, done.stderr
    done = project.run("upload", "quick", "--to", "file:~/other")
    assert done.returncode == 0, done.stdout + done.stderr
    run_id = project.json("inspect", "quick")["run_id"]
    assert (project.person.home / "other" / run_id / "model.bin").read_text() == "weights"
    assert project.json("inspect", "quick")["status"] == "succeeded" and len(project.starts()) == 1
    done = project.apply()
    assert done.returncode == 0 and "Nothing to do" in done.stdout and len(project.starts()) == 1


def test_what_is_saved_is_there_while_the_run_waits_for_it_and_the_older_one_is_pruned(project: Project) -> None:
    saves = 'for n in 1 2; do d="$AICRUN_CHECKPOINT_DIR/checkpoint-$n"; mkdir "$d"; echo $n >"$d/model.bin"; '
    saves += 'echo "{}" >"$d/trainer_state.json"; done; '
    waits = 'while ! grep -q checkpoint-2 "$HOME"/kept/*/aicrun-manifest.json 2>/dev/null; do sleep 0.1; done'
    more = "checkpoints: {keep: 1, upload: {to: 'file:~/kept/', when: each}}\n"
    project.write(f"'{saves}{waits}'", more=more)
    planned = " ".join(project.run("plan", "run.yaml").stdout.split())
    assert "each while it trains; the newest stays on here" in planned, planned
    done = project.apply("--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    shown = " ".join(project.run("checkpoints", "quick").stdout.split())
    assert "pruned verified" in shown and "keep: 1" in shown, shown
    found = project.json("inspect", "quick")["job"]
    assert (found["early"]["verified"], found["early"]["pruned"]) == (2, 1) and found["upload"]["files"] == 4
    # What the machine has no more is told with the command that brings its copy.
    told = project.run("fetch", "quick", "checkpoint-1")
    assert told.returncode == 3 and "checkpoint-1 of quick is on here no more" in " ".join(told.stderr.split())
    words = next(line.split() for line in told.stderr.splitlines() if "aicrun pull" in line)
    assert project.run(*words[words.index("pull") :]).returncode == 0
    assert (project.folder / "checkpoint-1/model.bin").read_text() == "1\n"
