"""Targets behind ssh, with a real sshd and rsync: what is cut goes on, what is other is noticed, what fails is told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ssh_rig import SSHD, Sshd
from support import until

from aicrun.agent import remote_targets, upload_probe
from aicrun.agent.build import SetupFailed
from aicrun.agent.fetch_back import FromSsh
from aicrun.agent.ssh_store import Rsync, place
from aicrun.agent.targets import CannotUpload
from aicrun.agent.upload import upload
from aicrun.wire.fetch import Back
from aicrun.wire.jobs import JobRequest, Upload, UploadResult

Job = Callable[..., JobRequest]
has_sshd = pytest.mark.skipif(not (SSHD and shutil.which("rsync")), reason="no sshd or no rsync at hand")
SIZE = 6_000_000
# The real one, whatever stands before it in a test.
SSH = shutil.which("ssh")
# Passes on so many bytes of its input, then the connection is gone.
CUTS = """\
import os, subprocess, sys, threading
child = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE)
def feed():
    left = int(sys.argv[1])
    while left and (piece := os.read(0, min(left, 65536))):
        os.write(child.stdin.fileno(), piece)
        left -= len(piece)
    child.stdin.close() if left else child.kill()
threading.Thread(target=feed, daemon=True).start()
os._exit(255 if child.wait() else 0)
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    there = Sshd(tmp_path_factory.mktemp("there")).start()
    plain = there.write_client("nas").read_text()
    # One connection that is open already, as an account may have it: what uploads use it, and begin at once.
    (there.folder / "shared_config").write_text(f"{plain}  ControlPath {there.folder}/open\n")
    shared = [str(SSH), "-F", str(there.folder / "shared_config"), "-M", "-N", "nas"]
    with subprocess.Popen(shared, stdin=subprocess.DEVNULL) as master:
        until((there.folder / "open").exists)
        yield there
        master.kill()
    there.close()


class Far:
    """The far side as the account sees it: `folder` is the target, `script` what stands before ssh or rsync."""

    def __init__(self, daemon: Sshd, account: Path, folder: Path) -> None:
        self.daemon, self.account, self.folder = daemon, account, folder
        self.tools = account / ".local/bin"
        self.tools.mkdir(parents=True)
        self.script("ssh", f'exec {SSH} -F "$CONFIG" "$@"')
        self.wanted = Upload("", "ssh", f"ssh://nas{folder}/", "exact", tool="rsync")

    def script(self, name: str, text: str) -> None:
        (self.tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.tools / name).chmod(0o755)

    def sent(self, request: JobRequest) -> UploadResult:
        return upload(request, self.wanted, str(self.account), str(self.account / "scratch"))

    def probed(self, request: JobRequest, wanted: Upload | None = None) -> None:
        folder = self.account / "job"
        folder.mkdir(exist_ok=True)
        upload_probe.probe(request, wanted or self.wanted, str(folder), os.environ)
        assert list(folder.iterdir()) == []


@pytest.fixture
def far(daemon: Sshd, account: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Far:
    monkeypatch.setenv("PATH", f"{account}/.local/bin:/usr/bin:/bin")
    monkeypatch.setenv("CONFIG", str(daemon.folder / "shared_config"))
    monkeypatch.setattr(remote_targets, "PAUSES_S", (0.01,))
    # Under load it happens that rsync ends before the far side's words are here: then it is tried again.
    monkeypatch.setattr(upload_probe, "PAUSES_S", (0.01,) * 3)
    return Far(daemon, account, tmp_path / "kept")


@pytest.fixture
def checkpoints(job: Job) -> Path:
    folder = Path(job().checkpoints)
    (folder / "step-10").mkdir(parents=True)
    (folder / "step-10/model").write_bytes(os.urandom(SIZE))
    (folder / "step-10/state").write_text("{}")
    return folder


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("ssh://nas/data/runs", ("nas", "", "/data/runs")),
        ("ssh://ana@nas.lan:2222/data/", ("ana@nas.lan", "2222", "/data/")),
        ("ssh://nas/~/runs/x", ("nas", "", "runs/x")),
        ("ssh://[fe80::1]/x y", None),
        ("ssh://[fe80::1]/x", ("[fe80::1]", "", "/x")),
        ("ssh://-oProxyCommand=touch/x", None),
        ("ssh://a@-oProxyCommand=touch/x", None),
        ("ssh://ana:secret@nas/x", None),
        ("ssh://nas/", None),
        ("ssh://nas:port/x", None),
    ],
)
def test_an_address_is_taken_apart_and_no_part_is_an_option(address: str, found: tuple[str, str, str] | None) -> None:
    if found is not None:
        assert place(address) == found
        return
    with pytest.raises(CannotUpload, match="is no address of the form ssh://"):
        place(address)


