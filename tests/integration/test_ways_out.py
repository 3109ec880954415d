"""A refusal tells what happened, to which thing, and the command to type next; the command that it shows works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from integration.project import Project
from support import REPOSITORY, Person


def test_init_names_the_folder_that_is_not_there_and_makes_nothing(person: Person) -> None:
    done = person.run("init", "--to", "sub dir/x.yaml")
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("error[AIC-E027]: sub dir/x.yaml cannot be written"), done.stderr
    assert "mkdir -p 'sub dir' && aicrun init --to 'sub dir/x.yaml'" in done.stderr
    made = subprocess.run("mkdir -p 'sub dir'", cwd=person.home, shell=True, check=False)
    assert made.returncode == 0
    assert person.run("init", "--to", "sub dir/x.yaml").returncode == 0


def test_init_in_a_folder_that_is_a_file_is_no_fault_of_aicrun(person: Person) -> None:
    (person.home / "file").write_text("")
    done = person.run("init", "--to", "file/x.yaml")
    assert (done.returncode, "AIC-E027" in done.stderr) == (3, True), done.stderr
    assert "aicrun init --to" in done.stderr


def test_any_file_of_the_client_s_that_cannot_be_used_is_no_fault_of_aicrun(project: Project) -> None:
    project.write()
    (project.folder / "specs").symlink_to(project.folder / "specs")
    done = project.run("plan", "specs")
    assert (done.returncode, "a fault of aicrun" in done.stderr) == (3, False), done.stderr
    # A folder that the ledger cannot lie in: whatever the client does with it, it is not called its own fault.
    state = Path(project.person.env["XDG_CACHE_HOME"])
    state.mkdir(parents=True, exist_ok=True)
    (state / "aicrun").write_text("a file, no folder")
    listed = project.run("plan")
    assert "a fault of aicrun" not in listed.stderr, listed.stderr


def test_long_output_that_stdout_does_not_take_is_told_as_such(project: Project) -> None:
    # More than any buffer holds: a second try to write it would find nothing left, and would not tell.
    with (project.folder / "out").open("wb") as stream:
        done = subprocess.run(
            ["bash", "-c", 'ulimit -f 1; exec "$0" -m aicrun explain run --json', sys.executable],
            # The limit is for every file: compiled modules would be cut too.
            env=dict(project.person.env, PYTHONPATH=str(REPOSITORY), PYTHONDONTWRITEBYTECODE="1"),
            stdout=stream,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, "AIC-E016" in done.stderr) == (1, True), done.stderr


def test_a_home_that_cannot_be_written_is_told_as_that_and_not_as_an_absent_machine(project: Project) -> None:
    project.write()
    blocked = project.person.home / "file"
    blocked.write_text("")
    project.person.env["XDG_STATE_HOME"] = str(blocked / "state")
    done = project.run("plan")
    assert done.stderr.startswith("error[AIC-E513]"), done.stderr
    assert str(blocked) in done.stderr
    assert "machines down" not in done.stderr + done.stdout


def test_a_machine_that_no_list_has_is_told_with_those_that_it_has(project: Project) -> None:
    project.write()
    done = project.run("plan", "--set", "machine.name=hera")
    assert done.returncode == 5
    assert "no machine is named hera" in done.stdout
    assert "aicrun plan run.yaml --set machine.name=here" in done.stdout


def test_what_could_not_be_moved_is_fourteen_and_names_what_to_type(project: Project) -> None:
    project.write(more="checkpoints: {}\n")
    assert project.apply("--follow").returncode == 0
    for words, way in (
        (("pull", "here:/nope/x"), "ls -la /nope"),
        (("push", "work.py", "here:/nope/x/y"), "mkdir -p /nope/x"),
        (("upload", "quick"), "aicrun fetch quick"),
    ):
        done = project.run(*words)
        assert (done.returncode, way in done.stderr) == (14, True), done.stderr
    assert project.run("fetch", "nobody").returncode == 3


def test_a_run_in_progress_is_to_be_stopped_first_with_the_command(project: Project) -> None:
    project.write("python3 work.py 900")
    assert project.apply().returncode == 0
    project.running()
    for words, code in ((("delete", "quick", "--yes"), 7), (("upload", "quick"), 14)):
        done = project.run(*words)
        assert (done.returncode, "aicrun stop quick" in done.stderr) == (code, True), done.stderr
    assert project.run("stop", "quick", "--yes", "--grace", "0s").returncode == 0


def test_of_several_machines_one_is_to_be_named_in_the_whole_command(project: Project) -> None:
    machines = "version: 1\nmachines: [{name: here, local: true}, {name: attic, ssh: attic.invalid, down: true}]\n"
    (project.folder / "machines.yaml").write_text(machines)
    for words, way in (
        (("doctor",), "aicrun doctor here"),
        (("notes", "--add", "a loud fan"), "aicrun notes here --add 'a loud fan'"),
        (("gc", "--dry-run"), "aicrun gc attic --dry-run"),
    ):
        done = project.run(*words)
        assert (done.returncode, way in done.stderr) == (3, True), done.stderr


def test_what_a_machine_lacks_is_told_with_how_to_get_it(project: Project) -> None:
    lacking = (
        "checkpoints: {path: out, upload: {to: 's3://b/x/', with: rclone}}\nsetup: {python: '3.5', packages: [six]}\n"
    )
    project.person.env["PATH"] = "/usr/bin:/bin"
    project.write(more=lacking)
    done = project.run("plan")
    assert done.returncode == 5, done.stdout + done.stderr
    assert "on here" in done.stdout and "apt install rclone" in done.stdout.partition("Plan:")[2]
    assert "aicrun plan run.yaml --set setup.python=3." in done.stdout
    assert "aicrun explain setup.python" in done.stdout
    project.write(more="machine: {disk: {path: /, free: 99TiB}}\n")
    assert "asks 99.0 TiB free on" in " ".join(project.run("plan").stdout.split())


def test_a_plan_says_which_python_runs_where_the_spec_leaves_that_to_the_machine(project: Project) -> None:
    project.write("python3 work.py")
    shown = " ".join(project.run("plan").stdout.split())
    assert "python /" in shown and "the machine's own, for there is no setup" in shown, shown
    for quiet in ("/usr/bin/python3 work.py", "bash work.sh"):
        project.write(quiet)
        assert "for there is no setup" not in project.run("plan").stdout


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("status", "list"), ("cancel", "stop"), ("run", "apply"), ("aply", "apply"), ("version", "--version")],
)
def test_a_command_of_another_tool_finds_the_one_that_is_meant(person: Person, typed: str, meant: str) -> None:
    done = person.run(typed, "sft-run")
    assert (done.returncode, f"aicrun {meant}\n" in done.stderr) == (3, True), done.stderr


def test_what_a_command_with_a_run_offers_names_that_run(person: Person) -> None:
    done = person.run("logs", "-f", "sft-run", "--json")
    assert (done.returncode, "aicrun logs sft-run --json" in done.stderr) == (3, True), done.stderr


def test_a_verified_run_is_not_sent_in_a_circle_by_the_way_out_of_an_upload(project: Project) -> None:
    project.write()
    assert project.apply("--follow").returncode == 0
    done = project.run("upload", "quick", "--to", "file:~/other/")
    told = " ".join(done.stderr.split())
    assert done.returncode == 14 and "uploaded and verified already" in told, told
    assert "aicrun fetch quick" in told and "aicrun upload" not in told, told


def test_a_plan_is_saved_only_under_a_name_that_apply_takes_for_a_plan(project: Project) -> None:
    project.write()
    done = project.run("plan", "-o", "x.yaml")
    assert (done.returncode, "-o x.json" in done.stderr) == (3, True), done.stderr
    assert not (project.folder / "x.yaml").exists()


def test_a_push_of_what_is_not_there_could_not_be_done(person: Person) -> None:
    path = person.home / ".config/aicrun/machines.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("version: 1\nmachines:\n  - {name: lab, local: true}\n")
    done = person.run("push", "nofile", "lab:/tmp")
    assert (done.returncode, "AIC-E021" in done.stderr) == (14, True), done.stderr


@pytest.mark.parametrize(
    ("typed", "meant"), [("wait --timeout 60", "60s"), ("stop --grace 5", "5s"), ("wait --timeout 0.5", "90s")]
)
def test_a_duration_without_a_unit_is_refused_and_shown_with_one(project: Project, typed: str, meant: str) -> None:
    command, option, value = typed.split()
    project.write()
    assert project.apply("--follow").returncode == 0
    done = project.run(command, "quick", option, value)
    assert (done.returncode, f"{option} {meant}" in done.stderr) == (3, True), done.stderr


def test_an_option_without_its_value_leads_to_the_help_of_its_command(person: Person) -> None:
    for words in (("list", "--status"), ("notes", "lab", "--add")):
        done = person.run(*words)
        assert (done.returncode, f"aicrun {words[0]} --help" in done.stderr) == (3, True), done.stderr


def test_a_pull_without_room_names_a_command_that_there_is(person: Person) -> None:
    path = person.home / ".config/aicrun/machines.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("version: 1\nmachines:\n  - {name: lab, local: true}\n")
    (person.home / "here").mkdir()
    with (person.home / "large").open("wb") as stream:
        # With a hole in it: nothing is written.
        stream.truncate(shutil.disk_usage(person.home).free + 2**30)
    done = person.run("pull", f"lab:{person.home}/large", "here")
    told = " ".join(done.stderr.split())
    assert (done.returncode, "AIC-E646" in told) == (14, True), told
    assert "aicrun pull lab:" in told and "-o FOLDER" not in told, told


def test_what_removes_our_files_works_when_the_machine_is_out_of_the_list(person: Person) -> None:
    path = person.home / ".config/aicrun/machines.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("version: 1\nmachines:\n  - {name: lab, local: true}\n  - {name: den, ssh: nobody@127.0.0.1:9}\n")
    done = person.run("machines", "remove", "lab", "--clean", "--yes")
    assert (done.returncode, "rm -rf ~/.local/state/aicrun" in done.stdout) == (0, True), done.stdout + done.stderr
    assert "aicrun exec" not in done.stdout and "left as it was" in done.stdout, done.stdout


def test_the_help_of_machines_cuts_no_line(person: Person) -> None:
    assert "..." not in person.run("machines", "--help").stdout.partition("Commands:")[2]


def test_a_reader_who_left_changes_neither_what_is_done_nor_how_it_ends(project: Project) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    env = dict(project.person.env, PYTHONPATH=str(REPOSITORY))

    def unread(*words: str) -> tuple[int, bytes]:
        command = [sys.executable, "-m", "aicrun", *words]
        done = subprocess.run(
            command, cwd=project.folder, env=env, stdout=write_end, stderr=subprocess.PIPE, check=False
        )
        return done.returncode, done.stderr

    project.write("exit 3")
    assert unread("apply", "run.yaml", "--yes", "--follow")[0] == 10
    assert project.job("quick")["status"] == "failed"
    assert unread("wait", "quick") == (10, b"")
    assert unread("list") == unread("inspect", "quick", "--json") == (0, b"")
    os.close(write_end)
