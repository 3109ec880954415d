"""What everything that runs jobs promises. Each test runs on every implementation and interpreter that is listed."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from pathlib import Path

import pytest
from contract.conftest import RUN_ID, Account
from private_locks import made_private
from support import processes_with, until

from aicrun.errors import AgentBroken, HostRefused, HostUnreachable, PlanStale
from aicrun.hosts.agent_backend import AgentBackend
from aicrun.hosts.backend import Content, Question
from aicrun.hosts.connect import connect
from aicrun.spec.model import LocalReach, Machine, SlurmReach, SshReach
from aicrun.wire.hashes import tree_hash
from aicrun.wire.jobs import JobReport, JobRequest, Source, Upload
from aicrun.wire.status import Status, status_of


def ended(backend: AgentBackend, job_id: str) -> JobReport:
    """The report of the job once it will not change any more."""
    known = ""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        report = backend.wait(job_id, known, 10)
        status = status_of(report).status
        if status.terminal:
            return report
        known = status.value
    raise AssertionError(f"{job_id} did not end")


def started(backend: AgentBackend, request: JobRequest) -> JobReport:
    reserved = backend.reserve(request, True)
    assert (reserved.answer, reserved.reason) == ("ok", "")
    assert reserved.report is not None
    return reserved.report


def to(share: Path, *, probe: bool = True) -> Upload:
    return Upload(f"file:{share}", "file", f"file:{share}", probe=probe)


def refusal(token: str) -> pytest.RaisesExc[HostRefused]:
    return pytest.raises(HostRefused, check=lambda error: error.token == token)


def test_a_source_is_pushed_by_content_and_laid_out(backend: AgentBackend, account: Account) -> None:
    files = {f"f{number}.txt": b"%d" % (number % 40) for number in range(100)}
    hashes = {path: hashlib.sha256(raw).hexdigest() for path, raw in files.items()}
    manifest = json.dumps([[path, "f", hashes[path], len(files[path])] for path in files]).encode()
    tree = tree_hash((path, "f", content) for path, content in hashes.items())
    missing = backend.missing(tree, manifest, tuple(hashes.values()))
    assert sorted(missing) == sorted(set(hashes.values()))
    by_hash = {hashes[path]: raw for path, raw in files.items()}
    backend.put([on_disk(account.home, by_hash[content]) for content in missing])
    assert backend.missing(tree, manifest, tuple(hashes.values())) == ()
    request = account.request(command=("cat f7.txt f99.txt",), source=Source(tree, len(files), 190))
    started(backend, request)
    assert status_of(ended(backend, request.job_id)).status is Status.SUCCEEDED
    assert backend.log(request.job_id, "command", 0, 1000, 0).data == b"719"


def on_disk(folder: Path, raw: bytes) -> Content:
    """A file of this client with these bytes."""
    content = hashlib.sha256(raw).hexdigest()
    path = folder / f"to-send-{content[:16]}"
    path.write_bytes(raw)
    return Content(content, str(path), len(raw))


def test_a_file_that_is_not_what_was_hashed_is_not_sent_and_the_next_connection_goes_on(
    backend: AgentBackend, account: Account
) -> None:
    right, large = on_disk(account.home, b"1"), on_disk(account.home, b"2" * 3_000_000)
    for content, other in ((right, b"2"), (large, b"2" * 2_999_999 + b"3"), (large, b"2" * 2_999_999)):
        Path(content.path).write_bytes(other)
        with pytest.raises(PlanStale, match="changed while"):
            backend.put([content])
    assert set(backend.missing("", b"", (right.hash, large.hash))) == {right.hash, large.hash}
    backend.put([on_disk(account.home, b"1"), on_disk(account.home, b"2" * 3_000_000)])
    assert backend.missing("", b"", (right.hash, large.hash)) == ()


def test_a_source_that_was_not_pushed_is_refused_before_a_start(backend: AgentBackend, account: Account) -> None:
    with refusal("store_incomplete"):
        backend.reserve(account.request(source=Source("e" * 64, 1, 1)), True)
    assert backend.look("sft-run") == ((), ())


def test_a_secret_is_in_the_job_and_in_nothing_that_is_told(backend: AgentBackend, account: Account) -> None:
    request = account.request(command=('echo "with $TOKEN"; [ "$TOKEN" = "a planted value" ]',))
    assert backend.reserve(request, True, {"TOKEN": "a planted value"}).answer == "ok"
    report = ended(backend, request.job_id)
    assert status_of(report).status is Status.SUCCEEDED
    assert backend.log(request.job_id, "command", 0, 1000, 0).data == b"with ***\n"
    assert backend.environment(request.job_id)["TOKEN"] == "***"
    with refusal("secret_refused"):
        backend.reserve(account.request(2), True, {"TOKEN": "short"})


@pytest.mark.parametrize(("command", "status", "code"), [("exit 0", "succeeded", 0), ("exit 7", "failed", 7)])
def test_the_exit_code_is_the_commands_own(
    backend: AgentBackend, account: Account, command: str, status: str, code: int
) -> None:
    request = account.request(command=(command,))
    started(backend, request)
    standing = status_of(ended(backend, request.job_id))
    assert (standing.status.value, standing.code, standing.signal) == (status, code, None)


def test_the_environment_that_is_shown_is_the_one_the_command_had(backend: AgentBackend, account: Account) -> None:
    request = account.request(command=("env -0 | sort -z > seen",))
    started(backend, request)
    assert status_of(ended(backend, request.job_id)).status is Status.SUCCEEDED
    seen = Path(request.workspace, "seen").read_text().rstrip("\0").split("\0")
    had = dict(line.partition("=")[::2] for line in seen)
    shown = backend.environment(request.job_id)
    assert shown["AICRUN_JOB_ID"] == request.job_id
    # The shell adds words of its own; none of ours may be missing or differ.
    assert {name: had.get(name) for name in shown} == shown
    with refusal("not_found"):
        backend.environment("0" * 16)


def test_the_same_id_twice_is_one_job(backend: AgentBackend, account: Account) -> None:
    request = account.request(command=("echo x >> $AICRUN_CHECKPOINT_DIR/runs",))
    for _ in range(3):
        assert backend.reserve(request, True).answer == "ok"
    ended(backend, request.job_id)
    assert backend.reserve(request, True).answer == "ok"
    assert Path(request.checkpoints, "runs").read_text() == "x\n"


def test_another_job_of_a_run_that_stands_is_busy_and_names_it(backend: AgentBackend, account: Account) -> None:
    first = started(backend, account.request(1, command=("sleep 900",)))
    answer = backend.reserve(account.request(2), True)
    assert (answer.answer, answer.report and answer.report.job_id) == ("busy", first.job_id)
    backend.stop(first.job_id, "ana@laptop", 0)


def test_a_reservation_waits_for_its_decision_which_is_written_once(backend: AgentBackend, account: Account) -> None:
    request = account.request()
    reserved = backend.reserve(request, False)
    assert reserved.report is not None
    assert status_of(reserved.report).status is Status.SCHEDULING
    backend.touch(request.job_id)
    assert [report.decision for report in backend.look("sft-run")[0]] == ["undecided"]
    assert backend.confirm(request.job_id)[0] == "go"
    assert backend.withdraw(request.job_id, "too late")[0] == "go"
    assert status_of(ended(backend, request.job_id)).status is Status.SUCCEEDED


def test_a_withdrawn_reservation_never_starts_and_does_not_count(backend: AgentBackend, account: Account) -> None:
    request = account.request()
    backend.reserve(request, False)
    assert backend.withdraw(request.job_id, "a rival was first") == ("no", "a rival was first")
    assert backend.confirm(request.job_id)[0] == "no"
    assert backend.look("sft-run") == ((), ())
    assert started(backend, account.request(2)).job_id == account.request(2).job_id


def test_withdrawing_what_was_never_heard_of_keeps_it_from_starting(backend: AgentBackend, account: Account) -> None:
    request = account.request(9)
    assert backend.withdraw(request.job_id, "gave up")[0] == "no"
    assert backend.reserve(request, True).answer == "no"


def test_a_log_is_read_by_offset_and_by_its_end(backend: AgentBackend, account: Account) -> None:
    request = account.request(command=("for i in 1 2 3 4 5; do echo line $i; done",))
    started(backend, request)
    ended(backend, request.job_id)
    whole = b"".join(b"line %d\n" % number for number in range(1, 6))
    first = backend.log(request.job_id, "command", 0, 10, 0)
    assert (first.data, first.next_offset, first.eof) == (whole[:10], 10, False)
    rest = backend.log(request.job_id, "command", 10, 1000, 0)
    assert (first.data + rest.data, rest.eof) == (whole, True)
    assert backend.log(request.job_id, "command", None, 1000, 2).data == b"line 4\nline 5\n"


def test_following_gives_every_byte_once_while_other_calls_go_on(backend: AgentBackend, account: Account) -> None:
    command = "for i in $(seq 300); do echo $i; done; sleep 0.3; echo last"
    request = account.request(command=(command,))
    started(backend, request)
    until(lambda: any(step.step == "command" for step in backend.job(request.job_id).steps))
    said = b""
    for piece in backend.follow(request.job_id, "command", 0):
        assert piece.offset == len(said)
        said += piece.data
        assert backend.job(request.job_id).job_id == request.job_id
    assert said == b"".join(b"%d\n" % number for number in range(1, 301)) + b"last\n"


def test_a_stop_ends_the_whole_tree(backend: AgentBackend, account: Account) -> None:
    request = account.request(command=("sleep 901 & sleep 902 & wait",))
    started(backend, request)
    mark = f"AICRUN_JOB_ID={request.job_id}"
    until(lambda: len(processes_with(mark)) >= 3)
    backend.stop(request.job_id, "ana@laptop", 1)
    assert status_of(ended(backend, request.job_id)).status is Status.STOPPED
    assert processes_with(mark) == []


def test_stopping_an_ended_job_leaves_it_as_it_is(backend: AgentBackend, account: Account) -> None:
    request = account.request()
    started(backend, request)
    ended(backend, request.job_id)
    assert status_of(backend.stop(request.job_id, "ana@laptop", None)).status is Status.SUCCEEDED


def test_jobs_are_found_by_run_id_and_first_digits_newest_first(backend: AgentBackend, account: Account) -> None:
    ids = []
    for number in (1, 2, 3):
        request = account.request(0xABC0 + number, named=tuple(ids))
        started(backend, request)
        ended(backend, request.job_id)
        ids.append(request.job_id)
    reports, omitted = backend.jobs(limit=2)
    assert ([report.job_id for report in reports], omitted) == ([ids[2], ids[1]], 1)
    assert [report.job_id for report in backend.jobs((ids[0],))[0]] == [ids[0]]
    assert backend.jobs(statuses=("failed",)) == ((), 0)
    for key in ("sft-run", RUN_ID, ids[2], RUN_ID[:15]):
        assert backend.job(key).job_id == ids[2]
    with refusal("not_found"):
        backend.job("no-such-run")


def test_waiting_returns_at_a_change_or_in_time(backend: AgentBackend, account: Account) -> None:
    request = account.request(command=("sleep 900",))
    started(backend, request)
    until(lambda: status_of(backend.job(request.job_id)).status is Status.IN_PROGRESS)
    began = time.monotonic()
    report = backend.wait(request.job_id, "in progress", 0.3)
    assert status_of(report).status is Status.IN_PROGRESS
    assert 0.2 < time.monotonic() - began < 10
    backend.stop(request.job_id, "ana@laptop", 0)
    assert status_of(backend.wait(request.job_id, "in progress", 30)).status is not Status.IN_PROGRESS


def test_an_upload_is_part_of_success(backend: AgentBackend, account: Account) -> None:
    share = account.home / "share/x"
    request = account.request(command=("echo w > $AICRUN_CHECKPOINT_DIR/w.bin",), upload=to(share))
    started(backend, request)
    report = ended(backend, request.job_id)
    assert status_of(report).status is Status.SUCCEEDED
    assert report.upload is not None
    assert (report.upload.verified, report.upload.files) == (True, 1)
    assert (share / "w.bin").read_text() == "w\n"


def test_a_failed_upload_is_repeated_without_the_training(backend: AgentBackend, account: Account) -> None:
    share = account.home / "share"
    share.write_text("a file in the way")
    request = account.request(command=("echo w >> $AICRUN_CHECKPOINT_DIR/w.bin",), upload=to(share / "x", probe=False))
    started(backend, request)
    standing = status_of(ended(backend, request.job_id))
    assert (standing.status, standing.reason) == (Status.FAILED, "upload_failed")
    share.unlink()
    backend.upload(request.job_id, "ana@laptop")
    until(lambda: status_of(backend.job(request.job_id)).status is Status.SUCCEEDED)
    assert (share / "x/w.bin").read_text() == "w\n"


def test_a_required_upload_of_nothing_is_a_failure(backend: AgentBackend, account: Account) -> None:
    request = account.request(upload=to(account.home / "share/x"))
    started(backend, request)
    standing = status_of(ended(backend, request.job_id))
    assert (standing.status, standing.reason) == (Status.FAILED, "upload_failed")
    assert "nothing to upload" in standing.why


def test_supervision_changes_in_place(backend: AgentBackend, account: Account) -> None:
    request = account.request(command=("sleep 900",))
    started(backend, request)
    report = backend.supervise(request.job_id, {"labels": {"a": "b"}}, {"grace_s": 1}, "ana@laptop")
    assert report.supervision == {"labels": {"a": "b"}}
    backend.stop(request.job_id, "ana@laptop", 0)


def test_a_job_is_deleted_only_when_it_ended_and_its_checkpoints_stay(backend: AgentBackend, account: Account) -> None:
    request = account.request(command=("echo w > $AICRUN_CHECKPOINT_DIR/w.bin; sleep 900",))
    started(backend, request)
    with refusal("not_finished"):
        backend.delete(request.job_id, "ana@laptop")
    until(lambda: Path(request.checkpoints, "w.bin").exists())
    backend.stop(request.job_id, "ana@laptop", 0)
    ended(backend, request.job_id)
    backend.delete(request.job_id, "ana@laptop")
    with refusal("not_found"):
        backend.job(request.job_id)
    assert Path(request.checkpoints, "w.bin").exists()


def test_the_run_reaches_the_hosts_notes_and_facts(backend: AgentBackend, account: Account) -> None:
    backend.add_note("Card 2 has a loud fan", "ana@laptop")
    request = account.request(notes="Needs the driver from March.")
    started(backend, request)
    ended(backend, request.job_id)
    until(lambda: "Needs the driver from March." in backend.notes())
    assert backend.notes().startswith("Card 2 has a loud fan\n<!-- aicrun job")
    (measured,) = backend.survey(Question(runs=("sft-run",), cards=False)).measured
    assert (measured["job_id"], measured["status"]) == (request.job_id, "succeeded")


def test_doctor_and_gc_answer_in_rows(backend: AgentBackend, account: Account) -> None:
    findings = backend.doctor(str(account.home))
    assert {"python3", "driver", "state", "data"} <= {row["topic"] for row in findings}
    assert {row["word"] for row in findings} <= {"ok", "note", "bad", "?"}
    request = account.request()
    started(backend, request)
    ended(backend, request.job_id)
    rows = until(lambda: backend.gc(True, 0))
    assert [row["what"] for row in rows] == ["job"]
    assert backend.gc(False, 0) == rows
    assert backend.job(request.job_id).swept


def test_a_secret_of_this_client_is_nowhere_on_the_host(backend: AgentBackend, account: Account) -> None:
    request = account.request(command=("env; sleep 900",))
    started(backend, request)
    until(lambda: b"AICRUN_JOB_ID" in backend.log(request.job_id, "command", 0, 100_000, 0).data)
    assert b"hunter2" not in backend.log(request.job_id, "command", 0, 100_000, 0).data
    assert not processes_with("hunter2hunter2")
    for path in account.home.rglob("*"):
        assert path.is_symlink() or not path.is_file() or b"hunter2" not in path.read_bytes()
    backend.stop(request.job_id, "ana@laptop", 0)


def test_an_agent_that_dies_is_unreachable_once_and_the_run_goes_on(backend: AgentBackend, account: Account) -> None:
    request = account.request(command=("sleep 900",))
    started(backend, request)
    # Over ssh a shell with the same words stands before it.
    found = [pid for pid in processes_with(f"HOME={account.home}") if b"readline" in cmdline(pid)]
    (agent,) = [pid for pid in found if b"python3" in cmdline(pid).split(b"\0")[0]]
    os.kill(agent, signal.SIGKILL)
    with pytest.raises(HostUnreachable) as caught:
        backend.job(request.job_id)
    assert caught.value.code == "AIC-E511"
    assert backend.job(request.job_id).supervised
    backend.stop(request.job_id, "ana@laptop", 0)


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_folder_of_another_agent_under_our_name_is_our_fault_not_the_users(
    backend: AgentBackend, account: Account
) -> None:
    backend.jobs()
    backend.close()
    (place,) = account.home.glob(".local/state/aicrun/*/agents/*/aicrun/agent/doctor.py")
    place.write_bytes(place.read_bytes() + b"# changed\n")
    with pytest.raises((AgentBroken, HostRefused)):
        backend.jobs()


def test_other_ways_to_a_machine_are_refused_by_code() -> None:
    with pytest.raises(HostUnreachable) as caught:
        connect(Machine("lab", SlurmReach(SshReach("login"))))
    assert caught.value.code == "AIC-E590"
    with pytest.raises(HostUnreachable) as caught:
        connect(Machine("lab", SshReach("ana@[::1")))
    assert caught.value.code == "AIC-E509"
    assert connect(Machine("here", LocalReach())).machine == "here"


@pytest.fixture
def own_locks() -> None:
    """Before a daemon is started: it keeps the folders that it was born with."""
    if not made_private():
        pytest.skip("the machine's own lock folder cannot be kept out of the test")


def test_a_drained_machine_says_so_refuses_a_start_and_takes_it_again(
    own_locks: None, backend: AgentBackend, account: Account
) -> None:
    assert backend.survey(Question(cards=False)).drain is None
    found = backend.drain(True, "moving house", "ana@laptop")
    assert found.drain is not None
    assert (found.drain.why, found.drain.by, found.drain.everybody) == ("moving house", "ana@laptop", account.is_root)
    assert backend.survey(Question(cards=False)).drain is not None
    request = account.request(command=("true",))
    with refusal("drained"):
        backend.reserve(request, True)
    assert backend.look("sft-run") == ((), ())
    assert backend.drain(False, "", "ana@laptop").drain is None
    started(backend, request)
    assert status_of(ended(backend, request.job_id)).status is Status.SUCCEEDED