def test_no_command_line_has_a_word_for_a_shell_or_asks() -> None:
    store = Rsync(Upload("", "ssh", "ssh://ana@nas:22/a$(b)/", tool="rsync"), "/bin/rsync")
    words = store.sending("/here")
    assert words[:2] == ["/bin/rsync", "-s"] and words[-3:] == ["--", "/here/", "ana@nas:/a$(b)/"]
    assert "-oBatchMode=yes -oStrictHostKeyChecking=yes" in words[3] and words[3].endswith("-p 22")
    assert store.putting("/x/a[1]*", "a[1]*")[-5:-3] == ["--include=/a\\[1]\\*", "--exclude=*"]


@has_sshd
def test_a_probe_writes_finds_and_removes_just_its_own(far: Far, job: Job, capfd: pytest.CaptureFixture[str]) -> None:
    far.folder.mkdir()
    (far.folder / "another").write_text("x")
    far.probed(job())
    assert [path.name for path in far.folder.iterdir()] == ["another"]
    said = capfd.readouterr().out
    assert f"the upload target ssh://nas{far.folder}/ can be written to" in said and "stays" not in said, said


@has_sshd
def test_no_part_of_a_path_is_read_by_a_shell_there(far: Far, job: Job, tmp_path: Path) -> None:
    folder = tmp_path / "a$(true)b;'c*"
    far.probed(job(), Upload("", "ssh", f"ssh://nas{folder}/", "exact", tool="rsync"))
    assert folder.is_dir() and list(folder.iterdir()) == []


@has_sshd
def test_a_fetch_takes_the_file_of_that_name_and_none_that_it_would_match(far: Far, tmp_path: Path) -> None:
    above = tmp_path / "r[1]*"
    for folder in (above, tmp_path / "r1x"):
        for part in ("a?", "ab"):
            (folder / part).mkdir(parents=True)
            for name in ("m[1].pt", "m1.pt"):
                (folder / part / name).write_text(f"{folder.name}/{part}/{name}")
    back = Back("", "ssh", f"ssh://nas{above}/", ("rsync",), "")
    source = FromSsh(back, str(shutil.which("rsync")))
    got = tmp_path / "got"
    got.mkdir()
    for argv in (source.file("a?/m[1].pt", str(got / "one")), source.folder("a?", str(got / "all"))):
        subprocess.run(argv, check=True, capture_output=True)
    assert (got / "one").read_text() == "r[1]*/a?/m[1].pt"
    assert [(got / "all" / name).read_text() for name in ("m1.pt", "m[1].pt")] == [
        "r[1]*/a?/m1.pt",
        "r[1]*/a?/m[1].pt",
    ]


