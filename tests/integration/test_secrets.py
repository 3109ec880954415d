"""Where the values of secrets come from, and what is said when one is missing, before anything is done."""

from __future__ import annotations

from typing import Any

import pytest
from integration.project import Project
from support import until

VALUE = "a-planted-value-0123456789"


def applied(project: Project, secrets: str, command: str = 'test -n "$KEY" && python3 work.py') -> str:
    project.write(command, more=f"secrets: {secrets}\n")
    done = project.apply("--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def test_a_value_comes_from_the_callers_environment_exactly_as_it_is(project: Project) -> None:
    project.person.env["KEY"] = " two  words\n"
    (project.folder / "check.py").write_text('import os\nassert os.environ["KEY"] == " two  words\\n"\n')
    applied(project, "[KEY]", "python3 check.py && python3 work.py")


@pytest.mark.parametrize("source", ["{file: '~/key'}", "{command: 'cat ~/key'}"])
def test_a_value_comes_from_a_file_or_a_command_without_its_line_end(project: Project, source: str) -> None:
    (project.person.home / "key").write_text(VALUE + "\n")
    (project.folder / "check.py").write_text(f'import os\nassert os.environ["KEY"] == "{VALUE}"\n')
    applied(project, f"[KEY: {source}]", "python3 check.py && python3 work.py")


def test_a_missing_value_is_told_before_anybody_is_asked_and_nothing_is_done(project: Project) -> None:
    project.write(more="secrets: [KEY, OTHER_KEY]\n")
    project.person.env["OTHER_KEY"] = ""
    planned = project.run("plan")
    assert planned.returncode == 0 and "KEY (not set here)" in planned.stdout
    done = project.run("apply")
    assert done.returncode == 3
    assert "quick needs KEY, OTHER_KEY, which are not set in your environment" in done.stderr
    assert "read -rs KEY && export KEY" in done.stderr
    assert project.json("list")["jobs"] == []


def test_a_value_that_cannot_be_hidden_is_told_before_anything_is_sent(project: Project) -> None:
    project.write(more="secrets: [SHORT_TOKEN]\n")
    project.person.env["SHORT_TOKEN"] = "seven77"
    done = project.apply()
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 3 and "error[AIC-E026]: quick: the secret SHORT_TOKEN has fewer than 8 characters" in said
    assert "read -rs SHORT_TOKEN && export SHORT_TOKEN" in said and "seven77" not in said
    assert not (project.person.home / "aic-jobs").exists()


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [
        ("{file: '~/key'}", 7, "the secret KEY cannot be read from {home}/key: No such file or directory"),
        ("{file: '~/folder'}", 7, "the secret KEY cannot be read from {home}/folder: Is a directory"),
        ("{command: 'printf plan%s ted; exit 4'}", 3, "the command for the secret KEY ended with code 4"),
        ("{command: 'true'}", 3, "the command for the secret KEY printed nothing"),
        ("{command: 'echo short'}", 3, "fewer than 8 characters"),
    ],
)
def test_a_value_that_cannot_be_had_starts_nothing(project: Project, source: str, code: int, words: str) -> None:
    (project.person.home / "folder").mkdir()
    project.write(more=f"secrets: [KEY: {source}]\n")
    done = project.apply()
    said = " ".join(done.stderr.split())
    assert done.returncode == code and words.format(home=project.person.home) in said, done.stderr
    assert "planted" not in done.stdout + done.stderr
    assert project.starts() == []


def test_where_a_value_comes_from_may_change_while_the_run_goes_on(project: Project) -> None:
    project.person.env["KEY"] = VALUE
    (project.person.home / "key").write_text(VALUE)
    project.write("python3 work.py 900", more="secrets: [KEY]\n")
    assert project.apply().returncode == 0
    project.running()
    project.write("python3 work.py 900", more="secrets: [KEY: {file: '~/key'}]\n")
    planned = project.run("plan")
    assert planned.returncode == 0 and "secrets.KEY.file: acts from the next start on" in planned.stdout
    project.write("python3 work.py 900", more="secrets: [KEY, OTHER]\n")
    assert project.run("plan").returncode == 8


def test_an_upload_again_needs_its_values_again(project: Project) -> None:
    project.person.env["KEY"] = VALUE
    project.write("python3 work.py 0 3", more="secrets: [KEY: {for: upload}]\n")
    assert project.apply("--follow").returncode == 10
    value = project.person.env.pop("KEY")
    done = project.run("upload", "quick")
    assert done.returncode == 3 and "quick needs KEY" in done.stderr
    project.person.env["KEY"] = value
    assert project.run("upload", "quick").returncode == 0
    until(lambda: not list(project.person.home.rglob("secrets.json")))


def test_a_shell_has_the_values_only_when_asked_and_says_when_none_is_kept_any_more(project: Project) -> None:
    project.person.env["KEY"] = VALUE
    project.write("python3 work.py 900", more="secrets: [KEY]\n")
    assert project.apply().returncode == 0
    project.running()
    typed = 'echo "key [$KEY]"; exit\n'
    assert "key []" in project.run("ssh", "quick", stdin=typed).stdout
    assert f"key [{VALUE}]" in project.run("ssh", "quick", "--secrets", stdin=typed).stdout
    assert project.run("stop", "quick", "--yes", "--grace", "0s").returncode == 0
    assert project.run("wait", "quick").returncode == 11

    def ended() -> Any:
        done = project.run("ssh", "quick", "--secrets", stdin=typed)
        return "key []" in done.stdout and done

    done = until(ended, 60)
    assert "no secret of this run is kept here" in done.stderr
