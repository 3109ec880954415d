"""A run that was cut off goes on from its newest checkpoint that is whole: by a retry, and by another apply."""

from __future__ import annotations

from pathlib import Path

import pytest
from integration.project import Project
from integration.test_retry import reboot
from support import until

TRAINER = """\
import json, os, signal, sys, time
start = sys.argv[sys.argv.index("--resume") + 1] if "--resume" in sys.argv else os.environ["AICRUN_RESUME_FROM"]
out, home = os.environ["AICRUN_CHECKPOINT_DIR"], os.environ["HOME"]
step = 0
with open(os.path.join(home, "trackers"), "a") as stream:
    stream.write("%s %s\\n" % (os.environ.get("WANDB_RUN_ID"), os.environ.get("MLFLOW_RUN_ID")))
if start:
    with open(os.path.join(start, "trainer_state.json")) as stream:
        step = json.load(stream)["global_step"]
with open(os.path.join(home, "starts"), "a") as stream:
    stream.write("%s %d %s\\n" % (os.environ["AICRUN_ATTEMPT"], step, os.path.basename(start)))
for step in range(step + 1, 7):
    folder = os.path.join(out, "checkpoint-%d" % step)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "weights.dat"), "w") as stream:
        stream.write("x" * step)
    cut = os.path.join(home, "cut-at-%d" % step)
    if os.path.exists(cut):
        # In the middle of a checkpoint, as a kill of the kernel's comes.
        os.unlink(cut)
        os.kill(os.getpid(), signal.SIGKILL)
    with open(os.path.join(folder, "trainer_state.json"), "w") as stream:
        json.dump({"global_step": step, "log_history": [{"loss": 1.0 / step}]}, stream)
print("done", flush=True)
"""


def starts(project: Project) -> list[str]:
    """`attempt step checkpoint` of each start, in order."""
    return (project.person.home / "starts").read_text().splitlines()


def written(project: Project, command: str = "python3 work.py", more: str = "") -> None:
    (project.folder / "work.py").write_text(TRAINER)
    env = 'env: {WANDB_RUN_ID: "${run.id}", MLFLOW_RUN_ID: "r-${run.id}"}\n'
    project.write(command, more=f"resume: {{from: latest}}\ncheckpoints: {{path: out}}\n{env}{more}")


def trackers(project: Project) -> list[str]:
    """The ids that each start had for its trackers, in order."""
    return (project.person.home / "trackers").read_text().splitlines()


