"""A job's environment is the same at every start, and holds no secret of the login."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from accounts import NOBODY, told

from aicrun.agent.environment import environment, kept
from aicrun.agent.home import Home
from aicrun.agent.programs import program
from aicrun.agent.refused import Refused
from aicrun.agent.tree import lay_out
from aicrun.wire import names
from aicrun.wire.jobs import JobRequest, Setup

Job = Callable[..., JobRequest]


def test_it_does_not_vary_but_for_the_port(account: Path, job: Job) -> None:
    login = {"HOME": str(account), "PATH": "/opt/odd", "EDITOR": "vi", "LD_LIBRARY_PATH": "/fake", "LANG": "de_DE"}
    one, two = environment(job(), 1, login), environment(job(), 1, dict(login, PATH="/other", LANG="C"))
    assert {**one, "AICRUN_PORT": ""} == {**two, "AICRUN_PORT": ""}
    assert "EDITOR" not in one
    assert "LD_LIBRARY_PATH" not in one


def test_every_variable_of_ours_is_there_also_when_empty(account: Path, job: Job) -> None:
    found = environment(job(), 2, {"HOME": str(account)})
    wanted = {
        *names.VARIABLES.values(),
        names.JOB_ID,
        names.CHECKPOINT_DIR,
        names.RESUME_FROM,
        names.ATTEMPT,
        names.PORT,
    }
    assert wanted <= set(found)
    assert found["AICRUN_RESUME_FROM"] == ""
    assert found["AICRUN_ATTEMPT"] == "2"
    assert found["FLEXAI_INPUT_CHECKPOINT_DIR"] == ""
    assert found["AICRUN_CHECKPOINT_DIR"] == found["FLEXAI_OUTPUT_CHECKPOINT_DIR"] == job().checkpoints
    assert 1024 <= int(found["AICRUN_PORT"]) <= 65535


def test_a_run_that_asks_for_no_card_sees_none_unless_its_env_says_so(account: Path, job: Job) -> None:
    login = {"HOME": str(account), "CUDA_VISIBLE_DEVICES": "3"}
    assert environment(job(), 1, login)["CUDA_VISIBLE_DEVICES"] == ""
    assert environment(job(env={"CUDA_VISIBLE_DEVICES": "1"}), 1, login)["CUDA_VISIBLE_DEVICES"] == "1"
    # Which cards it holds is known, and set, once it holds them.
    assert "CUDA_VISIBLE_DEVICES" not in environment(job(cards=("GPU-1",)), 1, login)


def test_caches_are_always_set_below_data_or_in_the_home(account: Path, job: Job) -> None:
    login = {"HOME": str(account)}
    assert environment(job(), 1, login)["HF_HOME"] == f"{account}/.cache/huggingface"
    with_data = environment(job(env={"AICRUN_MACHINE_DATA": "/data"}), 1, login)
    assert with_data["TORCH_HOME"] == "/data/torch"
    assert environment(job(env={"HF_HOME": "/data/hf"}), 1, login)["HF_HOME"] == "/data/hf"


CACHES = {
    "UV_CACHE_DIR": "uv",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "XDG_CACHE_HOME": "",
}


def test_what_programs_can_get_again_lies_below_data_where_it_may_be_written(
    account: Path, job: Job, tmp_path: Path
) -> None:
    login, data = {"HOME": str(account)}, tmp_path / "data"
    data.mkdir()
    below = {"AICRUN_MACHINE_DATA": str(data)}
    found = environment(job(env=below), 1, login)
    assert {name: found[name] for name in CACHES} == {
        name: f"{data}/cache/{folder}".rstrip("/") for name, folder in CACHES.items()
    }
    # Without a data volume each program has its own place, which the account may have filled.
    assert not set(CACHES) & set(environment(job(), 1, login))
    kept = environment(job(env=below), 1, dict(login, UV_CACHE_DIR="/big/uv"))
    assert kept["UV_CACHE_DIR"] == "/big/uv"
    mine = environment(job(env=dict(below, XDG_CACHE_HOME="/nowhere/at/all", TRITON_CACHE_DIR="/t")), 1, login)
    assert (mine["XDG_CACHE_HOME"], mine["TRITON_CACHE_DIR"]) == ("/nowhere/at/all", "/t")
    if os.geteuid() == 0:
        data.chmod(0o755)
        theirs = told(lambda: sorted(set(CACHES) & set(environment(job(env=below), 1, login))), NOBODY)
        assert theirs == []


def test_a_login_to_the_hub_is_found_again_when_its_cache_moved(account: Path, job: Job) -> None:
    login = {"HOME": str(account)}
    token = account / ".cache/huggingface/token"
    moved = job(env={"HF_HOME": "/data/hf"})
    assert "HF_TOKEN_PATH" not in environment(moved, 1, login)
    token.parent.mkdir(parents=True)
    token.write_text("hf_x")
    assert environment(moved, 1, login)["HF_TOKEN_PATH"] == str(token)
    assert "HF_TOKEN_PATH" not in environment(job(), 1, login)
    assert "HF_TOKEN_PATH" not in environment(job(env={"HF_HOME": "/data/hf", "HF_TOKEN": "x"}), 1, login)


def test_the_environments_programs_come_first_then_the_machines_own(account: Path, job: Job) -> None:
    request = job(setup=Setup(key="k" * 16, path="/data/aicrun/envs/k"), path=("~/tools", "/opt/x/bin"))
    found = environment(request, 1, {"HOME": str(account)})
    folders = found["PATH"].split(":")
    assert folders[:5] == [
        "/data/aicrun/envs/k/bin",
        f"{account}/tools",
        "/opt/x/bin",
        f"{account}/.local/bin",
        f"{account}/.cargo/bin",
    ]
    assert found["VIRTUAL_ENV"] == "/data/aicrun/envs/k"


def test_ways_to_the_index_are_kept_and_credentials_are_not() -> None:
    login = {
        "https_proxy": "http://proxy:3128",
        "REQUESTS_CA_BUNDLE": "/etc/ca.pem",
        "PIP_INDEX_URL": "https://mirror/simple",
        "UV_INDEX_PRIVATE_PASSWORD": "hunter2",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_PROFILE": "x",
        "HF_TOKEN": "x",
        "UV_PUBLISH_TOKEN": "x",
    }
    assert sorted(kept(login)) == ["PIP_INDEX_URL", "REQUESTS_CA_BUNDLE", "https_proxy"]


@pytest.mark.parametrize("value", ["1e-4", "a b", "'\"$HOME`x`\\", "zeile\nzwei", "", "ü"])
def test_a_value_reaches_the_job_exactly_as_typed(home: Home, job: Job, value: str) -> None:
    request = job(env={"LR": value}, command=('printf %s "$LR"',))
    lay_out(home, request)
    step = program(home, request, "command", 1)
    said = subprocess.run(step.argv, env=step.env, cwd=step.cwd, capture_output=True, check=True).stdout
    assert said.decode() == value


@pytest.mark.parametrize(
    ("shell", "command", "code"),
    [
        ("bash", "false | true", 1),
        ("bash", "false; true", 1),
        ("sh", "false; true", 1),
        ("sh", "exit 7", 7),
        ("bash", "test -z ${BASH_VERSION:-}", 1),
        ("sh", 'test "$PWD" = "$AICRUN_RUN_DIR"', 0),
    ],
)
def test_text_stops_at_its_first_failure(home: Home, job: Job, shell: str, command: str, code: int) -> None:
    request = job(shell=shell, command=(command,))
    lay_out(home, request)
    step = program(home, request, "command", 1)
    assert subprocess.run(step.argv, env=step.env, cwd=step.cwd, check=False).returncode == code


def test_argv_is_no_text_and_its_program_is_found_on_the_jobs_path(home: Home, job: Job, account: Path) -> None:
    tool = account / ".local/bin/tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\nprintf '%s|' \"$@\"\n")
    tool.chmod(0o755)
    request = job(is_argv=True, command=("tool", "a b", "$HOME", "*"))
    lay_out(home, request)
    step = program(home, request, "command", 1)
    assert step.argv[0] == str(tool)
    assert (
        subprocess.run(step.argv, env=step.env, cwd=step.cwd, capture_output=True, check=True).stdout == b"a b|$HOME|*|"
    )


@pytest.mark.parametrize("cwd", ["..", "../..", "link"])
def test_a_folder_outside_of_the_tree_is_refused(home: Home, job: Job, cwd: str) -> None:
    request = job(cwd=cwd)
    lay_out(home, request)
    os.symlink("/tmp", os.path.join(request.workspace, "link"))
    with pytest.raises(Refused, match="leaves the working tree"):
        program(home, request, "command", 1)


def test_a_folder_that_is_not_there_is_named(home: Home, job: Job) -> None:
    request = job(cwd="train")
    lay_out(home, request)
    with pytest.raises(Refused, match="there is no folder train in"):
        program(home, request, "command", 1)


def test_our_own_steps_find_the_state_folder_whatever_the_job_sets(home: Home, job: Job, account: Path) -> None:
    # A setup with nothing to do is no program, so this one has something to do.
    request = job(env={"HOME": "/elsewhere", "XDG_STATE_HOME": "/elsewhere"}, setup=Setup(run=("true",)))
    os.makedirs(home.job_dir(request.job_id))
    step = program(home, request, "setup", 1)
    assert step.env["HOME"] == str(account)
    assert step.env["XDG_STATE_HOME"] == str(account / ".local/state")
    assert step.argv[-2:] == ("setup", home.job_dir(request.job_id))
