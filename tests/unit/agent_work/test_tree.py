"""A working tree is what was pushed, byte for byte, and reaches nowhere else."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aicrun.agent import store
from aicrun.agent.home import Home
from aicrun.agent.refused import Refused
from aicrun.agent.tree import lay_out, working_tree
from aicrun.wire.jobs import JobRequest, Setup, Source

Push = Callable[..., Source]
Job = Callable[..., JobRequest]


def test_files_modes_and_links_arrive_as_they_were(home: Home, push: Push, job: Job) -> None:
    source = push({"train.py": b"1", "bin/go": b"#!/bin/sh\n"}, run=("bin/go",), links={"go": "bin/go", "b": "bin"})
    tree = Path(lay_out(home, job(source=source)))
    assert (tree / "train.py").read_bytes() == b"1"
    assert not os.access(tree / "train.py", os.X_OK) or os.stat(tree / "train.py").st_mode & 0o111 == 0
    assert os.stat(tree / "bin/go").st_mode & 0o100
    assert os.readlink(tree / "go") == "bin/go"
    assert (tree / "b/go").exists()


def test_without_source_the_workspace_is_the_tree_and_gets_only_checkpoints(home: Home, job: Job) -> None:
    request = job()
    assert lay_out(home, request) == request.workspace
    assert sorted(os.listdir(request.workspace)) == ["checkpoints"]


def test_a_tree_that_stands_is_left_as_it_is(home: Home, push: Push, job: Job) -> None:
    request = job(source=push({"a": b"1"}))
    tree = Path(lay_out(home, request))
    (tree / "made").write_text("by the job")
    lay_out(home, request)
    assert (tree / "made").read_text() == "by the job"


def test_what_an_interrupted_lay_out_left_is_not_taken_for_a_tree(home: Home, push: Push, job: Job) -> None:
    request = job(source=push({"a": b"1"}))
    growing = Path(request.workspace, "jobs", ".laying-" + request.job_id)
    growing.mkdir(parents=True)
    (growing / "stale").write_text("half")
    assert os.listdir(lay_out(home, request)) == ["a"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../x", "a/../../x", "../../../../etc"])
def test_a_link_out_of_the_source_is_refused(home: Home, push: Push, job: Job, target: str) -> None:
    request = job(source=push({"a/b": b"1"}, links={"link": target}))
    with pytest.raises(Refused, match="link") as caught:
        lay_out(home, request)
    assert caught.value.token == "start_failed"
    assert not os.path.exists(working_tree(request))


def test_a_chain_of_links_that_leads_out_is_refused(home: Home, push: Push, job: Job) -> None:
    # By its words `last` leads to x; by where `up` really leads, out of the tree.
    request = job(source=push({"x/y/f": b"1"}, links={"x/y/up": "../..", "x/y/last": "up/../.."}))
    with pytest.raises(Refused, match="the link x/y/last leads out"):
        lay_out(home, request)
    assert not os.path.exists(working_tree(request))


@pytest.mark.parametrize("path", ["../a", "/a", "a/../../b", "a//b", "./a", "a/", ""])
def test_a_path_that_leaves_the_tree_is_refused(home: Home, push: Push, job: Job, path: str) -> None:
    request = job(source=push({path: b"1"}))
    with pytest.raises(Refused, match="leaves the tree"):
        lay_out(home, request)


def test_a_file_below_a_link_is_refused(home: Home, push: Push, job: Job) -> None:
    request = job(source=push({"d/x": b"1", "l/x": b"2"}, links={"l": "d"}))
    with pytest.raises(Refused, match="as a file and as a folder"):
        lay_out(home, request)


def test_a_damaged_content_is_found_and_removed_so_that_it_is_sent_again(home: Home, push: Push, job: Job) -> None:
    source = push({"a": b"right"})
    (entry,) = store.manifest(home, source.tree) or []
    Path(home.object_path(entry.content)).write_bytes(b"wrong")
    with pytest.raises(Refused, match="damaged") as caught:
        lay_out(home, job(source=source))
    assert caught.value.token == "store_incomplete"
    assert store.complete(home, source.tree) == (entry.content,)


def test_a_store_that_lost_something_says_so(home: Home, push: Push, job: Job) -> None:
    source = push({"a": b"right"})
    os.unlink(home.object_path((store.manifest(home, source.tree) or [])[0].content))
    with pytest.raises(Refused, match="lacks 1 of the source's contents"):
        lay_out(home, job(source=source))


def test_checkpoints_path_becomes_a_link_to_the_runs_folder(home: Home, push: Push, job: Job) -> None:
    request = job(source=push({"a": b"1"}), checkpoint_link="sub/out")
    tree = lay_out(home, request)
    assert os.path.realpath(os.path.join(tree, "sub/out")) == os.path.realpath(request.checkpoints)
    lay_out(home, request)


def test_a_file_of_the_source_in_the_links_place_is_told_not_replaced(home: Home, push: Push, job: Job) -> None:
    request = job(source=push({"out/kept.txt": b"1"}), checkpoint_link="out")
    with pytest.raises(Refused, match="out is already there"):
        lay_out(home, request)
    assert Path(working_tree(request), "out/kept.txt").read_bytes() == b"1"


def test_in_the_persons_own_workspace_only_our_own_link_moves(home: Home, job: Job) -> None:
    first = job(checkpoint_link="out")
    lay_out(home, first)
    second = job(checkpoint_link="out", checkpoints=first.checkpoints[:-2] + "cc")
    lay_out(home, second)
    assert os.readlink(os.path.join(first.workspace, "out")) == second.checkpoints


def test_the_environment_is_linked_into_a_tree_of_ours(home: Home, push: Push, job: Job, tmp_path: Path) -> None:
    setup = Setup(key="k" * 16, path=str(tmp_path / "envs/k"))
    tree = lay_out(home, job(source=push({"a": b"1"}), setup=setup))
    assert os.readlink(os.path.join(tree, ".venv")) == setup.path


def large(push: Push) -> tuple[Source, dict[str, bytes]]:
    """A tree that several processes lay out, where there are several processors."""
    files = {f"f{at // 50}/{at}": b"%d" % at for at in range(2000)}
    return push(files, run=("f0/1",), links={"first": "f0/0", "last": "f39/1999"}), files


def test_a_large_tree_is_laid_out_as_it_was(home: Home, push: Push, job: Job) -> None:
    source, files = large(push)
    tree = Path(lay_out(home, job(source=source)))
    assert {str(path.relative_to(tree)): path.read_bytes() for path in tree.glob("f*/*")} == files
    assert [os.readlink(tree / name) for name in ("first", "last")] == ["f0/0", "f39/1999"]
    assert os.stat(tree / "f0/1").st_mode & 0o100
    assert os.listdir(tree.parent) == [tree.name]


@pytest.mark.parametrize("number", [0, 1999])
def test_what_a_large_tree_lacks_is_said_whichever_process_misses_it(
    home: Home, push: Push, job: Job, number: int
) -> None:
    source, files = large(push)
    place = home.object_path(hashlib.sha256(files[f"f{number // 50}/{number}"]).hexdigest())
    os.unlink(place)
    request = job(source=source)
    with pytest.raises(Refused, match="lacks 1 of the source's contents") as caught:
        lay_out(home, request)
    assert caught.value.token == "store_incomplete"
    assert os.listdir(os.path.dirname(working_tree(request))) == []
    Path(place).write_bytes(files[f"f{number // 50}/{number}"])
    lay_out(home, request)
    Path(place).write_bytes(b"other")
    with pytest.raises(Refused) as caught:
        lay_out(home, job(source=source, job_id="00000000000000ab"))
    assert caught.value.token == "store_incomplete"
    assert not os.path.exists(place)
