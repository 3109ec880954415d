"""An upload is verified only when the target, read back, has every byte; everything else is a failure with its list."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support import P38, REPOSITORY, until

from aicrun.agent import targets
from aicrun.agent.home import Home
from aicrun.agent.outputs import Output
from aicrun.agent.records import read_record, write_record
from aicrun.agent.targets import FolderTarget, Sent
from aicrun.agent.upload import manifest_of, upload
from aicrun.wire import names
from aicrun.wire.jobs import JobRequest, Upload, UploadResult

MEANWHILE = "while the checkpoints were uploaded"
Job = Callable[..., JobRequest]


@pytest.fixture
def checkpoints(job: Job) -> Path:
    """The run's checkpoint folder with two checkpoints and a link to the newer."""
    folder = Path(job().checkpoints)
    for name in ("step-10", "step-20"):
        (folder / name).mkdir(parents=True)
        (folder / name / "weights.bin").write_bytes(name.encode() * 100_000)
        (folder / name / "trainer_state.json").write_text("{}")
    os.symlink("step-20", folder / "latest")
    return folder


@pytest.fixture
def share(account: Path) -> Path:
    """Where uploads go."""
    return account / "share/sft-run"


def to(share: Path, scheme: str = "file") -> Upload:
    return Upload(f"file:{share}", scheme, f"file:{share}")


def sent(request: JobRequest, wanted: Upload) -> UploadResult:
    return upload(request, wanted, os.environ["HOME"], os.path.join(os.environ["HOME"], "scratch"))


def test_everything_arrives_and_the_manifest_says_what(job: Job, checkpoints: Path, share: Path) -> None:
    result = sent(job(), to(share))
    assert (result.verified, result.error, result.missing, result.skipped) == (True, "", (), ())
    assert (share / "latest/weights.bin").read_bytes() == b"step-20" * 100_000
    manifest = json.loads((share / "aicrun-manifest.json").read_bytes())
    assert {key: manifest[key] for key in ("schema", "run", "run_id", "job_id")} == {
        "schema": 1,
        "run": "sft-run",
        "run_id": job().run_id,
        "job_id": job().job_id,
    }
    paths = [item["path"] for item in manifest["files"]]
    assert paths == sorted(paths)
    assert len(paths) == result.files == 6
    for item in manifest["files"]:
        raw = (share / item["path"]).read_bytes()
        assert (len(raw), hashlib.sha256(raw).hexdigest()) == (item["bytes"], item["sha256"])
    assert not [name for _, _, files in os.walk(share) for name in files if name.endswith(".tmp")]


def test_again_replaces_what_is_there_and_is_verified_again(job: Job, checkpoints: Path, share: Path) -> None:
    sent(job(), to(share))
    (share / "step-10/weights.bin").write_bytes(b"rotten")
    assert sent(job(), to(share)).verified
    assert (share / "step-10/weights.bin").read_bytes() == b"step-10" * 100_000


@pytest.mark.parametrize("written", ["{}", "file:{}", "file://{}"])
def test_all_ways_to_write_a_folder_are_one_folder(job: Job, checkpoints: Path, share: Path, written: str) -> None:
    assert sent(job(), Upload("", "file", written.format(share))).verified
    assert (share / "aicrun-manifest.json").exists()


def test_a_target_in_the_home_folder(job: Job, checkpoints: Path, account: Path) -> None:
    assert sent(job(), Upload("", "file", "file:~/kept/x")).verified
    assert (account / "kept/x/aicrun-manifest.json").exists()


def test_an_empty_checkpoint_folder_is_no_success(job: Job, share: Path) -> None:
    os.makedirs(job().checkpoints)
    result = sent(job(), to(share))
    assert not result.verified
    assert result.error == f"nothing to upload: the checkpoint folder {job().checkpoints} is empty"
    assert not share.exists()


