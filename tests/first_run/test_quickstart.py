"""The README's first command, in a fresh clone and a new home: it trains, says what came out; again it does nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from support import REPOSITORY, Person

PYTHON = os.path.realpath(sys.executable) if sys.prefix == sys.base_prefix else sys.base_prefix + "/bin/python3"


def _index_answers() -> bool:
    address = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("PIP_INDEX_URL") or "https://pypi.org/simple"
    try:
        with urllib.request.urlopen(address.rstrip("/") + "/uv/", timeout=20) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


needs_index = pytest.mark.skipif(not _index_answers(), reason="the package index does not answer")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What is committed, and what is about to be: the files git knows, as they are."""
    into = tmp_path / "clone"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (REPOSITORY / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, into / name)
    return into


def _quickstart(clone: Path, person: Person, **changes: str) -> subprocess.CompletedProcess[str]:
    # A Python without its site-packages stands for one without venv, ensurepip and pip.
    return subprocess.run(
        [PYTHON, "-S", "quickstart.py"],
        cwd=clone,
        env={**person.env, "UV_PYTHON_DOWNLOADS": "never", **changes},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )


@needs_index
def test_a_fresh_clone_trains_and_the_second_time_there_is_nothing_to_do(clone: Path, person: Person) -> None:
    first = _quickstart(clone, person)
    assert first.returncode == 0, first.stdout + first.stderr
    told = first.stdout[first.stdout.index("\nstatus") :]
    assert "status      succeeded" in told
    assert re.search(r"loss {8}0\.\d+ at step 20000, accuracy 0\.9\d+", told)
    place = re.search(r"^checkpoint  (\S+)$", told, re.MULTILINE)
    assert place
    state: dict[str, Any] = json.loads((Path(place[1]) / "trainer_state.json").read_text())
    assert state["step"] == 20000
    assert Path(place[1]).is_relative_to(person.home / "aicrun-digits/uploads")

    second = _quickstart(clone, person)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "Nothing to do." in second.stdout + second.stderr
    assert "status      succeeded" in second.stdout
    assert len(list((person.home / "aicrun-digits/uploads").iterdir())) == 1

    _remove_every_trace(person)
    assert [str(path) for path in person.home.rglob("*") if not path.is_dir()] == []


def _remove_every_trace(person: Person) -> None:
    """Do what docs/hosts.md says, but for the folder that all accounts share."""
    block = (REPOSITORY / "docs/hosts.md").read_text("utf-8").partition("```sh\n")[2].partition("```")[0]
    lines = [line for line in block.splitlines() if line.startswith("rm -rf ~")]
    assert len(lines) >= 4
    subprocess.run(["sh", "-c", "\n".join(lines)], env=person.env, check=True)


def test_an_old_python_is_told_which_one_is_needed(clone: Path, person: Person) -> None:
    old = next((Path.home() / ".pyenv/versions").glob("3.[6-9].*/bin/python3"), None)
    if old is None:
        pytest.skip("no Python older than 3.10 here (pyenv's folder is looked at)")
    ran = subprocess.run([old, "quickstart.py"], cwd=clone, env=person.env, capture_output=True, text=True)
    assert ran.returncode == 3
    assert re.fullmatch(r"quickstart: Python 3\.10 or newer is needed; this is 3\.\d\.\n", ran.stderr)


def test_a_home_that_is_not_there_is_told_before_anything_is_made(clone: Path, person: Person) -> None:
    ran = _quickstart(clone, person, HOME=str(person.home / "gone"))
    assert ran.returncode == 3
    assert "cannot be written" in ran.stderr
    assert "HOME=" in ran.stderr
    assert not (clone / ".venv-quickstart").exists()


def test_an_index_that_does_not_answer_is_a_sentence_and_no_half_environment(clone: Path, person: Person) -> None:
    nowhere = "http://127.0.0.1:9/simple"
    path = os.pathsep.join(
        part for part in person.env["PATH"].split(os.pathsep) if not os.path.exists(os.path.join(part, "uv"))
    )
    ran = _quickstart(clone, person, PATH=path, UV_DEFAULT_INDEX=nowhere, PIP_INDEX_URL=nowhere)
    assert ran.returncode == 14, ran.stdout + ran.stderr
    assert ran.stderr.startswith("quickstart: uv could not be fetched")
    assert "Traceback" not in ran.stderr
    assert not (clone / ".venv-quickstart" / "complete").exists()
