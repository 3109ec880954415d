"""Which files of this client are an input, and what is done about links."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aicrun.errors import UsageError
from aicrun.lifecycle.sent_inputs import take_inputs
from aicrun.lifecycle.snapshot import Snapshot, contents
from aicrun.spec.model import InputFrom, RunSpec


def taken(path: Path, cache: str = "") -> Snapshot:
    origin = InputFrom(str(path), "local", path=str(path))
    spec = RunSpec("sft-run", "run.yaml", "/", ("true",), {}, {}, {}, brought={"in": origin})
    return take_inputs(spec, cache)["in"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text("all of it is data")
    (folder / "one.txt").write_text("one")
    (folder / "empty").mkdir()
    return folder


def test_every_file_counts_and_the_folder_keeps_its_name(corpus: Path) -> None:
    found = taken(corpus)
    assert [entry.path for entry in found.entries] == ["corpus/.git/config", "corpus/one.txt"]
    assert (found.source.files, found.source.bytes) == (2, 20)
    assert [Path(one.path).name for one in contents(found, found.hashes)] == ["config", "one.txt"]
    (corpus / "empty" / "two").write_text("2")
    assert taken(corpus).source.tree != found.source.tree


def test_one_file_is_a_tree_of_its_own_under_a_name_that_can_be_had(tmp_path: Path) -> None:
    (tmp_path / ".weights").write_text("x")
    (tmp_path / "weights").write_text("x")
    assert [entry.path for entry in taken(tmp_path / "weights").entries] == ["weights"]
    hidden = taken(tmp_path / ".weights")
    assert [(entry.path, entry.place) for entry in hidden.entries] == [("in", str(tmp_path / ".weights"))]


def test_a_link_that_stays_is_a_link_and_one_that_leads_out_is_what_it_leads_to(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "blobs" / "a").mkdir(parents=True)
    (tmp_path / "blobs" / "a" / "blob").write_text("blob")
    (corpus / "stays").symlink_to("one.txt")
    (corpus / "file").symlink_to("../blobs/a/blob")
    (corpus / "folder").symlink_to(tmp_path / "blobs")
    kinds = {entry.path: (entry.kind, entry.content[:7]) for entry in taken(corpus).entries}
    assert kinds["corpus/stays"] == ("l", "one.txt")
    assert kinds["corpus/file"][0] == kinds["corpus/folder/a/blob"][0] == "f"


def arrived(found: Snapshot, folder: Path) -> Path:
    """The tree as a machine lays it out."""
    for entry in found.entries:
        place = folder / entry.path
        place.parent.mkdir(parents=True, exist_ok=True)
        if entry.kind == "l":
            place.symlink_to(entry.content)
        else:
            place.write_bytes(Path(entry.place).read_bytes())
    return folder / found.entries[0].path.partition("/")[0]


def test_a_link_leads_to_the_same_file_there_as_here(corpus: Path, tmp_path: Path) -> None:
    # What lies around them: of each name there is another file where a link's words alone would lead.
    for folder in (tmp_path / "models" / "llama", corpus / "sub" / "deep"):
        folder.mkdir(parents=True)
    (tmp_path / "models" / "one.txt").write_text("another one")
    (tmp_path / "models" / "llama" / "config").symlink_to("../one.txt")
    (tmp_path / "models" / "llama" / "beside").write_text("beside")
    (tmp_path / "models" / "llama" / "same").symlink_to("beside")
    (corpus / "sub" / "one.txt").write_text("a third one")
    (corpus / "out").symlink_to(tmp_path / "models" / "llama")
    (corpus / "deep").symlink_to(corpus / "sub" / "deep")
    (corpus / "up").symlink_to("deep/../one.txt")
    (corpus / "chain").symlink_to("out/config")
    (corpus / "sub" / "stays").symlink_to("../one.txt")
    (corpus / "folder").symlink_to("sub")
    found = taken(corpus)
    there = arrived(found, tmp_path / "there")
    names = ("out/config", "out/same", "up", "chain", "sub/stays", "folder/one.txt")
    assert {name: (there / name).read_text() for name in names} == {name: (corpus / name).read_text() for name in names}
    assert [one.path for one in found.entries if one.kind == "l"] == ["corpus/folder", "corpus/sub/stays"]
    # An input that is itself reached through a link is taken as it is called.
    (tmp_path / "linked").symlink_to("corpus")
    assert [one.path for one in taken(tmp_path / "linked").entries if one.kind == "l"] == [
        *("linked/folder", "linked/sub/stays")
    ]


def test_what_cannot_be_sent_is_told_with_its_name(corpus: Path, tmp_path: Path) -> None:
    def why(path: Path) -> str:
        with pytest.raises(UsageError) as caught:
            taken(path)
        assert caught.value.code == "AIC-E656"
        return caught.value.message

    (tmp_path / "nothing").mkdir()
    assert why(tmp_path / "nothing") == f"inputs.in.from: {tmp_path}/nothing holds no file"
    (corpus / "lost").symlink_to("../gone")
    assert f"{corpus}/lost cannot be read: No such file" in why(corpus)
    (corpus / "lost").unlink()
    (corpus / "round").symlink_to(tmp_path)
    assert f"{corpus}/round/corpus cannot be read: a link in it leads to a folder around it" in why(corpus)
    (corpus / "round").unlink()
    Path(os.fsdecode(os.fsencode(corpus) + b"/caf\xe9")).write_text("x")
    assert why(corpus) == "inputs.in.from: the file name corpus/caf\\xe9 is not UTF-8"


def test_a_file_that_looks_as_it_did_is_not_read_again(corpus: Path, tmp_path: Path) -> None:
    long_ago = (1_000_000_000, 1_000_000_000)
    os.utime(corpus / "one.txt", long_ago)
    first = taken(corpus, str(tmp_path / "cache"))
    assert taken(corpus, str(tmp_path / "cache")).source == first.source
