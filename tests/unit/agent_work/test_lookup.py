"""Whether a command's first word is a program for a job on this host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aicrun.agent.lookup import PROGRAMS_MOST, programs, wheel_folders


def program(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "home"
    found.mkdir()
    monkeypatch.setenv("HOME", str(found))
    return found


def places(home: Path, *words: str, path: str = "", own: tuple[str, ...] = ()) -> list[str]:
    found = programs([[word, path] for word in words], own, str(home), ("/nowhere", []))
    assert [(one.word, one.path) for one in found] == [(word, path) for word in words]
    return [one.place for one in found]


def test_a_word_is_looked_for_where_a_job_would_find_it(home: Path, tmp_path: Path) -> None:
    mine, theirs = program(home / ".local/bin/accelerate"), program(tmp_path / "opt/torchrun")
    assert places(home, "accelerate", "torchrun", "sh") == [str(mine), "", places(home, "sh")[0]]
    assert places(home, "sh")[0].endswith("/sh")
    assert places(home, "torchrun", own=(str(tmp_path / "opt"),)) == [str(theirs)]
    assert places(home, "torchrun", "accelerate", path=str(tmp_path / "opt")) == [str(theirs), ""]
    (found,) = programs([["torchrun", ""]], (), str(home), ("/nowhere", []))
    assert found.searched.split(":")[0] == f"{home}/.local/bin"


def test_what_cannot_be_executed_is_no_program(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(home / ".local/bin/notes", 0o644)
    (home / ".local/bin/folder").mkdir()
    # A relative folder of a PATH is another one for each job.
    monkeypatch.chdir(home / ".local")
    program(home / ".local/bin/here")
    assert places(home, "notes", "folder") == ["", ""]
    assert places(home, "here", path="bin:") == [""]


def test_a_path_is_taken_as_it_stands(home: Path) -> None:
    python = program(home / "venv/bin/python")
    assert places(home, str(python), "~/venv/bin/python", f"{python}3") == [str(python), str(python), ""]


def test_environments_that_have_it_are_named(home: Path, tmp_path: Path) -> None:
    program(tmp_path / "envs/aa/bin/accelerate")
    program(tmp_path / "envs/bb/bin/other")
    (found,) = programs([["accelerate", ""]], (), str(home), (str(tmp_path / "envs"), ["aa", "bb"]))
    assert (found.place, found.envs) == ("", ("aa",))


def test_nonsense_and_too_much_are_left_out(home: Path) -> None:
    assert programs(None, (), str(home), ("/nowhere", [])) == []
    assert programs(["sh", ["sh"], 3], (), str(home), ("/nowhere", [])) == []
    many = programs([["sh", ""]] * (PROGRAMS_MOST + 5), (), str(home), ("/nowhere", []))
    assert len(many) == PROGRAMS_MOST
    assert all(os.path.isabs(one.place) for one in many)


def test_a_folder_of_wheels_is_known_by_its_names_and_sizes(home: Path) -> None:
    folder = home / "wheels"
    folder.mkdir()
    (folder / "a-1-py3-none-any.whl").write_bytes(b"12")
    (folder / "notes.txt").write_text("no wheel")
    (first,) = wheel_folders(["~/wheels"], str(home))
    assert (first.path, first.wheels, len(first.listing)) == ("~/wheels", 1, 64)
    (folder / "notes.txt").write_text("another word")
    assert wheel_folders(["~/wheels"], str(home)) == [first]
    (folder / "a-1-py3-none-any.whl").write_bytes(b"123")
    assert wheel_folders(["~/wheels"], str(home))[0].listing != first.listing
    gone, none = wheel_folders([str(home / "nowhere"), str(folder / "notes.txt")], str(home))
    assert (gone.listing, none.listing) == ("", "")
    assert wheel_folders(None, str(home)) == []
