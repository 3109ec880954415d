"""What people mistype, interrupt or pipe: a clear word and the right exit code, never a traceback."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from integration.project import Project
from support import REPOSITORY, Person, until

COMMANDS = (
    *("init", "validate", "schema", "explain", "plan", "show", "apply", "list", "inspect", "logs", "wait"),
    *("stop", "upload", "delete", "machines", "notes", "doctor", "gc", "completion"),
)


@pytest.mark.parametrize("command", (*COMMANDS, "machines drain"))
def test_every_help_has_an_example_and_fits_the_screen(person: Person, command: str) -> None:
    done = person.run(*command.split(), "--help")
    assert done.returncode == 0
    assert "Example: " in done.stdout
    assert "aicrun" in done.stdout.rpartition("Example: ")[2]
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


@pytest.mark.parametrize(
    "wrong",
    [
        ("aply",),
        ("apply", "--no-such-option"),
        ("logs",),
        ("logs", "nobody"),
        ("inspect", "nobody@here"),
        ("inspect", "nobody@nowhere"),
        ("list", "--status", "happy"),
        ("apply", "no-such-file.yaml", "--yes"),
        ("show", "run.yaml"),
        ("show", "no-such-plan.json"),
        ("explain", "no.such.field"),
        ("explain", "AIC-E999"),
        ("wait", "nobody", "--timeout", "soon"),
        ("notes", "nowhere"),
        ("plan", "run.yaml", "--again", "--fresh"),
        ("apply", "run.yaml", "--follow", "--no-wait"),
        ("plan", "run.yaml", "--except", "nowhere"),
        ("plan", "run.yaml", "--only", "nobody"),
        ("logs", "-f", "x", "--json"),
        ("completion", "tcsh"),
    ],
)
def test_wrong_usage_is_three_with_a_code_and_a_way_out(project: Project, wrong: tuple[str, ...]) -> None:
    project.write()
    done = project.run(*wrong)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "error[AIC-E" in done.stderr + done.stdout
    assert "\n  help      " in done.stderr
    assert "Traceback" not in done.stderr
    assert project.starts() == []


def test_a_question_that_nobody_can_answer_is_told_with_the_command(project: Project) -> None:
    project.write()
    done = project.run("apply", "run.yaml")
    assert done.returncode == 3
    assert "aicrun apply run.yaml --yes" in done.stderr
    assert project.starts() == []


def test_the_way_out_keeps_what_was_typed(project: Project) -> None:
    project.write()
    done = project.run("apply", "run.yaml", "--set", "env.A=b c")
    assert done.returncode == 3
    assert "aicrun apply run.yaml --set 'env.A=b c' --yes" in done.stderr


@pytest.mark.parametrize("words", ["plan run", "apply -f run", "validate run", "show p", "plan -o p"])
def test_tab_completes_files(person: Person, words: str) -> None:
    person.env["_AICRUN_COMPLETE"] = "bash_complete"
    person.env["COMP_WORDS"], person.env["COMP_CWORD"] = f"aicrun {words}", str(len(words.split()))
    assert person.run().stdout.startswith("file,")


def test_a_no_on_a_terminal_changes_nothing_and_a_yes_starts(project: Project) -> None:
    project.write()
    refused = typed(project, "n\n")
    assert "Nothing has been changed." in refused and refused.endswith("exit 130")
    assert project.starts() == []
    assert "quick is in progress" in (shown := typed(project, "y\n")) or "quick succeeded" in shown
    until(lambda: len(project.starts()) == 1)


def test_gc_shows_what_goes_before_it_asks_and_a_no_keeps_it(project: Project) -> None:
    project.write()
    assert project.apply("--follow").returncode == 0
    words = ("gc", "here", "--older-than", "0s")
    refused = project.run(*words)
    assert refused.returncode == 3
    assert " of quick: ended " in refused.stderr and "ago; its record stays" in refused.stderr
    assert "aicrun gc here --older-than 0s --yes\n" in project.run(*words, "--dry-run").stdout
    assert "aicrun gc here --older-than 0s --yes" in refused.stderr
    shown = typed(project, "n\n", *words)
    assert shown.index("ago; its record stays") < shown.index("Remove this from here? [y/N]")
    assert "Nothing has been changed." in shown and shown.endswith("exit 130")
    assert project.run("logs", "quick").returncode == 0
    assert " removed." in typed(project, "y\n", *words)
    assert project.run("logs", "quick").returncode != 0
    assert project.job()["status"] == "succeeded"


def test_a_no_to_a_stop_and_to_a_delete_is_told_by_the_exit_code_and_changes_nothing(project: Project) -> None:
    project.write("python3 work.py 900")
    assert project.apply().returncode == 0
    project.running()
    for words, said in ((("stop", "quick"), "Nothing was stopped."), (("delete", "quick"), "Nothing was deleted.")):
        shown = typed(project, "n\n", *words)
        assert said in shown and shown.endswith("exit 130")
    assert project.job()["status"] == "in progress"


def test_a_no_to_a_change_of_the_list_is_told_by_the_exit_code_too(project: Project) -> None:
    path = project.person.home / ".config/aicrun/machines.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("version: 1\nmachines:\n  - {name: lab, local: true}\n  - {name: den, ssh: nobody@127.0.0.1:9}\n")
    shown = typed(project, "n\n", "machines", "remove", "den")
    assert "Nothing was changed." in shown and shown.endswith("exit 130")
    assert "name: den" in path.read_text()


def typed(project: Project, answer: str, *words: str) -> str:
    """What a person on a terminal sees who answers the question of `apply`, or of another command."""
    ours, theirs = pty.openpty()
    client = subprocess.Popen(
        [sys.executable, "-m", "aicrun", *(words or ("apply", "run.yaml"))],
        cwd=project.folder,
        env=dict(project.person.env, PYTHONPATH=str(REPOSITORY), TERM="xterm"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = ""
    answered = False
    while True:
        try:
            seen += os.read(ours, 65536).decode()
        except OSError:
            break
        if "[y/N]" in seen and not answered:
            os.write(ours, answer.encode())
            answered = True
    client.wait(timeout=20)
    os.close(ours)
    return f"{seen}\nexit {client.returncode}"


def test_a_closed_pipe_ends_quietly(project: Project) -> None:
    project.write("seq 1 200000", more="checkpoints: {}\n")
    assert project.apply("--follow").returncode == 0
    shell = f"{sys.executable} -m aicrun logs quick --tail 100000 | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", shell],
        cwd=project.folder,
        env=dict(project.person.env, PYTHONPATH=str(REPOSITORY)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_from_the_start_stops_nothing(project: Project, closed: str) -> None:
    project.write("echo x", more="checkpoints: {}\n")
    shell = f"{sys.executable} -m aicrun apply run.yaml --yes --follow {closed}"
    done = subprocess.run(
        ["bash", "-c", shell],
        cwd=project.folder,
        env=dict(project.person.env, PYTHONPATH=str(REPOSITORY)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert project.run("list").stdout.count("succeeded") == 1


def test_a_relative_xdg_folder_is_passed_over(project: Project) -> None:
    project.write("echo x", more="checkpoints: {}\n")
    for name in ("STATE", "CONFIG", "CACHE", "DATA"):
        project.person.env[f"XDG_{name}_HOME"] = "relative"
    before = sorted(os.listdir(project.folder))
    assert project.apply("--follow").returncode == 0
    assert sorted(os.listdir(project.folder)) == before
    assert (project.person.home / ".local/state/aicrun/ledger.db").exists()


def test_a_home_whose_name_is_no_utf8_works(project: Project) -> None:
    home = project.person.home / os.fsdecode(b"caf\xe9")
    home.mkdir()
    project.person.env["HOME"] = str(home)
    for name in ("STATE", "CONFIG", "CACHE"):
        del project.person.env[f"XDG_{name}_HOME"]
    project.write("cp /etc/hostname $AICRUN_CHECKPOINT_DIR/model.bin")
    for args in (("apply", "run.yaml", "--yes", "--follow"), ("inspect", "quick"), ("list",), ("plan", "run.yaml")):
        done = project.run(*args)
        assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(home.glob("kept/*/model.bin"))) == 1


def test_a_fault_of_ours_is_one_sentence_and_a_traceback_only_with_debug(person: Person, tmp_path: Path) -> None:
    broken = tmp_path / "sitecustomize.py"
    broken.write_text(
        "import aicrun.spec.load as load\ndef bang(*a, **k): raise RuntimeError('bang')\nload.load_run = bang\n"
    )
    person.env["PYTHONPATH"] = f"{tmp_path}:{REPOSITORY}"
    (person.home / "run.yaml").write_text("version: 1\n")
    runs = [
        subprocess.run(
            [sys.executable, "-m", "aicrun", *more, "validate", "run.yaml"],
            cwd=person.home, env=person.env, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
        )
        for more in ((), ("--debug",))
    ]  # fmt: skip
    assert [done.returncode for done in runs] == [1, 1]
    assert "error[AIC-E001]: a fault of aicrun itself: RuntimeError: bang" in runs[0].stderr
    assert "Traceback" not in runs[0].stderr
    assert "Traceback" in runs[1].stderr


def test_ascii_and_no_colour_are_honoured(project: Project) -> None:
    project.write("printf '\\033[31mred\\033[0m \\303\\251\\n'", more="checkpoints: {}\n")
    project.person.env["AICRUN_ASCII"] = "1"
    done = project.apply("--follow")
    assert done.returncode == 0
    assert "| red ?" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert (done.stdout + done.stderr).isascii()
