"""What a run has saved is listed while it runs, and brought here whole, by a person at a terminal."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import small_disk
from integration.project import Project
from support import end_processes_with, until

TRAINER = """\
import json, os, struct, sys, time
out = os.environ["AICRUN_CHECKPOINT_DIR"]
header = json.dumps({"w": {"dtype": "F32", "shape": [64], "data_offsets": [0, 256]}}).encode()
whole = struct.pack("<Q", len(header)) + header + bytes(range(256))
for step, loss in ((500, 0.25), (1000, 0.5), (1500, 0.75)):
    folder = os.path.join(out, "checkpoint-%d" % step)
    os.makedirs(folder)
    with open(os.path.join(folder, "model.safetensors"), "wb") as stream:
        stream.write(whole if step < 1500 else whole[:-8])
    with open(os.path.join(folder, "config.json"), "w") as stream:
        json.dump({"model_type": "gpt2", "transformers_version": "4.46.1"}, stream)
    if step < 1500:
        state = {"global_step": step, "log_history": [{"loss": 2 * loss}, {"eval_loss": loss}]}
        with open(os.path.join(folder, "trainer_state.json"), "w") as stream:
            json.dump(state, stream)
print("saved", flush=True)
while not os.path.exists(os.path.join(os.environ["HOME"], "go")):
    time.sleep(0.05)
"""

ADDS = """
import sys, time
with open(sys.argv[1], "ab", 0) as stream:
    while True:
        stream.write(b"x")
        time.sleep(0.002)
