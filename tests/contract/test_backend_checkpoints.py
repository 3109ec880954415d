"""What every backend does with the checkpoints of a job that has ended."""

from __future__ import annotations

from pathlib import Path

from contract.conftest import Account
from contract.test_backend import ended, refusal, started
from support import until

from aicrun.hosts.agent_backend import AgentBackend


def test_the_checkpoints_of_a_job_go_when_it_ended_and_only_those_that_were_shown(
    backend: AgentBackend, account: Account
) -> None:
    request = account.request(command=("echo w > $AICRUN_CHECKPOINT_DIR/w.bin; sleep 900",))
    started(backend, request)
    until(lambda: Path(request.checkpoints, "w.bin").exists())
    with refusal("not_finished"):
        backend.delete_checkpoints(request.job_id, "ana@laptop")
    backend.stop(request.job_id, "ana@laptop", 0)
    ended(backend, request.job_id)
    shown = backend.delete_checkpoints(request.job_id, "ana@laptop")
    assert (shown.names, shown.bytes) == (("w.bin",), 2) and Path(request.checkpoints, "w.bin").exists()
    with refusal("invalid_request"):
        backend.delete_checkpoints(request.job_id, "ana@laptop", ("other.bin",))
    assert backend.delete_checkpoints(request.job_id, "ana@laptop", shown.names) == shown
    assert not Path(request.checkpoints, "w.bin").exists()
    assert backend.checkpoints(request.job_id).checkpoints == ()
