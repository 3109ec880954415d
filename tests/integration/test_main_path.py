"""From run.yaml to a verified checkpoint on this machine, as a person would type it."""

from __future__ import annotations

import hashlib
import json
import signal

import pytest
from integration.project import Project
from support import until


def test_a_spec_becomes_a_succeeded_run_with_a_verified_checkpoint(project: Project) -> None:
    project.write()
    assert project.run("validate", "run.yaml").returncode == 0
    planned = project.run("plan", "run.yaml")
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.startswith("+ quick: start on here\n")
    assert "Nothing has been changed." in planned.stdout
    assert project.starts() == []

    done = project.apply("--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "│ step 2/2 loss=0.4" in done.stderr
    assert "quick succeeded on here" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last == "model.bin, 7 B, on here and uploaded: aicrun fetch quick"
    assert project.run(*last.rpartition(": aicrun ")[2].split()).returncode == 0
    assert (project.folder / "model.bin").read_text() == "weights"
    uploaded = list((project.person.home / "kept").rglob("model.bin"))
    assert [path.read_text() for path in uploaded] == ["weights"]
    manifest = next((project.person.home / "kept").rglob("*.json")).read_text()
    assert hashlib.sha256(b"weights").hexdigest() in manifest


def test_the_second_apply_has_nothing_to_do(project: Project) -> None:
    project.write()
    assert project.apply("--follow").returncode == 0
    again = project.apply()
    assert again.returncode == 0
    assert again.stdout.startswith("= quick: keep, succeeded ")
    assert "fetch the last  aicrun fetch quick" in again.stdout
    assert len(project.starts()) == 1


def test_losing_the_ledger_changes_no_answer(project: Project) -> None:
    project.write()
    assert project.apply("--follow").returncode == 0
    ledger = project.person.home / ".local/state/aicrun/ledger.db"
    ledger.unlink()
    assert project.apply().stdout.startswith("= quick: keep, succeeded ")
    ledger.write_bytes(b"no database at all, but long enough to look like a file of some sort " * 20)
    assert project.apply().stdout.startswith("= quick: keep, succeeded ")
    assert len(project.starts()) == 1


def test_a_run_outlives_the_command_that_started_it(project: Project) -> None:
    project.write("python3 work.py 3")
    started = project.apply()
    assert started.returncode == 0, started.stderr
    assert "quick is in progress on here. It goes on when this terminal closes." in started.stdout
    waited = project.run("wait", "quick")
    assert waited.returncode == 0, waited.stderr
    assert "quick succeeded on here" in waited.stdout


def test_a_changed_command_is_refused_while_the_run_goes_on_and_replaces_it_when_asked(project: Project) -> None:
    project.write("python3 work.py 900")
    assert project.apply().returncode == 0
    first = project.running()
    project.write("python3 work.py 61")
    refused = project.apply()
    assert refused.returncode == 8
    assert refused.stdout.startswith("x quick: refused")
    assert "work.py 900" in refused.stdout
    assert "work.py 61" in refused.stdout
    assert project.job()["job_id"] == first["job_id"]

    replaced = project.apply("--replace")
    assert replaced.returncode == 0, replaced.stdout + replaced.stderr
    second = project.job()
    assert second["job_id"] != first["job_id"]
    assert second["status"] == "in progress"
    assert project.job(first["job_id"])["status"] == "stopped"
    assert project.starts() == [first["job_id"], second["job_id"]]
    assert project.run("stop", "quick", "--yes").returncode == 0


def test_a_changed_limit_changes_the_run_in_place(project: Project) -> None:
    project.write("python3 work.py 900")
    assert project.apply().returncode == 0
    first = project.running()
    project.write("python3 work.py 900", more="limits: {max_duration: 2h}\n")
    changed = project.apply()
    assert changed.returncode == 0, changed.stdout + changed.stderr
    assert changed.stdout.startswith("~ quick: change in place")
    assert "quick changed." in changed.stdout
    assert project.job()["job_id"] == first["job_id"]
    assert project.apply().stdout.startswith("= quick: keep")
    assert project.run("stop", "quick", "--yes").returncode == 0


def test_a_stopped_run_says_so_everywhere_and_can_be_deleted(project: Project) -> None:
    project.write("python3 work.py 900")
    assert project.apply().returncode == 0
    job = project.running()
    stopped = project.run("stop", "quick", "--yes", "--grace", "5s")
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    assert "quick stopped on here" in stopped.stdout
    assert project.run("wait", "quick").returncode == 11
    assert project.run("apply", "run.yaml", "--yes").returncode == 8
    gone = project.run("delete", "quick", "--yes")
    assert gone.returncode == 0, gone.stderr
    assert project.run("inspect", job["job_id"]).returncode == 3
    assert "No runs" in project.run("list").stdout


def test_a_failing_command_is_failed_with_its_code_everywhere(project: Project) -> None:
    project.write("python3 work.py 0 7", more="checkpoints: {}\n")
    done = project.apply("--follow")
    assert done.returncode == 10
    assert "quick failed(exit_code) on here" in done.stdout
    assert "exit code 7" in done.stdout
    assert "│ step 2/2 loss=0.4" in done.stdout
    assert "exit_code 7" in project.run("list").stdout
    assert project.job()["code"] == 7
    assert project.run("wait", "quick").returncode == 10
    assert project.run("apply", "run.yaml", "--yes").returncode == 8
    assert project.apply("--again", "--follow").returncode == 10
    assert len(project.starts()) == 2


def test_a_failed_setup_ends_the_apply_with_its_evidence(project: Project) -> None:
    project.write(more="setup: {run: ['echo no such data >&2; exit 3']}\n")
    done = project.apply()
    assert done.returncode == 10, done.stdout + done.stderr
    assert "failed(setup_failed)" in done.stdout
    assert "no such data" in done.stdout
    assert project.starts() == []


def test_a_killed_command_is_a_signal_and_a_killed_tree_is_unknown(project: Project) -> None:
    project.write("python3 work.py 900")
    assert project.apply().returncode == 0
    project.running()
    assert project.kill("work.py")
    assert project.run("wait", "quick", "--timeout", "20s").returncode == 10
    assert project.job()["signal"] == signal.SIGKILL

    project.write("python3 work.py 900", name="lost", file="lost.yaml")
    other = project.run("apply", "lost.yaml", "--yes")
    assert other.returncode == 0, other.stdout + other.stderr
    until(lambda: len(project.starts()) == 2)
    assert project.kill("keeper")
    project.kill("pump")
    project.kill("work.py")
    waited = project.run("wait", "lost", "--timeout", "30s")
    assert waited.returncode == 12, waited.stdout + waited.stderr
    assert "neither success nor failure" in waited.stdout


@pytest.mark.parametrize("how", [(), ("--follow",)])
def test_a_failed_upload_is_done_again_without_training_again(project: Project, how: tuple[str, ...]) -> None:
    blocked = project.person.home / "kept"
    blocked.write_text("a file where a folder should be")
    project.write(more="checkpoints: {upload: {to: 'file:~/kept/', probe: false}}\n")
    done = project.apply("--follow")
    assert done.returncode == 10, done.stdout + done.stderr
    assert "failed(upload_failed)" in done.stdout
    blocked.unlink()
    again = project.apply(*how)
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.startswith("^ quick: upload again")
    told = again.stderr.splitlines()
    assert len([line for line in told if line.startswith("  upload ")]) == 1
    assert not [line for line in told if line.startswith(("  started", "│"))]
    assert project.job()["status"] == "succeeded"
    assert len(project.starts()) == 1
    assert project.run("upload", "quick").returncode == 0


def test_logs_are_bare_and_read_by_offset(project: Project) -> None:
    project.write()
    assert project.apply("--follow").returncode == 0
    whole = "step 1/2 loss=0.9\nstep 2/2 loss=0.4\n"
    assert project.run("logs", "quick").stdout == whole
    assert project.run("logs", "quick", "--tail", "1").stdout == "step 2/2 loss=0.4\n"
    assert project.run("logs", "quick", "--offset", "18").stdout == "step 2/2 loss=0.4\n"
    assert project.run("logs", "-f", "quick").stdout == whole
    assert project.json("logs", "quick")["next_offset"] == len(whole)


def test_following_a_log_to_its_end_says_how_the_run_ended(project: Project) -> None:
    project.write("python3 work.py 0 7")
    project.apply("--follow")
    followed = project.run("logs", "-f", "quick")
    assert followed.stdout == "step 1/2 loss=0.9\nstep 2/2 loss=0.4\n"
    assert "quick failed(exit_code) on here" in followed.stderr
    assert "exit code 7" in followed.stderr
    assert followed.stderr.splitlines()[-1] == "model.bin, 7 B, on here only: aicrun fetch quick"


def test_ctrl_c_on_following_leaves_the_run_running(project: Project) -> None:
    project.write("python3 work.py 900")
    following = project.popen("apply", "run.yaml", "--yes", "--follow")
    project.running()
    following.send_signal(signal.SIGINT)
    out, err = following.communicate(timeout=20)
    assert following.returncode == 130, out + err
    assert "quick goes on on here. Nothing was stopped." in err
    assert "aicrun logs -f quick" in err
    assert "aicrun stop quick" in err
    assert project.job()["status"] == "in progress"
    assert project.run("stop", "quick", "--yes").returncode == 0


def test_sigterm_on_waiting_leaves_the_run_running(project: Project) -> None:
    project.write("python3 work.py 900")
    assert project.apply().returncode == 0
    project.running()
    waiting = project.popen("logs", "-f", "quick")
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == "step 1/2 loss=0.9\n"
    waiting.send_signal(signal.SIGTERM)
    waiting.communicate(timeout=20)
    assert waiting.returncode == 143
    assert project.job()["status"] == "in progress"
    assert project.run("wait", "quick", "--timeout", "1s").returncode == 13
    assert project.run("stop", "quick", "--yes").returncode == 0


def test_a_saved_plan_is_applied_verbatim_and_refused_when_a_file_moved(project: Project) -> None:
    project.write()
    assert project.run("plan", "run.yaml", "-o", "plan.json").returncode == 0
    shown = project.run("show", "plan.json")
    assert shown.stdout.startswith("+ quick: start on here\n")
    (project.folder / "work.py").write_text("print('other')\n")
    stale = project.run("apply", "plan.json", "--yes")
    assert stale.returncode == 9, stale.stdout + stale.stderr
    assert "work.py" in stale.stderr or "source" in stale.stderr
    assert project.starts() == []

    project.write("echo not read", name="unread")
    from integration.project import WORK

    (project.folder / "work.py").write_text(WORK)
    applied = project.run("apply", "plan.json", "--yes", "--follow")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert "quick succeeded" in applied.stdout
    stale = project.run("apply", "plan.json", "--yes")
    assert stale.returncode == 9


def test_two_specs_in_one_call_are_two_runs(project: Project) -> None:
    project.write()
    project.write(name="other", file="other.yaml")
    done = project.run("apply", "run.yaml", "other.yaml", "--yes", "--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(project.starts()) == 2
    assert project.run("apply", ".", "--yes").returncode == 0
    assert len(project.starts()) == 2


def test_a_machine_that_cannot_be_asked_refuses_until_it_is_excepted(project: Project) -> None:
    (project.folder / "machines.yaml").write_text(
        "version: 1\nmachines:\n  - {name: here, local: true}\n  - {name: lab, ssh: lab}\n"
    )
    project.write()
    refused = project.apply()
    assert refused.returncode == 6, refused.stdout + refused.stderr
    assert "lab" in refused.stdout
    assert "--except lab" in refused.stdout
    assert project.starts() == []
    done = project.apply("--follow", "--except", "lab")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_source_is_laid_out_fresh_and_a_new_file_is_a_change_of_it(project: Project) -> None:
    project.write("cat data.txt", more="checkpoints: {}\n")
    (project.folder / "data.txt").write_text("one\n")
    assert project.apply("--follow").returncode == 0
    assert project.run("logs", "quick").stdout == "one\n"
    (project.folder / "data.txt").write_text("two\n")
    kept = project.apply()
    assert kept.returncode == 0
    assert "source changed" in kept.stdout
    assert project.apply("--again", "--follow").returncode == 0
    assert project.run("logs", "quick").stdout == "two\n"


@pytest.mark.parametrize("order", [("plan", "run.yaml"), ("apply", "run.yaml", "--yes"), ("validate", "run.yaml")])
def test_a_wrong_file_is_told_with_its_place_and_starts_nothing(project: Project, order: tuple[str, ...]) -> None:
    (project.folder / "run.yaml").write_text("version: 1\nname: quick\ncomand: python3 work.py\n")
    done = project.run(*order)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "run.yaml:3:1" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert not (project.person.home / ".local/state/aicrun").exists()


def test_init_writes_a_file_that_validates_and_never_overwrites(project: Project) -> None:
    made = project.run("init")
    assert made.returncode == 0, made.stderr
    assert project.run("validate", "run.yaml").returncode == 0
    before = (project.folder / "run.yaml").read_text()
    assert project.run("init").returncode == 3
    assert (project.folder / "run.yaml").read_text() == before


def test_notes_tell_what_was_learned_and_take_a_line(project: Project) -> None:
    project.write(more="notes: |\n  Needs the driver from March.\n")
    assert project.apply("--follow").returncode == 0
    assert project.run("notes", "here", "--add", "Card 2 has a loud fan").returncode == 0
    text = project.run("notes", "here").stdout
    assert "Card 2 has a loud fan" in text
    assert "quick" in text
    assert "Needs the driver from March." in json.dumps(project.json("notes", "here"))
