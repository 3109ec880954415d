"""The agent as bytes: the same each time, complete, and named alike on both sides."""

from __future__ import annotations

import io
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support import REPOSITORY

from aicrun.agent.digest import agent_digest
from aicrun.hosts.bundle import Bundle, build, digest_of, read


def test_two_builds_give_equal_bytes() -> None:
    first = build()
    read.cache_clear()
    assert build().digest == first.digest
    assert build().archive == first.archive


def test_many_machines_at_once_have_it_read_once() -> None:
    begin = threading.Barrier(16)

    def ask(_: int) -> Bundle:
        begin.wait(60)
        return build()

    read.cache_clear()
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(ask, range(16)))
    assert all(one is found[0] for one in found)
    assert read.cache_info().misses == 1


def test_it_holds_agent_and_wire_and_nothing_else_of_ours() -> None:
    paths = [path for path, _ in build().files]
    assert paths == sorted(paths)
    assert {"boot.py", "aicrun/__init__.py", "aicrun/agent/boot.py", "aicrun/wire/calls.py", "pynvml.py"} <= set(paths)
    assert b"Redistributions of source code must retain" in dict(build().files)["pynvml.py"]
    ours = {path.split("/")[1] for path in paths if path.startswith("aicrun/") and path.count("/") == 2}
    assert ours == {"agent", "wire"}
    assert {path.name for path in (REPOSITORY / "aicrun/agent").glob("*.py")} == {
        path.split("/")[2] for path in paths if path.startswith("aicrun/agent/")
    }


def test_the_digest_is_over_contents_and_names() -> None:
    files = dict(build().files)
    assert digest_of(files) == build().digest
    assert digest_of(files | {"boot.py": files["boot.py"] + b"\n"}) != build().digest
    moved = {("other.py" if path == "boot.py" else path): raw for path, raw in files.items()}
    assert digest_of(moved) != build().digest


def test_the_host_computes_the_same_digest_also_beside_compiled_files(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(build().archive)) as tar:
        assert {(entry.mtime, entry.mode) for entry in tar.getmembers()} == {(0, 0o600)}
        for entry in tar.getmembers():
            place = tmp_path / entry.name
            place.parent.mkdir(parents=True, exist_ok=True)
            found = tar.extractfile(entry)
            assert found is not None
            place.write_bytes(found.read())
    (tmp_path / "aicrun/agent/__pycache__").mkdir()
    (tmp_path / "aicrun/agent/__pycache__/x.pyc").write_bytes(b"1")
    assert agent_digest(str(tmp_path)) == build().digest