"""


def saved(project: Project) -> Path:
    """A run that goes on after it has saved two whole checkpoints and a half one; its checkpoint folder."""
    (project.folder / "work.py").write_text(TRAINER)
    project.write(more="checkpoints: {path: out}\n")
    done = project.apply()
    assert done.returncode == 0, done.stdout + done.stderr
    until(lambda: "saved" in project.run("logs", "quick").stdout)
    return Path(json.loads(project.run("checkpoints", "quick", "--json").stdout)["path"])


def flat(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join((done.stdout + done.stderr).split())


def test_a_run_that_goes_on_tells_what_it_has_saved_and_gives_it_away(project: Project) -> None:
    folder = saved(project)
    told = json.loads(project.run("checkpoints", "quick", "--json").stdout)
    assert told["machine"] == "here" and told["free_bytes"] > 0
    rows = {row["name"]: row for row in told["checkpoints"]}
    assert {name: (row["complete"], row["step"], row.get("eval_loss")) for name, row in rows.items()} == {
        "checkpoint-500": ("yes", 500, 0.25),
        "checkpoint-1000": ("yes", 1000, 0.5),
        "checkpoint-1500": ("no", 1500, None),
    }
    shown = flat(project.run("checkpoints", "quick"))
    assert "checkpoint-1500 is not whole: model.safetensors has " in shown and "Model: gpt2 (4.46.1)." in shown

    for asked, name in (((), "checkpoint-1000"), (("best",), "checkpoint-500"), (("--checkpoint", "best"), "")):
        done = project.run("fetch", "quick", *asked, "-o", "got")
        assert done.returncode == 0, flat(done)
        assert not name or f"got/{name}" in flat(done)
    for name in ("checkpoint-500", "checkpoint-1000"):
        here, there = project.folder / "got" / name, folder / name
        assert {path.name: path.read_bytes() for path in here.iterdir()} == {
            path.name: path.read_bytes() for path in there.iterdir()
        }

    done = project.run("fetch", "quick", rows["checkpoint-1500"]["id"])
    assert done.returncode == 14 and "checkpoint-1500 of quick is not whole" in flat(done)
    assert not (project.folder / "checkpoint-1500").exists()
    done = project.run("fetch", "quick", "nothing")
    assert done.returncode == 3 and "no checkpoint is called nothing" in flat(done)

    (project.folder / "got/checkpoint-500/config.json").write_text("mine")
    done = project.run("fetch", "quick", "checkpoint-500", "-o", "got")
    assert done.returncode == 14 and "is there already and differs" in flat(done)
    assert (project.folder / "got/checkpoint-500/config.json").read_text() == "mine"
    (project.person.home / "go").touch()
    assert project.run("wait", "quick").returncode == 0
    # The run is over: nobody writes to it any more, and the half one stays half.
    assert '"complete": "no"' in project.run("checkpoints", "quick", "--json").stdout


def test_a_model_at_the_top_comes_without_the_folders_beside_it(project: Project) -> None:
    work = 'mkdir "$AICRUN_CHECKPOINT_DIR/checkpoint-5" && cd "$AICRUN_CHECKPOINT_DIR" && echo x >checkpoint-5/w.dat'
    project.write(f"""'{work} && sleep 0.05 && echo "{{}}" >config.json && echo w >model.bin'""")
    assert project.apply("--follow").returncode == 0
    assert "(top folder)" in project.run("checkpoints", "quick").stdout
    done = project.run("fetch", "quick")
    assert done.returncode == 0, flat(done)
    assert sorted(path.name for path in (project.folder / "quick").rglob("*")) == ["config.json", "model.bin"]


def test_an_apply_brings_what_it_made(project: Project) -> None:
    project.write()
    done = project.apply("--follow", "--fetch")
    assert done.returncode == 0, flat(done)
    assert (project.folder / "model.bin").read_text() == "weights" and "1 file, 7 B, checked:" in flat(done)
    (project.folder / "model.bin").write_text("mine")
    done = project.apply("--follow", "--fetch", "--again")
    # The run is as it is; what could not be brought is told with its own code.
    assert done.returncode == 14 and "quick succeeded" in flat(done) and "is there already and differs" in flat(done)
    assert (project.folder / "model.bin").read_text() == "mine"
    assert project.apply("--fetch").returncode == 3


def test_a_run_that_saved_nothing_says_so(project: Project) -> None:
    project.write("'true'", more="checkpoints: {path: out}\n")
    assert project.apply("--follow").returncode == 0
    assert "quick has saved no checkpoint" in project.run("checkpoints", "quick").stdout
    done = project.run("fetch", "quick")
    assert done.returncode == 14 and "it has saved no checkpoint" in flat(done)


def test_a_person_is_asked_before_checkpoints_go_and_told_which_have_no_copy(project: Project) -> None:
    project.write(more="checkpoints: {}\n")
    assert project.apply("--follow").returncode == 0
    folder = Path(json.loads(project.run("checkpoints", "quick", "--json").stdout)["path"])
    asked = project.run("delete", "quick", "--checkpoints")
    assert asked.returncode == 3 and "--yes" in asked.stderr
    assert "No verified copy exists of model.bin." in flat(asked) and (folder / "model.bin").exists()
    gone = project.run("delete", "quick", "--checkpoints", "--yes", "--json")
    assert gone.returncode == 0, gone.stderr
    assert json.loads(gone.stdout)["checkpoints"]["names"] == ["model.bin"] and not folder.exists()
    assert "No runs" in project.run("list").stdout


def test_what_lay_in_the_folder_before_is_told_apart_and_not_fetched(project: Project) -> None:
    shared = project.person.home / "shared"
    (shared / "checkpoint-1").mkdir(parents=True)
    (shared / "checkpoint-1/model.bin").write_text("of somebody else")
    mine = f"mkdir {shared}/checkpoint-2 && echo mine >{shared}/checkpoint-2/model.bin"
    project.write(f"'{mine}'", more=f"checkpoints: {{path: {shared}}}\n")
    done = project.apply("--follow")
    assert done.returncode == 0 and "what lies there is left out of its uploads" in flat(done)
    rows = json.loads(project.run("checkpoints", "quick", "--json").stdout)["checkpoints"]
    assert {row["name"]: row["complete"] for row in rows} == {"checkpoint-1": "other", "checkpoint-2": "settled"}
    shown = flat(project.run("checkpoints", "quick"))
    assert "checkpoint-1 is none of this run's: it was there before the run began" in shown
    done = project.run("fetch", "quick", "checkpoint-1")
    assert done.returncode == 14 and "checkpoint-1 is none of quick's: it was there before" in flat(done)
    assert project.run("fetch", "quick").returncode == 0
    assert (project.folder / "checkpoint-2").exists() and not (project.folder / "checkpoint-1").exists()


def test_one_checkpoint_is_uploaded_by_its_name_and_no_other(project: Project) -> None:
    saves = 'for one in 1 2; do mkdir "$AICRUN_CHECKPOINT_DIR/checkpoint-$one"; '
    saves += 'echo $one >"$AICRUN_CHECKPOINT_DIR/checkpoint-$one/model.bin"; done; exit 3'
    project.write(f"'{saves}'", more="checkpoints: {upload: {to: 'file:~/kept/'}}\n")
    assert project.apply("--follow").returncode == 10
    shown = flat(project.run("checkpoints", "quick"))
    assert "upload one aicrun upload quick checkpoint-" in shown
    done = project.run("upload", "quick", "checkpoint-1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "checkpoint-1 of quick, 2 B, is uploaded and verified at file:" in flat(done)
    kept = project.person.home / "kept"
    assert sorted(path.name for path in kept.rglob("*") if path.is_file()) == ["aicrun-manifest.json", "model.bin"]
    assert next(kept.rglob("model.bin")).read_text() == "1\n"
    found = project.json("inspect", "quick")
    assert (found["status"], found["reason"]) == ("failed", "exit_code")
    told = json.loads(project.run("checkpoints", "quick", "--json").stdout)["checkpoints"]
    assert {one["name"]: "uploaded_age_s" in one for one in told} == {"checkpoint-1": True, "checkpoint-2": False}
    # Once more sends nothing, and one that is not there is told.
    assert project.run("upload", "quick", "checkpoint-1").returncode == 0
    assert project.run("upload", "quick", "checkpoint-7").returncode == 3
    # The rest goes as ever, and the manifest names both.
    assert project.run("upload", "quick").returncode == 0
    manifest = json.loads(next(kept.rglob("aicrun-manifest.json")).read_text())
    assert [file["path"] for file in manifest["files"]] == ["checkpoint-1/model.bin", "checkpoint-2/model.bin"]


def begun(project: Project, to: str) -> tuple[subprocess.Popen[str], Path | None]:
    """A fetch, and the part that grows; None where it was too quick to be seen."""
    client = project.popen("fetch", "quick", "checkpoint-1000", "-o", to)
    place = project.folder / to / "checkpoint-1000"

    def part() -> Path | None:
        with contextlib.suppress(FileNotFoundError):
            return next((one for one in place.glob(".*.aicrun-part") if one.stat().st_size), None)
        return None

    until(lambda: part() or client.poll() is not None, 60)
    return client, part()


def test_what_happens_in_the_middle_of_a_fetch(project: Project, tmp_path: Path) -> None:
    """The client is killed, the disk here has no room, the file is written to, the checkpoint is removed over there."""
    folder = saved(project) / "checkpoint-1000"
    size = 128 << 20
    with (folder / "a.bin").open("wb") as stream:
        stream.truncate(size)
    project.person.home.joinpath("go").touch()
    assert project.run("wait", "quick").returncode == 0

    for attempt in range(9):
        client, part = begun(project, f"one-{attempt}")
        client.kill()
        client.communicate()
        if part is not None and part.exists():
            break
    assert part is not None and part.stat().st_size <= size
    inode = part.stat().st_ino
    done = project.run("fetch", "quick", "checkpoint-1000", "-o", f"one-{attempt}")
    assert done.returncode == 0, flat(done)
    came = project.folder / f"one-{attempt}/checkpoint-1000/a.bin"
    assert came.stat().st_ino == inode and came.stat().st_size == size and not part.exists()

    with small_disk.small(tmp_path / "disk", "size=1m", end=lambda: end_processes_with(project.person.mark)) as disk:
        done = project.run("fetch", "quick", "checkpoint-1000", "-o", str(disk))
        assert done.returncode == 14 and "needs 128.0 MiB more here, and 1.0 MiB are free" in flat(done), flat(done)
        assert not [path for path in disk.rglob("*") if path.is_file()]

    with Writing(folder / "a.bin"):
        done = project.run("fetch", "quick", "checkpoint-1000", "-o", "two")
    assert done.returncode == 14 and "it changes while it is read" in flat(done), flat(done)
    assert not (project.folder / "two/checkpoint-1000/a.bin").exists()

    for attempt in range(9):
        client, _ = begun(project, f"three-{attempt}")
        folder.rename(folder.with_name("aside"))
        said = " ".join(client.communicate()[1].split())
        if client.returncode:
            break
        folder.with_name("aside").rename(folder)
    assert client.returncode == 14 and "checkpoint-1000 was removed from here meanwhile" in said, said


class Writing:
    """Somebody who adds to a file all the time."""

    def __init__(self, path: Path) -> None:
        self._child = subprocess.Popen([sys.executable, "-c", ADDS, str(path)])

    def __enter__(self) -> None:
        """It goes on."""

    def __exit__(self, *error: object) -> None:
        self._child.kill()
        self._child.wait()


def test_what_was_fetched_into_the_project_is_no_code_of_the_next_plan(project: Project) -> None:
    project.write(
        """'mkdir "$AICRUN_CHECKPOINT_DIR/checkpoint-5" && echo x >"$AICRUN_CHECKPOINT_DIR/checkpoint-5/model.bin"'"""
    )
    assert project.apply("--follow").returncode == 0
    before = project.json("plan", "run.yaml")["runs"][0]
    assert project.run("fetch", "quick").returncode == 0 and (project.folder / "checkpoint-5/model.bin").exists()
    after = project.json("plan", "run.yaml")["runs"][0]
    assert (after["action"], after.get("changes")) == (before["action"], before.get("changes"))
    # A folder of one's own is code, whatever it is called.
    (project.folder / "checkpoint-6").mkdir()
    (project.folder / "checkpoint-6/model.bin").write_text("x")
    assert project.json("plan", "run.yaml")["runs"][0] != before