@has_sshd
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("key", "a job is detached and has no ssh agent: ssh must find a key without a passphrase on that host"),
        ("host key", "this host does not know that key"),
        ("folder", "the folder above must be there: ssh nas 'mkdir -p {above}'"),
        ("no rsync", "the far side needs an rsync"),
        ("chatty", "start files of its account that print nothing"),
        ("gone", "this host does not reach it"),
        ("name", "this host does not reach it"),
    ],
)
def test_a_target_that_cannot_be_used_is_told_with_a_way_out(far: Far, job: Job, fault: str, told: str) -> None:
    config = far.daemon.folder / "ssh_config"
    wanted = far.wanted
    if fault == "key":
        far.script("ssh", f'exec {SSH} -F {config} -oPubkeyAuthentication=no "$@"')
    elif fault == "host key":
        far.script("ssh", f'exec {SSH} -F {config} -oUserKnownHostsFile=/dev/null "$@"')
    elif fault == "folder":
        wanted = Upload("", "ssh", f"ssh://nas{far.folder}/a/b/", "exact", tool="rsync")
    elif fault == "no rsync":
        far.script("ssh", f"exec {SSH} -F {config} nas 'PATH=/nowhere; rsync --server'")
    elif fault == "chatty":
        far.script("ssh", f'echo "Welcome, and have a nice day"; exec {SSH} -F {config} "$@"')
    elif fault == "gone":
        far.script("ssh", f'exec {SSH} -F {config} -oPort=1 "$@"')
    else:
        wanted = Upload("", "ssh", "ssh://no-such-host.invalid/x", "exact", tool="rsync")
    with pytest.raises(SetupFailed) as why:
        far.probed(job(), wanted)
    assert told.format(above=f"{far.folder}/a") in str(why.value), why.value
    assert "rsync error" not in str(why.value) and not far.folder.exists()


@has_sshd
def test_a_transfer_that_is_cut_goes_on_where_it_was(
    far: Far, job: Job, checkpoints: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_targets, "PAUSES_S", ())
    config = far.daemon.folder / "ssh_config"
    far.script("ssh", f'exec {sys.executable} {far.account}/cut.py {SIZE * 2 // 3} {SSH} -F {config} "$@"')
    (far.account / "cut.py").write_text(CUTS)
    result = far.sent(job())
    assert not result.verified and "rsync says" in result.error, result
    partial = far.folder / "step-10/.aicrun-partial/model"
    held = partial.stat().st_size
    assert 0 < held < SIZE and not (far.folder / "aicrun-manifest.json").exists()
    far.script("ssh", f'exec {SSH} -F "$CONFIG" "$@"')
    capfd.readouterr()
    assert far.sent(job()).verified
    said = capfd.readouterr().out
    (line,) = [line for line in said.splitlines() if line.startswith("step-10/model ")]
    assert int(line.rpartition("sent ")[2].rstrip(")")) < SIZE - held + 100_000, said
    assert sorted(path.name for path in far.folder.rglob("*")) == ["aicrun-manifest.json", "model", "state", "step-10"]
    assert (far.folder / "step-10/model").read_bytes() == (checkpoints / "step-10/model").read_bytes()


@has_sshd
@pytest.mark.parametrize("is_cured", [True, False])
def test_what_lies_there_otherwise_is_noticed_though_its_size_agrees(
    far: Far, job: Job, checkpoints: Path, capfd: pytest.CaptureFixture[str], is_cured: bool
) -> None:
    far.folder.mkdir()
    (far.folder / "aicrun-manifest.json").write_text("older")
    spoiled = far.folder / "step-10/state"
    once = f"rm {far.account}/spoil; " if is_cured else ""
    (far.account / "spoil").touch()
    deed = f"[ ! -e {far.account}/spoil ] || {{ {once}printf XX > {spoiled}; }}"
    far.script("rsync", f"""/usr/bin/rsync "$@" || exit; case "$*" in *" --partial-dir="*) {deed};; esac""")
    result = far.sent(job())
    said = capfd.readouterr().out
    if is_cured:
        assert result.verified and "1 file there already" in said, said
        assert "2 of 2 files agree read again there, all by their sizes" in said, said
        return
    assert result.missing == ("step-10/state: its contents differ",) and not result.verified
    assert not (far.folder / "aicrun-manifest.json").exists()


@has_sshd
def test_a_manifest_that_arrived_otherwise_is_no_success(far: Far, job: Job, checkpoints: Path) -> None:
    manifest = far.folder / "aicrun-manifest.json"
    deed = f"[ ! -s {manifest} ] || {{ size=$(wc -c < {manifest}); : > {manifest}; truncate -s $size {manifest}; }}"
    far.script("rsync", f"""/usr/bin/rsync "$@" || exit; case "$*" in *" --partial-dir="*) ;; *) {deed};; esac""")
    assert far.sent(job()).missing == ("aicrun-manifest.json: its contents differ",)
