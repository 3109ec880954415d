"""Which upload stands in for a host, and which checkpoint of it is meant: rules over values, no tool and no machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_reports import report

from aicrun.errors import AicrunError, HostUnreachable, TransferFailed, UsageError
from aicrun.lifecycle.fetch_upload import File, Manifest
from aicrun.lifecycle.find import Found
from aicrun.lifecycle.instead import instead
from aicrun.lifecycle.ledger import Ledger, Uploaded
from aicrun.lifecycle.session import Session
from aicrun.lifecycle.upload_notes import note
from aicrun.lifecycle.upload_parts import is_as_seen, meant_part, parts
from aicrun.spec.model import Inventory, LocalReach, Machine
from aicrun.wire.checkpoint import NO, YES, Checkpoint, Checkpointed
from aicrun.wire.codec import replace
from aicrun.wire.jobs import Client, Upload, UploadResult
from aicrun.wire.upload import Early

RUN_ID = "3f9a1c0e77b2d416"
TO = Upload("s3://bucket/runs/", "s3", f"s3://bucket/runs/{RUN_ID}/", tool="aws", endpoint="https://minio.lan")
SILENT = ("AIC-E593", "lab does not answer")


@pytest.fixture
def session(tmp_path: Path) -> Session:
    def connect(machine: Machine) -> None:
        raise AssertionError(f"{machine.name} is not asked")

    machines = (Machine("lab", LocalReach()), Machine("attic", LocalReach(), down=True))
    ledger = Ledger(str(tmp_path / "ledger.db"))
    return Session(Inventory(machines, "machines.yaml"), connect, ledger, Client("ana", "desk", "0"))  # type: ignore[arg-type]


def known(job: str = "a" * 16, machine: str = "lab", **more: object) -> Uploaded:
    return Uploaded("sft-run", RUN_ID, job, machine, TO, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("machine", "error", "why"),
    [
        ("lab", HostUnreachable(*SILENT), "lab does not answer"),
        ("lab", UsageError("AIC-E003", "no run is called sft-run"), "lab has no record of it any more"),
        ("attic", UsageError("AIC-E003", "no run is called sft-run"), "attic is marked as down"),
        ("old", UsageError("AIC-E003", "no run is called sft-run"), "old is not in machines.yaml any more"),
    ],
)
def test_what_the_ledger_knows_stands_in(session: Session, machine: str, error: AicrunError, why: str) -> None:
    session.ledger.note_uploads([known(machine=machine)])
    for key in ("sft-run", RUN_ID, RUN_ID[:6], "a" * 16, f"sft-run@{machine}"):
        other = instead(session, key, error)
        assert (other.uploaded.upload, other.why) == (TO, why)


def test_what_is_not_known_or_not_meant_stays_the_error_that_it_was(session: Session) -> None:
    error = HostUnreachable(*SILENT)
    with pytest.raises(HostUnreachable) as raised:
        instead(session, "sft-run", error)
    assert raised.value is error and "--from s3://" in error.ways[-1].command
    session.ledger.note_uploads([known()])
    for code in ("AIC-E004", "AIC-E025", "AIC-E006"):
        with pytest.raises(UsageError):
            instead(session, "sft-run", UsageError(code, "typed wrongly"))
    with pytest.raises(HostUnreachable):
        instead(session, "sft-run@attic", error)


def test_an_earlier_upload_is_not_given_out_for_the_job_that_was_started_last(session: Session) -> None:
    session.ledger.note_uploads([known()])
    session.ledger.note("b" * 16, "sft-run", "lab", "started")
    with pytest.raises(HostUnreachable) as raised:
        instead(session, "sft-run", HostUnreachable(*SILENT))
    assert raised.value.ways[-1].command == f"aicrun fetch {'a' * 16}"
    # Named by its own id it is meant.
    assert instead(session, "a" * 16, HostUnreachable(*SILENT)).uploaded == known()


def test_a_look_at_a_run_writes_the_ledger_anew_and_keeps_what_was_told(session: Session) -> None:
    saved = Checkpointed("/w", (Checkpoint("11", "checkpoint-5", complete=YES),))
    done = UploadResult(TO.destination, True, manifest="0" * 64)
    seen = replace(report(), upload=done, upload_request=TO)
    note(session, [("lab", seen)], saved)
    note(session, [("lab", seen), ("lab", replace(seen, job_id="f" * 16, upload=replace(done, verified=False)))])
    (kept,) = session.ledger.uploads(seen.run)
    assert (kept.job_id, kept.upload, kept.manifest, kept.saved) == (seen.job_id, TO, "0" * 64, saved)
    note(session, [("lab", replace(seen, upload=replace(done, manifest="1" * 64)))])
    # What was told then is not of what lies there now.
    assert session.ledger.uploads(seen.run)[0].saved is None


def test_what_is_uploaded_while_the_run_goes_on_is_known_too(session: Session) -> None:
    going = replace(report(), upload=None, upload_request=TO)
    note(session, [("lab", going), ("lab", replace(going, early=Early(trouble="no bucket")))])
    assert session.ledger.uploads(going.run) == ()
    note(session, [("lab", replace(going, early=Early(verified=1)))])
    assert [one.upload for one in session.ledger.uploads(going.run)] == [TO]


def test_a_host_that_answers_and_lost_the_ledger_still_tells_where_it_uploaded(session: Session) -> None:
    done = UploadResult(TO.destination, True)
    found = Found("lab", replace(report(), upload=done, upload_request=TO))
    missing = UsageError("AIC-E024", "no checkpoint is called checkpoint-5")
    other = instead(session, "sft-run", missing, found)
    assert (other.uploaded.upload, other.why) == (TO, "it is not on lab any more")
    # Nor is it there: what the host said counts, and what the target said is told.
    told = other.failed(UsageError("AIC-E024", "there is no such part"))
    assert told is missing and missing.facts == (("uploaded", "there is no such part"),)
    session.ledger.note_uploads([known(found.report.job_id)])
    with pytest.raises(UsageError):
        # What a later upload has left there is not verified.
        instead(session, "sft-run", missing, Found("lab", replace(found.report, upload=None)))


def manifest(*paths: str) -> Manifest:
    return Manifest(
        "s3://bucket/r/", "sft-run", RUN_ID, "a" * 16, tuple(File(path, 1, "0" * 64) for path in paths), "1"
    )


def test_the_checkpoints_of_an_upload_are_its_folders_and_what_lies_at_the_top() -> None:
    assert [part.name for part in parts(manifest("model.bin", "b/x", "b/c/y", "a.pt"))] == ["model.bin", "a.pt", "b"]
    assert [part.name for part in parts(manifest("config.json", "model.bin", "b/x"))] == [".", "b"]


@pytest.mark.parametrize(
    ("paths", "latest"),
    [
        (("checkpoint-9/w", "checkpoint-10/w"), "checkpoint-10"),
        # The second was cut short: others have what a trainer writes last.
        (("checkpoint-9/w", "checkpoint-9/trainer_state.json", "checkpoint-10/w"), "checkpoint-9"),
        (("config.json", "runs/events"), "."),
        (("model.bin",), "model.bin"),
        (("a/w", "b/w"), ""),
    ],
)
def test_the_latest_of_an_upload_that_nobody_told_of(paths: tuple[str, ...], latest: str) -> None:
    found, nobody = manifest(*paths), known("")
    if latest:
        assert meant_part(found, nobody, "latest").name == latest
        return
    with pytest.raises(TransferFailed, match="name it") as raised:
        meant_part(found, nobody, "latest")
    assert raised.value.ways[0].command == "aicrun fetch sft-run a"


def test_what_its_host_told_decides_as_long_as_nothing_was_uploaded_since() -> None:
    rows = (
        Checkpoint("1", "checkpoint-30", complete=NO),
        Checkpoint("2", "checkpoint-20", complete=YES, eval_loss=0.5),
        Checkpoint("3", "checkpoint-10", complete=YES, eval_loss=0.25),
    )
    found = manifest(*(f"checkpoint-{step}/w" for step in (10, 20, 30)))
    told = known(manifest="1", saved=Checkpointed("/w", rows))
    assert meant_part(found, told, "latest").name == "checkpoint-20"
    assert meant_part(found, told, "best").name == "checkpoint-10"
    later = replace_manifest(told)
    assert not is_as_seen(found, later) and meant_part(found, later, "latest").name == "checkpoint-30"
    with pytest.raises(TransferFailed, match="best cannot be told"):
        meant_part(found, later, "best")


def replace_manifest(one: Uploaded) -> Uploaded:
    return Uploaded(one.run, one.run_id, one.job_id, one.machine, one.upload, "2", one.saved)


def test_an_id_is_the_one_that_the_host_tells() -> None:
    from aicrun.agent.checkpoints import _id

    found = manifest("checkpoint-9/w", "checkpoint-10/w")
    assert meant_part(found, known(), _id(RUN_ID, "checkpoint-9")[:5]).name == "checkpoint-9"
    with pytest.raises(UsageError, match="no checkpoint is called checkpoint-8"):
        meant_part(found, known(), "checkpoint-8")
