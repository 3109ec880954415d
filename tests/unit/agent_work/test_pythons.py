"""Interpreters of the host: real ones, once, the agent's own first; no shim and no virtual environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from support import P38

from aicrun.agent.home import Home
from aicrun.agent.pythons import _folders, _is_plain, pythons


def test_shims_and_environments_are_passed_over(home: Home, account: Path) -> None:
    shims, venv = account / "shims", account / "venv"
    shims.mkdir()
    (shims / "python3").write_text("#!/bin/sh\nexit 1\n")
    (shims / "python3").chmod(0o755)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    found = pythons(home, {"PATH": f"{shims}:{venv}/bin:relative"})
    assert found[0].path == os.path.realpath(sys.executable)
    assert not [python for python in found if str(account) in python.path]
    assert len({python.path for python in found}) == len(found)


def test_versions_are_asked_once_and_again_when_the_file_changed(home: Home, account: Path) -> None:
    folder = account / "bin"
    folder.mkdir()
    place = folder / "python3.99"
    shutil.copy2(os.path.realpath("/bin/true"), place)
    assert str(place) not in [python.path for python in pythons(home, {"PATH": str(folder)})]
    if P38 is None:
        return
    place.unlink()
    os.symlink(P38, place)
    assert (os.path.realpath(P38), "3.8.18") in [
        (one.path, one.version) for one in pythons(home, {"PATH": str(folder)})
    ]
    kept = Path(home.jobs_root, "pythons.json").read_text()
    pythons(home, {"PATH": str(folder)})
    assert Path(home.jobs_root, "pythons.json").read_text() == kept


def test_a_folder_under_two_names_is_looked_at_once(home: Home, account: Path) -> None:
    real, other = account / "real", account / "other"
    real.mkdir()
    other.symlink_to(real)
    for name in ("python3.98", "python3-config", "python3.", "python3x.1", "python33"):
        (real / name).symlink_to(os.path.realpath(sys.executable))
    once = pythons(home, {"PATH": str(real)})
    assert pythons(home, {"PATH": f"{other}:{real}:{other}/"}) == once
    assert sorted(_folders({"PATH": f"{other}:{real}:{other}/"})) == sorted(_folders({"PATH": str(real)}))
    assert [name for name in sorted(os.listdir(real)) if _is_plain(name)] == ["python3.98"]
