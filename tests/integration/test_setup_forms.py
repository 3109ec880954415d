"""Each form of `setup` from a short spec to a run that ended well, and the second run that builds nothing."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import packages
import pytest
from integration.project import Project

SYSTEM = shutil.which("python3", path="/usr/bin") or sys.executable
TRY = """python -c 'import tiny, sys; print("prefix", sys.prefix, tiny.WORD)'"""


@pytest.fixture
def builder(project: Project) -> Project:
    """A person whose machine has uv, and no index but those that a spec names."""
    tools = project.person.home / ".local/bin"
    tools.mkdir(parents=True)
    (tools / "uv").symlink_to(packages.pinned_uv())
    for name in ("UV_DEFAULT_INDEX", "PIP_INDEX_URL", "UV_CACHE_DIR", "http_proxy", "https_proxy"):
        project.person.env.pop(name, None)
    packages.wheel(project.person.home / "wheels")
    return project


@pytest.fixture
def index(builder: Project) -> Iterator[packages.Index]:
    """An index that has `tiny`."""
    served = packages.Index(builder.person.home / "wheels")
    yield served
    served.close()


def write(builder: Project, setup: str, command: str = TRY) -> None:
    """The spec of the one run of a test: less than fifteen lines."""
    text = f"version: 1\nname: quick\nsource: {{path: .}}\nsetup:\n{setup}command: |\n  {command}\n"
    (builder.folder / "run.yaml").write_text(text)
    assert len(text.splitlines()) < 15


def locked(builder: Project, address: str, *, more: str = "", root: str = 'editable = "."') -> None:
    made = builder.person.home / "wheels/tiny-1.0-py3-none-any.whl"
    (builder.folder / "pyproject.toml").write_text(packages.PYPROJECT)
    (builder.folder / "backend.py").write_text(packages.BACKEND)
    (builder.folder / "demo.py").write_text("WORD = 'installed'\n")
    (builder.folder / "uv.lock").write_text(packages.lock(made, address, root, more))


def succeeded(builder: Project, *more: str) -> str:
    """What the run said."""
    done = builder.apply("--follow", *more)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(builder.run("logs", "quick").stdout)


def plan(builder: Project, *more: str) -> tuple[int, str]:
    """The exit code of a plan and its screen, as one line."""
    done = builder.run("plan", "run.yaml", *more)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def setup_log(builder: Project) -> str:
    return str(builder.run("logs", "quick", "--step", "setup").stdout)


def test_an_index_of_ones_own_serves_requirements_and_the_second_run_builds_nothing(
    builder: Project, index: packages.Index
) -> None:
    (builder.folder / "requirements.txt").write_text("tiny\n")
    write(builder, f"  requirements: requirements.txt\n  index: {index.address}\n")
    assert f"requirements.txt (1 line), from {index.address}" in plan(builder)[1]
    assert "here\n" in succeeded(builder)
    assert "installing requirements.txt" in setup_log(builder)
    asked = len(index.asked)
    assert "is ready on here" in plan(builder, "--again")[1]
    succeeded(builder, "--again")
    assert "is ready" in setup_log(builder)
    assert len(index.asked) == asked


def test_a_login_of_an_index_comes_from_secrets_and_is_nowhere_else(builder: Project, index: packages.Index) -> None:
    index.login = "Basic " + base64.b64encode(b"ana-of-accounts:hunter2hunter2").decode()
    names = ("UV_INDEX_CORP_USERNAME", "UV_INDEX_CORP_PASSWORD")
    builder.person.env |= dict(zip(names, ("ana-of-accounts", "hunter2hunter2"), strict=True))
    secrets = ", ".join(f"{{{name}: {{for: setup}}}}" for name in names)
    write(builder, f"  packages: [tiny]\n  index: corp={index.address}\n")
    refused = builder.apply("--follow")
    assert (refused.returncode, "failed(setup_failed)" in refused.stdout) == (10, True), refused.stdout
    assert "the index wants a login" in setup_log(builder)
    with (builder.folder / "run.yaml").open("a") as spec:
        spec.write(f"secrets: [{secrets}]\n")
    assert "here\n" in succeeded(builder, "--again")


def test_a_lock_installs_what_it_names_and_not_the_project(builder: Project, index: packages.Index) -> None:
    locked(builder, index.address)
    told = "cd / && python -c 'import tiny, importlib.util as u; print(tiny.WORD, u.find_spec(\"demo\"))'"
    write(builder, "  lock: uv.lock\n", told)
    assert ", uv.lock (1 package)" in plan(builder)[1]
    assert "here None\n" in succeeded(builder)


def test_a_project_is_copied_and_changed_code_makes_another_environment(
    builder: Project, index: packages.Index
) -> None:
    locked(builder, index.address)
    told = "cd / && python -c 'import demo; print(demo.WORD, demo.__file__)'"
    write(builder, "  project: true\n", told)
    said = succeeded(builder)
    assert "installed " in said
    assert "/aicrun/envs/" in said
    (builder.folder / "demo.py").write_text("WORD = 'changed'\n")
    assert "changed " in succeeded(builder, "--again")


def test_wheels_of_the_machine_are_enough_for_a_lock_and_a_project(builder: Project) -> None:
    # Nobody answers there: what a lock says of addresses is not asked.
    locked(builder, "http://127.0.0.1:9/simple")
    for form in ("lock: uv.lock", "project: true"):
        write(builder, f"  {form}\n  wheels: ~/wheels\n")
        assert f"from {builder.person.home}/wheels only" in plan(builder, "--again")[1]
        assert "here\n" in succeeded(builder, "--again")
    wheel = builder.person.home / "wheels/tiny-1.0-py3-none-any.whl"
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    assert "the project itself, from " in (told := plan(builder, "--again")[1])
    assert "only; changed: the folder of wheels" in told


def test_an_environment_of_the_machine_is_used_as_it_is(builder: Project) -> None:
    venv = builder.person.home / "venv"
    subprocess.run([str(packages.pinned_uv()), "venv", "-q", "--python", SYSTEM, str(venv)], check=True)
    site = next((venv / "lib").glob("python*/site-packages"))
    (site / "tiny.py").write_text("WORD = 'mine'\n")
    before = sorted(
        (str(path), os.lstat(path).st_mtime_ns) for path in venv.rglob("*") if "__pycache__" not in str(path)
    )
    # Whoever works in the tree shall not find it there, and change it.
    write(builder, "  venv: ~/venv\n", f"{TRY} && test ! -e .venv")
    planned = plan(builder)[1]
    assert f"use {venv} as it is" in planned
    assert "is not on the PATH" not in planned
    assert f"prefix {venv} mine\n" in succeeded(builder)
    after = sorted(
        (str(path), os.lstat(path).st_mtime_ns) for path in venv.rglob("*") if "__pycache__" not in str(path)
    )
    # A folder's own time moves when Python keeps bytecode beside a module of it.
    assert [row for row in before if row[0] != str(site)] == [row for row in after if row[0] != str(site)]
    (venv / "bin/python").unlink()
    code, again = plan(builder, "--again")
    assert (code, "setup.venv is used as it is, and ~/venv/bin/python is no program" in again) == (5, True), again


def test_a_lock_that_cannot_be_used_is_refused_by_the_plan(builder: Project) -> None:
    locked(
        builder, "https://pypi.org/simple", more='\n[[package]]\nname = "near"\nsource = { editable = "lib/near" }\n'
    )
    write(builder, "  lock: uv.lock\n")
    code, refused = plan(builder)
    assert (code, "near (lib/near)" in refused, "setup: {project: true}" in refused) == (4, True, True), refused
    (builder.folder / "uv.lock").unlink()
    write(builder, "  project: true\n")
    code, missing = plan(builder)
    assert (code, "uv lock" in missing) == (4, True), missing
