"""What a setup must never change: the system's Python, conda's, an environment that the login has activated.

And what it must never use again: an environment whose Python is gone, one without its mark, one that another key made.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import packages
import pytest
from agent_rig import Rig
from setup_rig import FORMS, SYSTEM, Site

from aicrun.wire.status import Status, status_of


def look(folder: Path) -> dict[str, int]:
    """Everything below it, by when it was last written; bytecode may come and go."""
    found = {}
    for path in folder.rglob("*"):
        if "__pycache__" not in path.parts:
            found[str(path)] = os.lstat(path).st_mtime_ns
    return found


def environment(folder: Path, mark: str) -> Path:
    """A virtual environment that looks like one that somebody uses; `mark` is what tells its kind."""
    subprocess.run([str(packages.pinned_uv()), "venv", "-q", "--python", SYSTEM, str(folder)], check=True)
    (folder / mark).mkdir(exist_ok=True)
    return folder


def test_no_python_of_the_machine_or_of_the_login_is_touched(rig: Rig, tmp_path: Path) -> None:
    conda = environment(tmp_path / "conda", "conda-meta")
    active = environment(tmp_path / "active", "share")
    rig.env |= {"CONDA_PREFIX": str(conda), "CONDA_DEFAULT_ENV": "base", "VIRTUAL_ENV": str(active)}
    rig.env["PATH"] = f"{conda}/bin:{active}/bin:{rig.env['PATH']}"
    site = Site(rig)
    index = packages.Index(site.wheels)
    system = Path(subprocess.run([SYSTEM, "-c", _PACKAGES], capture_output=True, text=True, check=True).stdout.strip())
    before = [look(folder) for folder in (conda, active, system)]
    for number, form in enumerate(FORMS):
        site.succeeds(**{**site.form(form, index.address), "run": (f"echo {number}",)})
        (site.path / "complete").unlink()
    assert [look(folder) for folder in (conda, active, system)] == before
    index.close()


_PACKAGES = "import sysconfig; print(sysconfig.get_path('purelib'))"


def test_the_systems_pip_in_a_command_of_the_setup_refuses(site: Site) -> None:
    pip = ("/usr/bin/python3", "-m", "pip", "--version")
    if subprocess.run(pip, capture_output=True, check=False).returncode:
        pytest.skip("the system's Python has no pip here")
    # One that would change nothing, should it be let.
    words = f"/usr/bin/python3 -m pip download --no-index --find-links {site.wheels} tiny"
    job = site.start(run=(words,))
    assert status_of(site.ended(job)).reason == "setup_failed"
    assert "Could not find an activated virtualenv (required)" in site.said(job)
    assert "setup.run 1 of 1" in site.said(job).splitlines()[-1]


def ready(site: Site) -> list[str]:
    """The environments that the next plan would find there."""
    return list(site.rig.call("survey", question={"runs": [], "paths": [], "data": ""})["reading"]["envs_ready"])


def test_an_environment_whose_python_is_gone_is_built_anew(site: Site) -> None:
    site.succeeds()
    assert ready(site) == ["k1"]
    python = site.path / "bin/python"
    python.unlink()
    python.symlink_to("/nowhere/python3")
    assert ready(site) == []
    assert "removing a half-built environment" in site.succeeds()


@pytest.mark.parametrize("mark", [None, b"", b"{", json.dumps({"key": "k2"}).encode()])
def test_an_environment_without_its_own_whole_mark_is_built_anew(site: Site, mark: bytes | None) -> None:
    site.succeeds()
    (site.path / "complete").unlink()
    if mark is not None:
        (site.path / "complete").write_bytes(mark)
    (site.path / "left").touch()
    assert "removing a half-built environment" in site.succeeds()
    assert not (site.path / "left").exists()


def test_an_interpreter_that_went_after_the_plan_is_told(site: Site) -> None:
    gone = site.rig.home / "python3"
    setup = {"python_path": str(gone)}
    job = site.start(**setup)
    assert status_of(site.ended(job)).status is Status.FAILED
    assert "is not on this host any more; plan again" in site.said(job).splitlines()[-1]
