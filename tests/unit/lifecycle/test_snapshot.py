"""Which files are the source of a run, and what a snapshot notices."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from aicrun.errors import UsageError
from aicrun.lifecycle.listing import files_of, matches
from aicrun.lifecycle.snapshot import contents, look_at, take
from aicrun.spec.model import CheckpointSpec, RunSpec, SourceSpec, UploadSpec


def git(folder: Path, *args: str) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=ana", "-c", "user.email=ana@example.org")
    subprocess.run(["git", *identity, *args], cwd=folder, env=env, check=True, capture_output=True)


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    write(folder, train_DOT_py="print(1)\n", data__big_DOT_bin="x" * 100, lib__a_DOT_py="a\n")
    return folder


def spec(tree: Path, **more: object) -> RunSpec:
    base = {"name": "sft-run", "file": "run.yaml", "folder": str(tree), "command": ("true",)}
    empty: dict[str, object] = {"execution": {}, "supervision": {}, "selector": {}}
    return RunSpec(**{**base, **empty, "source": SourceSpec(str(tree)), **more})  # type: ignore[arg-type]


def paths(tree: Path, **narrow: tuple[str, ...]) -> list[str]:
    return list(files_of(SourceSpec(str(tree), **narrow)))


def test_without_a_repository_every_file_counts_but_caches_and_virtual_environments(tree: Path) -> None:
    write(tree, __pycache____a_DOT_pyc="", venv__pyvenv_DOT_cfg="", venv__lib__x_DOT_py="", node_modules__x_DOT_js="")
    assert paths(tree) == ["data/big.bin", "lib/a.py", "train.py"]


def test_what_a_cut_fetch_left_behind_is_no_code(tree: Path) -> None:
    before = take(spec(tree))
    (tree / ".0123.aicrun-part").mkdir()
    (tree / ".0123.aicrun-part/model.bin").write_text("half")
    (tree / ".4567.aicrun-part").write_text("half")
    after = take(spec(tree))
    assert before is not None and after is not None and before.source.tree == after.source.tree


def test_without_a_repository_gitignore_is_still_honoured(tree: Path) -> None:
    write(tree, _DOT_gitignore="data/\n")
    assert paths(tree) == [".gitignore", "lib/a.py", "train.py"]


def test_in_a_repository_tracked_and_new_files_count_and_ignored_and_removed_ones_do_not(tree: Path) -> None:
    git(tree, "init", "-q")
    write(tree, _DOT_gitignore="data/\n", gone_DOT_py="")
    git(tree, "add", "train.py", "gone.py", ".gitignore")
    git(tree, "commit", "-qm", "one")
    (tree / "gone.py").unlink()
    snapshot = look_at(SourceSpec(str(tree)))
    assert [entry.path for entry in snapshot.entries] == [".gitignore", "lib/a.py", "train.py"]
    assert len(snapshot.source.commit) == 40
    assert snapshot.source.dirty == ("gone.py", "lib/a.py")


def test_what_is_new_and_not_sent_is_no_change_of_the_source(tree: Path) -> None:
    git(tree, "init", "-q")
    write(tree, run_DOT_yaml="a: 1\n")
    git(tree, "add", "train.py")
    git(tree, "commit", "-qm", "one")
    write(tree, **{"sub/nä w_DOT_py": "new", "sub/left_DOT_log": "no"})
    source = SourceSpec(str(tree), exclude=("*.log", "data"))
    assert look_at(source, [str(tree / "run.yaml")]).source.dirty == ("lib/a.py", "sub/nä w.py")
    assert look_at(SourceSpec(str(tree / "sub"))).source.dirty == ("left.log", "nä w.py")


def test_a_source_below_the_top_of_its_repository_is_only_that_folder(tree: Path) -> None:
    git(tree, "init", "-q")
    assert paths(tree / "lib") == ["a.py"]


def test_a_repository_inside_is_listed_by_its_own_rules(tree: Path) -> None:
    git(tree, "init", "-q")
    write(tree, sub___DOT_gitignore="*.bin\n", sub__x_DOT_py="", sub__y_DOT_bin="")
    git(tree / "sub", "init", "-q")
    assert [path for path in paths(tree) if path.startswith("sub/")] == ["sub/.gitignore", "sub/x.py"]


def test_include_and_exclude_narrow_the_files(tree: Path) -> None:
    assert paths(tree, include=("lib",)) == ["lib/a.py"]
    assert paths(tree, exclude=("data/", "*.py")) == []


@pytest.mark.parametrize(
    ("path", "pattern", "meant"),
    [
        ("a/b.py", "*.py", True),
        ("a/b.py", "/*.py", False),
        ("a/b.py", "a", True),
        ("a/b/c", "a/*/c", True),
        ("a/b/d/c", "a/*/c", False),
        ("a/b/d/c", "a/**/c", True),
        ("a/c", "a/**/c", True),
        ("data", "data/", False),
        ("data/x", "data/", True),
    ],
)
def test_patterns_mean_what_gitignore_means(path: str, pattern: str, meant: bool) -> None:
    assert matches(path, pattern) is meant


def test_the_tree_hash_tells_contents_the_executable_bit_and_links_apart(tree: Path) -> None:
    first = look_at(SourceSpec(str(tree))).source.tree
    assert look_at(SourceSpec(str(tree))).source.tree == first
    (tree / "train.py").chmod(0o755)
    second = look_at(SourceSpec(str(tree))).source.tree
    (tree / "latest").symlink_to("lib/a.py")
    third = look_at(SourceSpec(str(tree))).source.tree
    assert len({first, second, third}) == 3


@pytest.mark.parametrize("target", ["/etc/hostname", "../outside", "lib/../../outside"])
def test_a_link_that_leaves_the_source_is_refused(tree: Path, target: str) -> None:
    (tree / "latest").symlink_to(target)
    with pytest.raises(UsageError, match="leaves the source") as caught:
        look_at(SourceSpec(str(tree)))
    assert caught.value.code == "AIC-E655"


def test_a_link_to_a_folder_inside_is_kept_as_a_link(tree: Path) -> None:
    (tree / "same").symlink_to("lib")
    kinds = {entry.path: entry.kind for entry in look_at(SourceSpec(str(tree))).entries}
    assert kinds["same"] == "l"
    assert "same/a.py" not in kinds


def test_a_change_of_the_spec_its_plan_or_its_outputs_is_no_change_of_the_source(tree: Path) -> None:
    upload = UploadSpec(f"file:{tree}/uploaded", "file", "copy")
    wanted = spec(tree, workspace=str(tree / "work"), checkpoints=CheckpointSpec("out", upload))
    write(tree, run_DOT_yaml="version: 1\n", machines_DOT_yaml="version: 1\n")
    before = take(wanted, [str(tree / "machines.yaml")])
    write(tree, run_DOT_yaml="version: 1\nlimits: {max_duration: 2h}\n", uploaded__x__ckpt="1", work__jobs__x="1")
    write(tree, machines_DOT_yaml="version: 1\nmachines: []\n")
    after = take(wanted, [str(tree / "machines.yaml")])
    assert before is not None
    assert after is not None
    assert before.source.tree == after.source.tree


def test_an_empty_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no file"):
        look_at(SourceSpec(str(tmp_path)))


def test_a_file_name_that_is_not_utf8_is_refused_by_name(tree: Path) -> None:
    Path(os.fsdecode(os.fsencode(tree) + b"/caf\xe9")).write_text("")
    with pytest.raises(UsageError, match="not UTF-8") as caught:
        look_at(SourceSpec(str(tree)))
    assert "caf" in caught.value.message


def test_the_manifest_lists_every_entry_with_its_size(tree: Path) -> None:
    snapshot = look_at(SourceSpec(str(tree)))
    listed = json.loads(snapshot.manifest)
    assert [row[0] for row in listed] == ["data/big.bin", "lib/a.py", "train.py"]
    assert snapshot.largest[0] == ("data/big.bin", 100)


def test_contents_are_the_files_as_they_were_hashed(tree: Path) -> None:
    snapshot = look_at(SourceSpec(str(tree)))
    sent = contents(snapshot, snapshot.hashes)
    assert {Path(content.path).read_bytes() for content in sent} == {b"x" * 100, b"a\n", b"print(1)\n"}
    assert all(hashlib.sha256(Path(content.path).read_bytes()).hexdigest() == content.hash for content in sent)


@pytest.fixture
def long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were just written count as written long ago."""
    monkeypatch.setattr("aicrun.lifecycle.known_files.SETTLED_NS", -(10**18))


