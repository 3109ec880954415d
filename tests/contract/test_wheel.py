"""The built wheel, in an environment of its own and from another folder, does what the checkout does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import REPOSITORY, Person

Aicrun = Callable[..., Any]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout by its own build backend."""
    into = tmp_path_factory.mktemp("wheel")
    pytest.importorskip("hatchling", reason="the build backend is not installed: tests/run installs it")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", into],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = into.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment that holds the wheel; its dependencies are those of the environment that runs this test.

    They are reached by a path entry, behind the wheel's own folder: files of the checkout are not, for a path file is
    not read inside a folder that another path file named.
    """
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = next(folder.glob("lib/python3.*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


@pytest.fixture
def aicrun(environment: Path, person: Person, tmp_path: Path) -> Aicrun:
    """Runs the installed program in a folder that has nothing to do with the checkout."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "run.yaml").write_bytes((REPOSITORY / "specs/minimal/run.yaml").read_bytes())

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [environment / "bin/python", "-m", "aicrun", *arguments],
            cwd=elsewhere,
            env=person.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


def test_it_is_the_wheel_that_runs(environment: Path) -> None:
    program = "import aicrun, os; print(os.path.dirname(aicrun.__file__))"
    place = subprocess.run([environment / "bin/python", "-c", program], capture_output=True, text=True, cwd="/")
    assert os.path.realpath(place.stdout.strip()).startswith(os.path.realpath(environment))


def test_it_holds_what_it_needs_and_nothing_of_the_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("run", "machines", "plan"):
        assert f"aicrun/schemas/{name}.schema.json" in names
    assert "aicrun/agent/boot.py" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "specs/", "docs/", "quickstart"))]


def test_the_script_is_named_aicrun(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (points,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
    assert "aicrun = aicrun.__main__:main" in archive.read(points).decode()


def test_it_knows_its_version(aicrun: Aicrun) -> None:
    ran = aicrun("--version")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("aicrun 0.")


@pytest.mark.parametrize("name", ("run", "machines", "plan"))
def test_it_finds_its_schemas(aicrun: Aicrun, name: str) -> None:
    ran = aicrun("schema", name)
    assert ran.returncode == 0, ran.stderr
    held = (REPOSITORY / f"schemas/{name}.schema.json").read_text("utf-8")
    assert json.loads(ran.stdout) == json.loads(held)


def test_it_validates_from_any_folder(aicrun: Aicrun) -> None:
    ran = aicrun("validate", "run.yaml")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_it_plans_with_an_agent_that_travels_from_the_wheel(aicrun: Aicrun) -> None:
    ran = aicrun("plan", "run.yaml", "--json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    document = json.loads(ran.stdout)
    assert document["runs"][0]["sign"] == "+"
