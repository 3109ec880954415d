"""The agent's digest of itself: hashed once, and again as soon as anything has changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import REPOSITORY, until

from aicrun.hosts.bundle import digest_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "aicrun").mkdir()
    (tmp_path / "boot.py").write_text("boot = 1\n")
    (tmp_path / "aicrun/one.py").write_text("one = 1\n")
    return tmp_path


def told(root: Path) -> str:
    """What a fresh process says."""
    script = "import sys; from aicrun.agent.digest import agent_digest; print(agent_digest(sys.argv[1]))"
    ran = [sys.executable, "-S", "-c", script, str(root)]
    return subprocess.run(ran, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=True).stdout.strip()


def hashed(root: Path) -> str:
    return digest_of({str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.py")})


def test_it_is_hashed_anew_whatever_has_changed(root: Path) -> None:
    memory = root / "__pycache__/digest.txt"
    # Files that were just written could change once more within one tick of the clock: nothing is remembered yet.
    assert told(root) == hashed(root)
    until(lambda: told(root) == hashed(root) and memory.exists(), at_most_s=60)
    # It is what the next one answers from: another word there is another answer.
    memory.write_text(memory.read_text().replace(hashed(root), "f" * 64))
    assert told(root) == "f" * 64

    changed = root / "aicrun/one.py"
    before = changed.stat()
    changed.write_text("one = 2\n")
    os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert told(root) == hashed(root)


@pytest.mark.parametrize("change", ["new", "gone", "replaced", "torn memory"])
def test_a_file_that_comes_goes_or_is_replaced_is_seen(root: Path, change: str) -> None:
    memory = root / "__pycache__/digest.txt"
    until(lambda: told(root) == hashed(root) and memory.exists(), at_most_s=60)
    one = root / "aicrun/one.py"
    if change == "new":
        one.with_name("two.py").write_text("")
    elif change == "gone":
        one.unlink()
    elif change == "replaced":
        other = root / "aicrun/.other"
        other.write_text("one = 3\n")
        other.replace(one)
    else:
        memory.write_text(memory.read_text()[:-5])
    assert told(root) == hashed(root)


def test_a_folder_that_cannot_be_written_to_is_hashed_each_time(root: Path) -> None:
    (root / "__pycache__").rmdir()
    (root / "__pycache__").symlink_to(root / "nowhere")
    assert told(root) == hashed(root)
    assert not list(root.glob("__pycache__/*"))
