"""The setup step as a process: real uv, real interpreters, two jobs that want one environment at the same moment."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support import P38, REPOSITORY, until

from aicrun.agent import built, store
from aicrun.agent.home import Home
from aicrun.agent.records import write_record
from aicrun.hosts.uv import fetch_uv
from aicrun.wire import names
from aicrun.wire.jobs import JobRequest, Setup, Source
from aicrun.wire.tools import UV, uv_platform

Job = Callable[..., JobRequest]
SYSTEM = shutil.which("python3", path="/usr/bin") or sys.executable


@pytest.fixture(scope="session")
def uv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pinned uv of this platform, fetched once and kept between sessions."""
    kept = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "aicrun-tests"
    words = {"system": "Linux", "machine": os.uname().machine, "libc": "glibc"}
    return Path(fetch_uv(str(kept), env=os.environ, **words))


@pytest.fixture
def pushed_uv(home: Home, uv: Path) -> None:
    """The binary in the store, as a client leaves it for a host without uv."""
    digest = UV[uv_platform("Linux", os.uname().machine, "glibc")][2]
    store.put(home, {"hash": digest}, uv.read_bytes())


@pytest.fixture
def wheels(account: Path) -> Path:
    """A folder of wheels that stands for a package index: one tiny package, `tiny`."""
    folder = account / "wheels"
    folder.mkdir()
    info = "tiny-1.0.dist-info"
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "WORD = 'here'\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return folder


def setup_of(account: Path, **changes: object) -> Setup:
    path = account / "data/aicrun/envs/0123456789abcdef"
    fields = {"key": path.name, "path": str(path), "python": SYSTEM, "python_version": "3.11.2"}
    return Setup(**(fields | changes))  # type: ignore[arg-type]


def step(home: Home, request: JobRequest, python: str = sys.executable) -> subprocess.Popen[str]:
    """`boot.py setup JOBDIR` going on, both outputs in one."""
    folder = home.job_dir(request.job_id)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    write_record(os.path.join(folder, names.REQUEST), request)
    argv = [python, "-I", "-S", str(REPOSITORY / "aicrun/agent/boot.py"), "setup", folder]
    env = dict(os.environ, UV_CACHE_DIR=os.environ["HOME"] + "/uv-cache", UV_OFFLINE="1")
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(home: Home, request: JobRequest, python: str = sys.executable) -> tuple[int, str]:
    going = step(home, request, python)
    said = going.communicate(timeout=60)[0]
    return going.returncode, said


def test_a_job_without_setup_gets_its_folders_and_a_result(home: Home, job: Job) -> None:
    code, said = ended(home, job())
    assert (code, said) == (0, f"working tree {job().workspace}\n")
    assert os.path.isdir(job().checkpoints)
    result = json.loads(Path(home.job_dir(job().job_id), names.SETUP_RESULT).read_bytes())
    assert result["tree"] == job().workspace


@pytest.mark.usefixtures("pushed_uv")
def test_packages_are_installed_at_the_final_path_with_the_pushed_uv(
    home: Home, job: Job, account: Path, wheels: Path, push: Callable[..., Source]
) -> None:
    setup = setup_of(account, requirements=f"--find-links {wheels}\ntiny\n", requirements_name="requirements.txt")
    request = job(setup=setup, source=push({"a.py": b"1"}))
    code, said = ended(home, request)
    assert code == 0, said
    assert built.is_complete(setup.path, setup.key)
    python = f"{request.workspace}/jobs/{request.job_id}/.venv/bin/python"
    word = subprocess.run([python, "-c", "import tiny; print(tiny.WORD)"], capture_output=True, check=True).stdout
    assert word == b"here\n"
    assert built.ready_keys(os.path.dirname(setup.path)) == (setup.key,)
    again = ended(home, job(setup=setup, job_id="00000000000000ab", source=request.source))
    assert "is ready" in again[1]


@pytest.mark.skipif(P38 is None, reason="no Python 3.8 here")
def test_the_step_runs_on_the_oldest_python(home: Home, job: Job, push: Callable[..., Source]) -> None:
    code, said = ended(home, job(source=push({"a": b"1"}), setup=Setup(run=("test -f a",))), str(P38))
    assert code == 0, said