def test_links_to_nothing_and_out_are_missing_and_sockets_are_only_skipped(
    job: Job, checkpoints: Path, share: Path, account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.symlink("gone", checkpoints / "dangling")
    os.symlink("/etc/hostname", checkpoints / "leaves")
    monkeypatch.chdir(checkpoints)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("live.sock")
    listener.close()
    result = sent(job(), to(share))
    assert not result.verified
    assert result.missing == ("dangling: a link to nothing", "leaves: a link that leads out of the checkpoint folder")
    assert result.skipped == ("live.sock: a socket, pipe or device",)
    assert result.error == "2 of 8 files are not there whole"
    assert (share / "step-10/weights.bin").exists()
    assert not (share / "aicrun-manifest.json").exists()


def test_a_link_to_a_folder_above_ends(job: Job, checkpoints: Path, share: Path) -> None:
    os.symlink("..", checkpoints / "step-10/up")
    assert sent(job(), to(share)).missing == ("step-10/up: a link to a folder that it is in",)


def test_a_file_that_keeps_changing_is_not_called_uploaded(
    job: Job, checkpoints: Path, share: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "_PAUSE_S", 0.01)
    growing = checkpoints / "growing.log"
    growing.write_bytes(b"x" * 3_000_000)
    ended = threading.Event()

    def touch() -> None:
        with growing.open("ab") as stream:
            while not ended.is_set():
                stream.write(b"y" * 4096)
                stream.flush()

    writer = threading.Thread(target=touch)
    writer.start()
    try:
        result = sent(job(), to(share))
    finally:
        ended.set()
        writer.join()
    # On a busy machine the writer may stand still while a copy is made: then it is seen afterwards.
    told = {f"growing.log: it changed {when}" for when in ("each time it was copied", MEANWHILE)}
    assert not result.verified and set(result.missing) <= told and len(result.missing) == 1
    assert not (share / "aicrun-manifest.json").exists()


@pytest.mark.parametrize("what", ["changes", "comes", "goes"])
def test_what_is_written_during_the_upload_is_never_called_uploaded(
    job: Job, checkpoints: Path, share: Path, what: str
) -> None:
    def write() -> None:
        # Not before the first checkpoint has arrived, so that its copy did not notice anything.
        until((share / "step-10/weights.bin").exists)
        if what == "comes":
            (checkpoints / "step-30").mkdir()
            (checkpoints / "step-30/weights.bin").write_bytes(b"late")
        elif what == "changes":
            (checkpoints / "step-10/weights.bin").write_bytes(b"late")
        else:
            (checkpoints / "step-10/weights.bin").unlink()
        os.write(gate, b"go on")

    pipe, gate = os.pipe()
    slow = checkpoints / "step-11"
    os.mkdir(slow)
    (slow / "weights.bin").write_bytes(b"x")
    real = FolderTarget.send

    def send(self: FolderTarget, output: Output) -> Sent:
        if output.path == "step-11/weights.bin":
            os.read(pipe, 5)
        return real(self, output)

    writer = threading.Thread(target=write)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FolderTarget, "send", send)
        writer.start()
        result = sent(job(), to(share))
        writer.join()
    path = "step-30/weights.bin" if what == "comes" else "step-10/weights.bin"
    words = {"comes": "it was written", "changes": "it changed", "goes": "it went away"}[what]
    assert result.missing == (f"{path}: {words} while the checkpoints were uploaded",)
    assert not result.verified
    assert not (share / "aicrun-manifest.json").exists()


def test_a_stop_leaves_no_half_copied_file_on_the_target(home: Home, job: Job, share: Path) -> None:
    request = job(upload=to(share))
    os.makedirs(request.checkpoints)
    with open(f"{request.checkpoints}/big", "wb") as stream:
        # A hole: much to read and write, in no time to make.
        stream.truncate(1 << 40)
    folder = home.job_dir(request.job_id)
    os.makedirs(folder)
    os.makedirs(home.record_dir(request.run, request.job_id))
    write_record(os.path.join(folder, names.REQUEST), request)
    argv = [sys.executable, "-I", "-S", str(REPOSITORY / "aicrun/agent/boot.py"), "upload", folder]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as running:
        until(lambda: share.exists() and os.listdir(share))
        running.terminate()
        assert running.wait(20) == -signal.SIGTERM
    assert os.listdir(share) == []


def test_a_file_that_grows_as_fast_as_it_is_read_does_not_fill_the_target(
    job: Job, checkpoints: Path, share: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "_CHUNK", 1000)
    growing = checkpoints / "growing.log"
    growing.write_bytes(b"x" * 5000)
    goal = FolderTarget(str(share), job().job_id)
    goal.begin(str(checkpoints))

    class Grows:
        """A digest that grows the file with each piece it sees."""

        def __init__(self) -> None:
            self.pieces = 0

        def update(self, piece: bytes) -> None:
            self.pieces += 1
            assert self.pieces < 50
            with growing.open("ab") as stream:
                stream.write(b"y" * 2000)

    monkeypatch.setattr(targets.hashlib, "sha256", lambda *_: Grows())
    assert targets._copy(Output("growing.log", str(growing)), str(share / "t")) is None


def test_names_that_are_no_text_survive(job: Job, checkpoints: Path, share: Path) -> None:
    Path(os.fsdecode(os.fsencode(checkpoints) + b"/caf\xe9")).write_bytes(b"1")
    assert sent(job(), to(share)).verified
    assert b"caf\xe9" in os.listdir(os.fsencode(share))
    assert "caf\\udce9" in (share / "aicrun-manifest.json").read_text()


