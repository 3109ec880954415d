"""What goes from a machine when its target tells little of what it holds: only what is still what was verified."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.agent_work.test_checkpoint_files import safetensors
from unit.agent_work.test_pruning import left, rounds, saved, without_keep

from aicrun.agent import uploaded
from aicrun.agent.home import Home
from aicrun.wire import lean
from aicrun.wire.jobs import JobRequest, Upload

Job = Callable[..., JobRequest]
# A server with one bucket, that says of each object what one says that was sent in parts of a size nobody knows.
AWS = """#!{python}
import hashlib, json, pathlib, shutil, sys
there = pathlib.Path({there!r})
verb = sys.argv[1:3]
if verb == ["s3", "cp"]:
    source, goal = pathlib.Path(sys.argv[-2]), there / sys.argv[-1][len("s3://bucket/"):]
    if source.is_dir():
        shutil.copytree(source, goal, dirs_exist_ok=True)
    else:
        goal.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, goal)
elif verb == ["s3api", "list-objects-v2"]:
    prefix = sys.argv[sys.argv.index("--prefix") + 1]
    rows = []
    for path in sorted(one for one in there.rglob("*") if one.is_file()):
        key, raw = str(path.relative_to(there)), path.read_bytes()
        if key.startswith(prefix):
            rows.append([len(raw), '"%s-7"' % hashlib.md5(raw).hexdigest(), key])
    print(json.dumps(rows))
else:
    sys.exit("what is %s" % verb)
"""


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of that server, with its tool in the path."""
    there, tools = tmp_path / "served", tmp_path / "tools"
    there.mkdir()
    tools.mkdir()
    (tools / "aws").write_text(AWS.format(python=sys.executable, there=str(there)))
    (tools / "aws").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    return there


@pytest.fixture
def far(home: Home, job: Job, bucket: Path) -> JobRequest:
    """A job that keeps one of two checkpoints, and uploads to the server."""
    request = job(upload=Upload("s3://bucket/x", "s3", "s3://bucket/x", "exact", "each", tool="aws"), keep=1)
    os.makedirs(home.job_dir(request.job_id))
    os.makedirs(home.record_dir(request.run, request.job_id))
    for step in (1, 2):
        saved(Path(request.checkpoints), step)
    return request


def test_what_was_sent_in_parts_goes_while_the_target_tells_the_same_of_it(home: Home, far: JobRequest) -> None:
    rounds(home, far).look()
    assert left(far) == ["checkpoint-2"]


def test_what_another_run_wrote_over_with_as_many_bytes_stays(
    home: Home, far: JobRequest, bucket: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds(home, without_keep(far)).look()
    (bucket / "x/checkpoint-1/model.safetensors").write_bytes(safetensors(8)[:-1] + b"\xff")
    rounds(home, far).look()
    assert left(far) == ["checkpoint-1", "checkpoint-2"]
    told = "nothing at the target proves that checkpoint-1/model.safetensors is still what was uploaded"
    assert told in capsys.readouterr().out


def test_what_an_older_agent_verified_without_a_mark_stays(home: Home, far: JobRequest) -> None:
    rounds(home, without_keep(far)).look()
    kept = uploaded.read(home, far.run, far.job_id)
    for one in kept.checkpoints:
        kept = kept.adding(lean.replace(one, files=tuple(lean.replace(file, mark="") for file in one.files)))
    uploaded.write(home, far, kept)
    rounds(home, far).look()
    assert left(far) == ["checkpoint-1", "checkpoint-2"]


def test_one_that_cannot_be_sent_holds_up_neither_the_others_nor_pruning(home: Home, far: JobRequest) -> None:
    # The server keeps no name that is no UTF-8; it is the newest, so it comes first.
    saved(Path(far.checkpoints), 3)
    odd = os.path.join(os.fsencode(far.checkpoints), b"checkpoint-3/odd-\xff.bin")
    Path(os.fsdecode(odd)).write_bytes(b"odd")
    os.utime(odd, (time.time() - 600, time.time() - 600))
    rounds(home, far).look()
    kept = uploaded.read(home, far.run, far.job_id)
    assert "no UTF-8" in kept.trouble
    assert {one.name: one.pruned_at > 0 for one in kept.checkpoints} == {"checkpoint-1": True, "checkpoint-2": True}
    assert left(far) == ["checkpoint-3"]


def test_one_that_cannot_be_taken_away_holds_up_nothing(
    home: Home, far: JobRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    # With what is put before it while it is removed, its name is too long for any disk.
    folder, long = Path(far.checkpoints), "checkpoint-" + "0" * 229 + "1"
    (folder / "checkpoint-1").rename(folder / long)
    looking = rounds(home, far)
    looking.look()
    assert left(far) == sorted([long, "checkpoint-2"])
    kept = uploaded.read(home, far.run, far.job_id)
    assert not kept.trouble and {one.name: one.pruned_at for one in kept.checkpoints} == {long: 0, "checkpoint-2": 0}
    saved(folder, 3)
    looking.look()
    assert left(far) == sorted([long, "checkpoint-3"])
    assert capsys.readouterr().out.count(f"{long} could not be removed whole: ") == 1


def test_a_rest_that_cannot_be_removed_is_told_and_uploads_go_on(
    home: Home, far: JobRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds(home, without_keep(far)).look()
    aside = Path(far.checkpoints) / f".aicrun-pruned-{far.run_id}-checkpoint-1"
    (Path(far.checkpoints) / "checkpoint-1").rename(aside)
    state = aside / "trainer_state.json"
    if subprocess.run(["chattr", "+i", str(state)], check=False, capture_output=True).returncode:
        pytest.skip("nothing can be made immutable here")
    try:
        saved(Path(far.checkpoints), 3)
        rounds(home, far).look()
        kept = uploaded.read(home, far.run, far.job_id)
        assert not kept.trouble and kept.named("checkpoint-3") is not None
        assert left(far) == [aside.name, "checkpoint-3"]
        assert "checkpoint-1 could not be removed whole: " in capsys.readouterr().out
    finally:
        subprocess.run(["chattr", "-i", str(state)], check=True)
