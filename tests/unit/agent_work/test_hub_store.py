"""Uploads to the hub, with a server that stands in for it and, where it is at hand, with the real tool."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hub_rig
import pytest
from hub_rig import READ_ONLY, TOKEN, Hub

from aicrun.agent import remote_targets, upload_probe
from aicrun.agent.build import SetupFailed
from aicrun.agent.hub_store import place
from aicrun.agent.targets import CannotUpload
from aicrun.agent.upload import upload
from aicrun.wire.jobs import JobRequest, Upload, UploadResult

Job = Callable[..., JobRequest]
NO_REAL = pytest.mark.skipif(hub_rig.hf() is None, reason="no hf at hand: AICRUN_TEST_HF=…/hf, of huggingface_hub")


@pytest.fixture
def hub() -> Iterator[Hub]:
    server = Hub()
    yield server
    server.close()


@pytest.fixture(params=["stand-in", pytest.param("real", marks=NO_REAL)])
def tool(request: pytest.FixtureRequest, hub: Hub, account: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    tools = account / ".local/bin"
    tools.mkdir(parents=True)
    if request.param == "real":
        (tools / "hf").symlink_to(str(hub_rig.hf()))
    else:
        (tools / "hf").write_text(hub_rig.TOOL.replace("PYTHON", sys.executable))
        (tools / "hf").chmod(0o755)
    for name in ("HF_HOME", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    # The part of the service that this stands in for is the older of its two.
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(remote_targets, "PAUSES_S", (0.01,))
    monkeypatch.setattr(upload_probe, "PAUSES_S", ())
    return str(request.param)


@pytest.fixture
def checkpoints(job: Job) -> Path:
    folder = Path(job().checkpoints)
    for step in ("step-10", "step-20"):
        (folder / step).mkdir(parents=True)
        (folder / step / "model.bin").write_bytes(os.urandom(5000))
        (folder / step / "a state.json").write_text(f'"{step}"')
    (folder / "empty").touch()
    return folder


def to(address: str) -> Upload:
    return Upload(address, "hf", address, "exact", tool="hf")


def sent(job: Job, account: Path, address: str = "hf:me/model/runs") -> UploadResult:
    return upload(job(), to(address), str(account), str(account / "scratch"))


def probed(job: Job, account: Path, address: str = "hf:me/model/runs") -> None:
    folder = account / "job"
    folder.mkdir()
    upload_probe.probe(job(), to(address), str(folder), os.environ)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("hf:me/model", ("models", "me/model", "", "main")),
        ("hf:me/model/a/b/@v1.0", ("models", "me/model", "a/b", "v1.0")),
        ("hf:datasets/me/set/x", ("datasets", "me/set", "x", "main")),
        ("hf:spaces/me/app@refs/pr/1", ("spaces", "me/app", "", "refs/pr/1")),
        ("hf:model", None),
        ("hf:-x/model", None),
        ("hf:me/model/a@b@c", None),
    ],
)
def test_an_address_is_taken_apart(address: str, found: tuple[str, ...] | None) -> None:
    if found is not None:
        assert place(address) == found
        return
    with pytest.raises(CannotUpload, match="is no address of the form hf:user/repo"):
        place(address)


def test_everything_arrives_and_each_file_is_proven_by_its_hash(
    tool: str, hub: Hub, job: Job, checkpoints: Path, account: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.files["runs/aicrun-manifest.json"] = b"older"
    result = sent(job, account)
    said = capfd.readouterr().out
    assert result.verified, said
    assert "5 of 5 files agree by their hashes, all by their sizes" in said and TOKEN not in said
    wanted = {f"runs/{path.relative_to(checkpoints)}": path for path in checkpoints.rglob("*") if path.is_file()}
    assert {name: hub.files[name] for name in wanted} == {name: path.read_bytes() for name, path in wanted.items()}
    assert set(hub.files) == {*wanted, ".gitattributes", "runs/aicrun-manifest.json"}
    assert b'"schema": 1' in hub.files["runs/aicrun-manifest.json"]
    assert "aicrun: removing an older manifest" in hub.commits
    capfd.readouterr()
    sends = len(hub.commits)
    assert sent(job, account).verified and "5 files there already" in capfd.readouterr().out
    # The older manifest goes, the new one comes; nothing else is sent.
    assert len(hub.commits) == sends + 2


@pytest.mark.parametrize("name", ["step-10/model.bin", "step-10/a state.json"])
def test_what_arrived_otherwise_is_noticed_though_its_size_agrees(
    tool: str, hub: Hub, job: Job, checkpoints: Path, account: Path, name: str
) -> None:
    hub.spoiled[f"runs/{name}"] = b"x" * (checkpoints / name).stat().st_size
    assert sent(job, account).missing == (f"{name}: its hash differs",)
    assert "runs/aicrun-manifest.json" not in hub.files


def test_a_probe_is_two_commits_and_leaves_nothing(tool: str, hub: Hub, job: Job, account: Path) -> None:
    before = dict(hub.files)
    probed(job, account)
    assert hub.files == before and hub.commits == ["aicrun: checkpoints", "aicrun: removing the probe"]


def test_a_token_of_the_accounts_own_login_is_found(
    tool: str, hub: Hub, job: Job, account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    if tool == "stand-in":
        pytest.skip("it knows no login")
    (account / ".cache/huggingface").mkdir(parents=True)
    (account / ".cache/huggingface/token").write_text(TOKEN + "\n")
    probed(job, account)


@pytest.mark.parametrize(
    ("token", "address", "told"),
    [
        ("hf_another_token", "hf:me/model", "(401) Invalid credentials in Authorization header; hf auth login"),
        (READ_ONLY, "hf:me/model", "hf auth login on that host, or the secret HF_TOKEN for: upload"),
        (TOKEN, "hf:me/gone", "may not see it: hf repos create me/gone --private"),
        (TOKEN, "hf:datasets/me/set/x", "hf repos create me/set --type dataset --private"),
        (TOKEN, "hf:me/model@v9", "there is no me/model with a branch v9"),
    ],
)
def test_what_cannot_be_written_to_is_refused_and_never_made(
    tool: str, hub: Hub, job: Job, account: Path, monkeypatch: pytest.MonkeyPatch, token: str, address: str, told: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(SetupFailed) as why:
        probed(job, account, address)
    assert told in str(why.value) and token not in str(why.value), why.value
    assert hub.commits == [] and (token == READ_ONLY or not any("repos/create" in one for one in hub.asked))


def test_a_dataset_and_a_branch_are_written_to(
    tool: str, job: Job, checkpoints: Path, account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Hub("datasets", "lab")
    try:
        monkeypatch.setenv("HF_ENDPOINT", there.endpoint)
        assert sent(job, account, "hf:datasets/me/model@lab").verified
        assert there.files["step-20/a state.json"] == b'"step-20"' and "aicrun-manifest.json" in there.files
    finally:
        there.close()


def test_a_hub_that_does_not_answer_is_tried_again_and_told(
    tool: str, hub: Hub, job: Job, account: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr(upload_probe, "PAUSES_S", (0.01,))
    with pytest.raises(SetupFailed, match="this host does not reach it"):
        probed(job, account)
    assert capfd.readouterr().out.count("trying again in") == 1
