"""A source that differs from its commit: commit and text together give it back, to the byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from git_rig import Repository

from aicrun.errors import PlanStale
from aicrun.lifecycle.snapshot import Snapshot, look_at
from aicrun.lifecycle.source_diff import diff_of
from aicrun.spec.model import SourceSpec
from aicrun.wire.names import DIFF_CAP_BYTES

ODD = 'of "two" lines\n\\ and ü.txt'


@pytest.fixture
def project(tmp_path: Path) -> Repository:
    """A project with a commit, in a repository whose owner likes other diffs than git's own."""
    made = Repository(tmp_path / "project")
    made.commit(train_DOT_py="one\ntwo\nthree\n", gone_DOT_py="x\n", tool_DOT_sh="#!/bin/sh\n", no_end_DOT_txt="a")
    for setting in ("diff.noprefix true", "diff.mnemonicPrefix true", "color.ui always", "diff.external false"):
        made("config", *setting.split())
    (made.folder / "order").write_text("*.sh\n")
    made("config", "diff.orderFile", "order")
    return made


def told(project: Repository, **narrow: tuple[str, ...]) -> tuple[Snapshot, bytes]:
    source = SourceSpec(str(project.folder), **narrow)
    snapshot = look_at(source)
    return snapshot, diff_of(snapshot, source)


def given_back(project: Repository, text: bytes, at: Path, below: str = ".") -> Snapshot:
    """The source as somebody else has it from the commit and the text."""
    project("clone", "-q", project.url, str(at))
    (at.parent / "text").write_bytes(text)
    other = Repository.__new__(Repository)
    other.folder = at / below
    other("apply", str(at.parent / "text"))
    return look_at(SourceSpec(str(at / below)))


def test_the_commit_and_the_text_give_the_source_back(project: Repository, tmp_path: Path) -> None:
    top = project.folder
    (top / "train.py").write_text("one\nTWO\nthree")
    (top / "gone.py").unlink()
    (top / "tool.sh").chmod(0o755)
    (top / "no_end.txt").write_text("b\ndiff --git a/x b/x\n")
    (top / "staged.py").write_text("staged\n")
    project("add", "staged.py")
    (top / "staged.py").write_text("staged, then changed\n")
    (top / "new").mkdir()
    (top / "new/plain.py").write_text("no end")
    (top / "new/run.sh").write_text("#!/bin/sh\r\n")
    (top / "new/run.sh").chmod(0o755)
    (top / "new/empty").touch()
    (top / "new/with space").write_text("x\n")
    (top / "new" / ODD).write_text("ä\n")
    (top / "new/latin").write_bytes("grün\n".encode("latin-1"))
    (top / "link").symlink_to("new/plain.py")
    snapshot, text = told(project)
    assert text.startswith(f"# aicrun: tree {snapshot.source.tree[:12]} is commit {snapshot.source.commit}".encode())
    assert given_back(project, text, tmp_path / "other").source.tree == snapshot.source.tree
    # The text is made, nothing is changed: not the index either.
    assert "A  staged.py" not in project("status", "--porcelain")
    assert look_at(SourceSpec(str(top))).source.tree == snapshot.source.tree


def test_a_source_that_is_a_folder_of_its_repository_is_told_from_there(project: Repository, tmp_path: Path) -> None:
    project.commit(part__a_DOT_py="a\n", other_DOT_py="o\n")
    (project.folder / "part/a.py").write_text("b\n")
    (project.folder / "part/new.py").write_text("n\n")
    (project.folder / "other.py").write_text("not ours\n")
    source = SourceSpec(str(project.folder / "part"))
    snapshot = look_at(source)
    text = diff_of(snapshot, source)
    assert b"not ours" not in text
    assert given_back(project, text, tmp_path / "other", "part").source.tree == snapshot.source.tree


def test_what_is_not_sent_is_not_told(project: Repository) -> None:
    project.commit(keys__a_DOT_txt="old-value\n", keys__b_DOT_txt="other-value\n")
    (project.folder / "keys/a.txt").write_text("new-value\n")
    (project.folder / "keys/b.txt").unlink()
    (project.folder / "keys/c.txt").write_text("third-value\n")
    (project.folder / "train.py").write_text("changed\n")
    _, text = told(project, exclude=("keys",))
    assert b"value" not in text
    assert b"+changed" in text


def test_binary_and_large_files_are_named_with_what_they_were(project: Repository) -> None:
    (project.folder / "weights.bin").write_bytes(b"\0" * 3000)
    (project.folder / "large.txt").write_text("x" * DIFF_CAP_BYTES)
    (project.folder / "train.py").write_text("changed\n")
    snapshot, text = told(project)
    by_path = {entry.path: entry for entry in snapshot.entries}
    lines = text.decode().splitlines()
    assert f"# not in this text, binary: weights.bin (3000 bytes, SHA-256 {by_path['weights.bin'].content})" in lines
    assert any(line.startswith("# not in this text, too large for this text: large.txt") for line in lines)
    assert "+changed" in lines


def test_it_never_outgrows_its_cap(project: Repository) -> None:
    for number in range(400):
        (project.folder / f"{'n' * 200}-{number:03}.txt").write_text("y" * 4000)
    _, text = told(project)
    assert DIFF_CAP_BYTES // 2 < len(text) <= DIFF_CAP_BYTES
    assert b"files more\n" in text


def test_a_repository_inside_is_told_as_one(project: Repository, tmp_path: Path) -> None:
    library = Repository(tmp_path / "library")
    library.commit(lib_DOT_py="1\n")
    project("submodule", "add", "-q", library.url, "lib")
    project.commit()
    (project.folder / "lib/lib.py").write_text("2\n")
    _, text = told(project)
    assert b"# not in this text, a repository of its own with changes: lib\n" in text
    assert b"Subproject" not in text


def test_a_source_that_is_its_commit_and_one_that_has_none_have_nothing_to_tell(
    project: Repository, tmp_path: Path
) -> None:
    (project.folder / "order").unlink()
    assert told(project)[1] == b""
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "a.py").touch()
    assert diff_of(look_at(SourceSpec(str(bare))), SourceSpec(str(bare))) == b""
    (tmp_path / "unborn").mkdir()
    unborn = Repository(tmp_path / "unborn/x")
    (unborn.folder / "a.py").touch()
    assert told(unborn)[1] == b""


@pytest.mark.parametrize("change", ["text", "gone", "link"])
def test_a_file_that_changed_since_it_was_hashed_is_no_source(project: Repository, change: str) -> None:
    place = project.folder / "train.py"
    place.write_text("changed\n")
    source = SourceSpec(str(project.folder))
    snapshot = look_at(source)
    place.unlink()
    if change == "text":
        place.write_text("once more\n")
    elif change == "link":
        os.symlink("tool.sh", place)
    if change == "gone":
        # Then nobody would be told of it: it is looked for as every other file that is sent.
        with pytest.raises(PlanStale):
            diff_of(snapshot, source)
        return
    with pytest.raises(PlanStale, match=r"train\.py changed while it was being read"):
        diff_of(snapshot, source)