@pytest.mark.usefixtures("pushed_uv")
def test_two_jobs_at_once_build_one_environment(home: Home, job: Job, account: Path, wheels: Path) -> None:
    setup = setup_of(account, requirements=f"--find-links {wheels}\ntiny\n")
    going = [step(home, job(setup=setup, job_id=f"00000000000000a{number}")) for number in range(4)]
    said = [one.communicate(timeout=60)[0] for one in going]
    assert [one.returncode for one in going] == [0, 0, 0, 0], said
    assert sum("making the environment" in text for text in said) == 1


@pytest.mark.usefixtures("pushed_uv")
def test_a_half_built_environment_is_removed_and_built_anew(home: Home, job: Job, account: Path, wheels: Path) -> None:
    setup = setup_of(account, requirements=f"--find-links {wheels}\ntiny\n")
    half = Path(setup.path)
    (half / "lib").mkdir(parents=True)
    (half / "lib/rest").write_text("half")
    code, said = ended(home, job(setup=setup))
    assert (code, "removing a half-built environment" in said) == (0, True), said
    assert not (half / "lib/rest").exists()


def test_a_folder_that_is_not_ours_is_never_removed(home: Home, job: Job, account: Path) -> None:
    theirs = account / "venv"
    theirs.mkdir()
    (theirs / "precious").write_text("1")
    code, said = ended(home, job(setup=setup_of(account, path=str(theirs))))
    assert code == 1
    assert "not ours to remove" in said or "no uv" in said
    assert (theirs / "precious").exists()


@pytest.mark.usefixtures("pushed_uv")
def test_a_missing_package_ends_with_uvs_words_and_ours_last(home: Home, job: Job, account: Path) -> None:
    code, said = ended(home, job(setup=setup_of(account, packages=("no-such-package-of-ours",))))
    assert code == 1
    assert "no-such-package-of-ours" in said
    assert said.splitlines()[-1].startswith("aicrun: setup failed: installing the packages: exit code")
    assert not built.is_complete(setup_of(account).path, setup_of(account).key)


@pytest.mark.parametrize(
    ("changes", "last"),
    [
        ({"requirements": "numpy\n-e .\n", "requirements_name": "req.txt"}, "req.txt:2: -e .: an editable install"),
        ({"packages": ("./lib",)}, "setup.packages: ./lib: a local path is not sent along"),
        ({"python": "/nowhere/python3"}, "interpreter /nowhere/python3 is not on this host"),
    ],
)
def test_what_cannot_be_built_is_said_before_anything_is_built(
    home: Home, job: Job, account: Path, changes: dict[str, object], last: str
) -> None:
    code, said = ended(home, job(setup=setup_of(account, **changes)))
    assert code == 1
    assert last in said.splitlines()[-1]
    assert not os.path.exists(setup_of(account).path)


def test_setup_commands_run_in_the_tree_once_for_a_job(home: Home, job: Job, push: Callable[..., Source]) -> None:
    setup = Setup(run=("echo one >> made", "test -n $AICRUN_JOB_ID"))
    request = job(setup=setup, source=push({"a": b"1"}))
    assert ended(home, request)[0] == 0
    assert ended(home, request)[0] == 0
    assert Path(request.workspace, "jobs", request.job_id, "made").read_text() == "one\n"


def test_a_failing_setup_command_is_named_with_its_code(home: Home, job: Job) -> None:
    code, said = ended(home, job(setup=Setup(run=("true", "echo why; exit 5"))))
    assert code == 1
    assert said.splitlines()[-2:] == [
        "why",
        "aicrun: setup failed: setup.run 2 of 2 (echo why; exit 5): exit code 5; what it said stands above",
    ]


def test_a_setup_that_takes_too_long_is_ended_with_all_it_started(home: Home, job: Job, account: Path) -> None:
    mark = account / "pid"
    command = "sleep 300 & echo $! > $HOME/pid; wait"
    code, said = ended(home, job(setup=Setup(run=(command,), timeout_s=1)))
    assert (code, said.splitlines()[-1]) == (
        1,
        f"aicrun: setup failed: setup.timeout passed (1 s) while setup.run 1 of 1 ({command})",
    )
    pid = int(mark.read_text())
    until(lambda: not os.path.exists(f"/proc/{pid}") or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2])


@pytest.mark.usefixtures("pushed_uv")
def test_a_killed_builder_leaves_nothing_that_counts_as_ready(home: Home, job: Job, account: Path) -> None:
    setup = setup_of(account, packages=("no-such",))
    going = step(home, job(setup=setup))
    until(lambda: os.path.exists(setup.path))
    going.send_signal(signal.SIGKILL)
    going.communicate(timeout=30)
    assert not built.is_complete(setup.path, setup.key)