def test_a_retry_goes_on_where_the_kill_came(project: Project) -> None:
    written(project, more="retry: {max: 3, when: [signal], backoff: 1s}\n")
    for step in (3, 5):
        (project.person.home / f"cut-at-{step}").touch()
    done = project.apply("--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    assert starts(project) == ["1 0 ", "2 2 checkpoint-2", "3 4 checkpoint-4"]
    events = [
        event["detail"] for event in project.json("inspect", "quick")["job"]["events"] if event["event"] == "resumes"
    ]
    run_id = project.json("inspect", "quick")["run_id"]
    assert trackers(project) == [f"{run_id} r-{run_id}"] * 3
    assert events == [
        "from nothing",
        "from checkpoint-2; checkpoint-3 skipped: trainer_state.json is missing",
        "from checkpoint-4; checkpoint-5 skipped: trainer_state.json is missing",
    ]


@pytest.mark.parametrize("command", ["python3 work.py", "[python3, work.py]"])
def test_another_apply_goes_on_under_the_same_run_id_and_a_fresh_one_does_not(project: Project, command: str) -> None:
    args = "" if command.startswith("python3") else '  args: ["--resume", "${resume.checkpoint}"]\n'
    written(project, command)
    text = (project.folder / "run.yaml").read_text()
    (project.folder / "run.yaml").write_text(text.replace("{from: latest}", "\n  from: latest\n" + args.rstrip("\n")))
    (project.person.home / "cut-at-3").touch()
    assert project.apply("--follow").returncode == 10
    run_id = project.json("inspect", "quick")["run_id"]
    shown = " ".join(project.run("plan", "--again").stdout.split())
    assert f"run id {run_id}, kept: resumes from checkpoint-2" in shown
    assert "checkpoint-3 skipped: trainer_state.json is missing" in shown
    done = project.apply("--again", "--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    assert starts(project) == ["1 0 ", "1 2 checkpoint-2"]
    assert project.json("inspect", "quick")["run_id"] == run_id
    assert trackers(project) == [f"{run_id} r-{run_id}"] * 2
    # It has succeeded: what comes now begins from nothing.
    assert project.apply("--again", "--follow").returncode == 0
    assert starts(project)[-1] == "1 0 "
    assert project.json("inspect", "quick")["run_id"] != run_id and run_id not in trackers(project)[-1]


def test_a_killed_machine_goes_on_by_another_apply(project: Project) -> None:
    """All of it is killed, the keeper first, as by a power cut."""
    written(project, "sleep 0.1 && python3 work.py && sleep 300")
    assert project.apply().returncode == 0
    out = Path(project.json("inspect", "quick")["job"]["checkpoints"]["path"])
    until(lambda: (out / "checkpoint-6/trainer_state.json").exists())
    until(lambda: not project.kill())
    (out / "checkpoint-7").mkdir()
    (out / "checkpoint-7/weights.dat").write_text("half")
    assert project.run("wait", "quick").returncode == 12
    (project.folder / "run.yaml").write_text((project.folder / "run.yaml").read_text().replace(" && sleep 300", ""))
    done = project.apply("--again", "--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    assert starts(project)[-1] == "1 6 checkpoint-6" and len(set(trackers(project))) == 1


def test_after_a_reboot_the_next_apply_goes_on_with_the_same_ids(project: Project) -> None:
    written(project, "'python3 work.py; [ -e ~/rebooted ] || exec sleep 600'", "retry: {max: 2, when: [reboot]}\n")
    assert project.apply().returncode == 0
    job = project.json("inspect", "quick")["job"]
    out = Path(job["checkpoints"]["path"])
    until(lambda: (out / "checkpoint-6/trainer_state.json").exists())
    reboot(project, job["job_id"])
    (project.person.home / "rebooted").touch()
    shown = " ".join(project.run("plan").stdout.split())
    assert "kept: resumes from checkpoint-6" in shown and "attempt 2 of 3, after unknown(reboot)" in shown, shown
    done = project.apply("--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    assert starts(project) == ["1 0 ", "2 6 checkpoint-6"]
    run_id = project.json("inspect", "quick")["run_id"]
    assert run_id == job["run_id"] and trackers(project) == [f"{run_id} r-{run_id}"] * 2


def test_a_folder_that_cannot_be_read_is_not_begun_over(project: Project) -> None:
    written(project)
    (project.person.home / "cut-at-3").touch()
    assert project.apply("--follow").returncode == 10
    folder = Path(project.json("inspect", "quick")["job"]["checkpoints"]["path"])
    folder.rename(folder.with_name("aside"))
    folder.write_text("what a broken mount shows, where root may read all")
    shown = " ".join(project.run("plan", "--again").stdout.split())
    assert "its checkpoints cannot be read now: Not a directory" in shown
    assert project.apply("--again", "--follow").returncode == 10
    assert starts(project) == ["1 0 "]


def test_without_a_rule_nothing_is_gone_on_from(project: Project) -> None:
    (project.folder / "work.py").write_text(TRAINER)
    project.write(more="checkpoints: {path: out}\nretry: {max: 1, when: [signal], backoff: 1s}\n")
    (project.person.home / "cut-at-3").touch()
    assert project.apply("--follow").returncode == 0
    assert starts(project) == ["1 0 ", "2 0 "]


def test_arguments_are_for_a_list(project: Project) -> None:
    written(project)
    text = (project.folder / "run.yaml").read_text()
    (project.folder / "run.yaml").write_text(text.replace("{from: latest}", "{from: latest, args: [--go-on]}"))
    done = project.run("validate")
    assert done.returncode == 4 and '"resume.args" are added to a command that is a list' in done.stderr