def believed(cache: Path) -> dict[str, list[object]]:
    """What the cache says of each file; every hash is then made a wrong one, which only who reads the file notices."""
    (path,) = (cache / "sources").iterdir()
    kept = json.loads(path.read_text())
    wrong = {name: [look, "0" * 64] for name, (look, _) in kept["files"].items()}
    path.write_text(json.dumps(dict(kept, files=wrong)))
    return dict(kept["files"])


def hashes(tree: Path, cache: Path) -> dict[str, str]:
    return {entry.path: entry.content for entry in look_at(SourceSpec(str(tree)), cache=str(cache)).entries}


@pytest.mark.usefixtures("long_ago")
def test_a_file_that_looks_as_it_did_is_not_read_again(tree: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = hashes(tree, cache)
    assert set(believed(cache)) == set(first)
    kept = (tree / "train.py").stat()
    (tree / "train.py").write_text("print(2)\n")
    os.utime(tree / "train.py", ns=(kept.st_atime_ns, kept.st_mtime_ns))
    second = hashes(tree, cache)
    assert second["lib/a.py"] == second["data/big.bin"] == "0" * 64
    assert second["train.py"] == hashlib.sha256(b"print(2)\n").hexdigest()


def test_a_file_that_was_just_written_is_read_again(tree: Path, tmp_path: Path) -> None:
    hashes(tree, tmp_path / "cache")
    assert not (tmp_path / "cache/sources").exists()


@pytest.mark.usefixtures("long_ago")
@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1, "root": 3, "files": {}}', '{"schema": 2}'])
def test_a_cache_that_cannot_be_read_costs_nothing_but_time(tree: Path, tmp_path: Path, text: str) -> None:
    cache = tmp_path / "cache"
    first = hashes(tree, cache)
    (path,) = (cache / "sources").iterdir()
    path.write_text(text)
    assert hashes(tree, cache) == first