@pytest.mark.parametrize("below", ["", "/inner", "/.."])
def test_source_and_target_in_each_other_are_refused(job: Job, checkpoints: Path, below: str) -> None:
    result = sent(job(), to(Path(f"{checkpoints}{below}")))
    assert not result.verified
    assert "lie in each other" in result.error


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (Upload("", "ftp", "ftp://nas/x"), "ftp: is not supported yet"),
        (Upload("", "file", "file:relative"), "the target file:relative is not an absolute folder of this host"),
        (Upload("", "file", "file:/proc/nobody/x"), "/proc/nobody: No such file or directory"),
    ],
)
def test_a_target_that_cannot_be_is_said(job: Job, checkpoints: Path, wanted: Upload, error: str) -> None:
    result = sent(job(), wanted)
    assert (result.verified, result.error) == (False, error)


@pytest.mark.parametrize("fault", ["flip", "cut", "gone", "link"])
def test_reading_back_finds_what_the_copy_did_not_notice(checkpoints: Path, share: Path, job: Job, fault: str) -> None:
    goal = FolderTarget(str(share), job().job_id)
    goal.begin(str(checkpoints))
    one = goal.send(Output("w.bin", str(checkpoints / "step-10/weights.bin")))
    manifest = manifest_of(job(), (one,))
    goal.finish(manifest)
    assert goal.faults((one,), manifest) == ()
    arrived = share / "w.bin"
    if fault == "flip":
        with arrived.open("r+b") as stream:
            stream.seek(5000)
            stream.write(b"\0")
    elif fault == "cut":
        os.truncate(arrived, 5000)
    else:
        arrived.unlink()
    if fault == "link":
        os.symlink(checkpoints / "step-10/weights.bin", arrived)
    (words,) = goal.faults((one,), manifest)
    assert words.startswith("w.bin: ")


def test_reading_back_reads_the_manifest_too(share: Path, job: Job, checkpoints: Path) -> None:
    goal = FolderTarget(str(share), job().job_id)
    goal.begin(str(checkpoints))
    goal.finish(b"{}")
    assert goal.faults((), b'{"a": 1}') == ("aicrun-manifest.json: 2 bytes arrived of 8",)


def test_a_full_disk_is_a_failure_that_names_the_file(job: Job, checkpoints: Path, account: Path) -> None:
    small = account / "small"
    small.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(small)], check=False)
    if mount.returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        result = sent(job(), to(small / "x"))
        assert not result.verified
        assert "No space left on device" in result.error
        assert not [name for name in os.listdir(small / "x") if name.endswith(".tmp")]
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.parametrize(
    "python", [sys.executable, pytest.param(P38, marks=pytest.mark.skipif(P38 is None, reason="no 3.8"))]
)
def test_the_step_writes_its_result_and_exits_by_it(
    home: Home, job: Job, checkpoints: Path, share: Path, python: str
) -> None:
    request = job(upload=to(share))
    folder, record = home.job_dir(request.job_id), home.record_dir(request.run, request.job_id)
    os.makedirs(folder)
    os.makedirs(record)
    write_record(os.path.join(folder, names.REQUEST), request)
    argv = [str(python), "-I", "-S", str(REPOSITORY / "aicrun/agent/boot.py"), "upload", folder]

    def ended() -> tuple[int, list[str], UploadResult | None]:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines(), read_record(f"{record}/{names.UPLOAD_RESULT}", UploadResult)

    code, said, result = ended()
    assert (code, result and result.verified) == (0, True)
    assert said == [f"uploaded and verified: 6 files, {result and result.bytes} bytes, file:{share}"]
    os.symlink("gone", checkpoints / "dangling")
    code, said, result = ended()
    assert (code, result and result.verified) == (1, False)
    assert said == [
        "missing dangling: a link to nothing",
        "aicrun: upload failed: 1 of 7 files are not there whole",
    ]


def test_the_manifests_form_is_frozen(job: Job) -> None:
    assert manifest_of(job(), (Sent("b", 1, "e" * 64), Sent("a/c", 2, "f" * 64))) == (
        b'{\n "schema": 1,\n "run": "sft-run",\n "run_id": "00000000000000bb",\n "job_id": "00000000000000aa",\n'
        b' "files": [\n  {\n   "path": "a/c",\n   "bytes": 2,\n   "sha256": "' + b"f" * 64 + b'"\n  },\n'
        b'  {\n   "path": "b",\n   "bytes": 1,\n   "sha256": "' + b"e" * 64 + b'"\n  }\n ]\n}\n'
    )