@pytest.mark.usefixtures("long_ago")
def test_a_cache_that_cannot_be_written_is_no_fault(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    assert set(hashes(tree, tmp_path / "cache")) == {"data/big.bin", "lib/a.py", "train.py"}


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


def test_contents_that_git_lfs_keeps_elsewhere_are_told_wherever_an_attribute_names_it(tree: Path) -> None:
    write(tree, weights_DOT_bin=POINTER, lib__more_DOT_bin=POINTER, note_DOT_txt="x" * 130)
    assert look_at(SourceSpec(str(tree))).pointers == ()
    write(tree, _DOT_gitattributes="*.bin filter=lfs diff=lfs merge=lfs -text\n")
    assert look_at(SourceSpec(str(tree))).pointers == ("lib/more.bin", "weights.bin")
    assert look_at(SourceSpec(str(tree), exclude=("lib",))).pointers == ("weights.bin",)
    assert look_at(SourceSpec(str(tree / "lib"))).pointers == ()
    git(tree, "init", "-q")
    assert look_at(SourceSpec(str(tree / "lib"))).pointers == ("more.bin",)


def test_a_submodule_is_sent_where_it_is_checked_out_and_told_where_it_is_not(tree: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    write(library, lib_DOT_py="1\n")
    for folder in (library, tree):
        git(folder, "init", "-q")
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", "one")
    git(tree, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "dep/lib")
    git(tree, "commit", "-q", "-m", "two")
    there = look_at(SourceSpec(str(tree)))
    assert there.submodules == ()
    assert "dep/lib/lib.py" in [entry.path for entry in there.entries]
    git(tree, "submodule", "-q", "deinit", "-f", "dep/lib")
    assert look_at(SourceSpec(str(tree))).submodules == ("dep/lib",)
    assert look_at(SourceSpec(str(tree), exclude=("dep",))).submodules == ()
    write(tree, dep__x_DOT_py="")
    assert look_at(SourceSpec(str(tree / "dep"))).submodules == ("lib",)
