"""Runs that need cards, on a host with simulated ones: the line, the lease, and who is left when somebody is killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pynvml
import pytest
from agent_rig import Refusal, Rig, lives
from fake_nvml.driver import FakeDriver, can_be_built
from fake_nvml.tool import Tool
from freezer import Freezer
from support import P38, until

from aicrun.agent import leases, lock_folder, tickets
from aicrun.agent.card_users import can_be_known
from aicrun.agent.lock_folder import Places
from aicrun.wire import names
from aicrun.wire.codec import to_json
from aicrun.wire.seen import InLine
from aicrun.wire.status import Status, status_of

A, B = "GPU-aaaa", "GPU-bbbb"
STARTS = int(os.environ.get("AICRUN_RACE_STARTS", "24"))
CLIENTS = 8

pytestmark = pytest.mark.skipif(not can_be_built(), reason="no C compiler for the simulated driver")


class Box:
    """A rig with two cards and a lock folder of its own."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self.locks = Path(tempfile.mkdtemp(prefix="aicrun-test-"))
        self.locks.chmod(0o1777)
        self.driver = FakeDriver(folder / "driver")
        self.rig = Rig(folder, python)
        shutil.copy(pynvml.__file__, self.rig.agent / "pynvml.py")
        self.rig.env.update(self.driver.env, AICRUN_TEST_LOCKS=str(self.locks))
        self.started = 0

    def start(
        self, command: str | tuple[str, ...] = "exec sleep 100", cards: tuple[str, ...] = (A,), **fields: Any
    ) -> str:
        self.started += 1
        # The job's own processes carry the rig's mark too, or a test that kills its keeper would leave them behind.
        name, _, value = self.rig.mark.partition("=")
        env = {name: value, **fields.pop("env", {})}
        request = self.rig.request(f"run-{self.started}", command, cards=cards, env=env, **fields)
        assert self.rig.call("reserve", request=to_json(request), confirm=True)["answer"] == "ok"
        return request.job_id

    def start_at_once(self, count: int, command: tuple[str, ...]) -> list[str]:
        """That many jobs for the first card, by several clients at the same time; their ids."""
        first, self.started = self.started, self.started + count
        name, _, value = self.rig.mark.partition("=")

        def some(number: int) -> list[str]:
            ids = []
            with self.rig.link() as link:
                for one in range(first + number, first + count, CLIENTS):
                    request = self.rig.request(f"run-{one}", command, cards=(A,), env={name: value})
                    assert link.call("reserve", request=to_json(request), confirm=True)[0]["answer"] == "ok"
                    ids.append(request.job_id)
            return ids

        with ThreadPoolExecutor(CLIENTS) as clients:
            return [job for ids in clients.map(some, range(CLIENTS)) for job in ids]

    def status(self, job_id: str) -> Status:
        return self.rig.standing(job_id).status

    def waiting(self, job_id: str) -> Any:
        """Its place in line, once it waits there."""
        until(lambda: self.status(job_id) is Status.ENQUEUED)
        return self.rig.report(job_id).line

    def held(self, card: str = A) -> bool:
        with lock_folder.opened(Places(str(self.locks), lasting=str(self.locks))) as folder:
            return leases.is_held(folder, card)

    def tickets(self) -> int:
        with lock_folder.opened(Places(str(self.locks), lasting=str(self.locks))) as folder:
            return sum(one.live for one in tickets.read(folder))

    def close(self) -> None:
        self.rig.close()
        shutil.rmtree(self.locks)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    host = Box(tmp_path)
    yield host
    host.close()


def test_two_runs_for_one_card_go_one_after_the_other(box: Box) -> None:
    first = box.start()
    box.rig.running(first)
    second = box.start("true")
    line = box.waiting(second)
    assert (line.position, line.holder_run, line.holder_job_id) == (1, "run-1", first)
    assert line.holder_age_s is not None
    assert "run-1" in line.why
    box.rig.call("stop", job_id=first, by="t", grace_s=1)
    assert box.rig.ended(second).card_allocated
    assert box.status(second) is Status.SUCCEEDED
    assert (box.held(), box.tickets()) == (False, 0)


@pytest.mark.skipif(P38 is None, reason="no Python 3.8 here")
def test_the_same_on_python_3_8(tmp_path: Path) -> None:
    host = Box(tmp_path, str(P38))
    try:
        first = host.start("sleep 0.5")
        second = host.start("true")
        host.rig.ended(second)
        assert [host.status(job) for job in (first, second)] == [Status.SUCCEEDED] * 2
        assert (host.held(), host.tickets()) == (False, 0)
    finally:
        host.close()


def test_a_job_finds_its_card_as_device_0_in_pci_order(box: Box) -> None:
    job = box.start("env", cards=(B,), env={"CUDA_DEVICE_ORDER": "x"})
    box.rig.ended(job)
    env = dict(row.split("=", 1) for row in box.rig.log(job).decode().splitlines() if "=" in row)
    assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert env["CUDA_VISIBLE_DEVICES"] == "1"
    assert (env["AICRUN_GPU_UUID"], env["AICRUN_GPU_UUIDS"], env["AICRUN_GPU_COUNT"]) == (B, B, "1")


def test_wait_0_refuses_and_names_the_holder(box: Box) -> None:
    first = box.start()
    box.rig.running(first)
    with pytest.raises(Refusal) as refusal:
        box.start(queue_wait_s=0)
    assert refusal.value.token == "gpu_busy"
    facts = refusal.value.facts
    assert (facts["run"], facts["job"], facts["account"]) == ("run-1", first, "root")
    assert int(facts["pid"]) == box.rig.keeper(first)
    assert float(facts["age_s"]) >= 0
    assert box.tickets() == 1


def test_who_waits_too_long_is_rejected(box: Box) -> None:
    box.rig.running(box.start())
    late = box.start(queue_wait_s=1)
    report = box.rig.ended(late)
    assert box.rig.standing(late).reason == "queue timeout"
    assert not report.card_allocated
    assert box.tickets() == 1


def test_a_waiting_job_is_stopped_or_leaves_the_line_and_the_next_moves_up(box: Box) -> None:
    first = box.start()
    box.rig.running(first)
    stopped, left, third = box.start(), box.start(), box.start("true")
    assert box.waiting(third).position == 3
    box.rig.call("stop", job_id=stopped, by="t", grace_s=1)
    box.rig.ended(stopped)
    assert box.status(stopped) is Status.STOPPED
    assert not box.rig.standing(stopped).card_allocated
    box.waiting(left)
    assert box.rig.call("unqueue", job_id=left, by="t")["decision"] == "no"
    assert box.rig.ended(left).decision == "no"
    until(lambda: box.rig.report(third).line.position == 1)
    assert box.rig.call("unqueue", job_id=first, by="t")["decision"] == "go"
    box.rig.call("stop", job_id=first, by="t", grace_s=1)
    assert box.rig.ended(third).card_allocated
    assert box.rig.standing(first).card_allocated


def test_a_job_of_two_cards_is_not_passed_on_either_and_a_dead_waiter_is_skipped(box: Box) -> None:
    first = box.start(cards=(A,))
    box.rig.running(first)
    both = box.start("sleep 0.3", cards=(A, B))
    box.waiting(both)
    late = box.start("true", cards=(B,))
    assert box.waiting(late).ahead == both
    os.kill(box.rig.keeper(both), signal.SIGKILL)
    assert box.rig.ended(late).card_allocated
    assert box.held(A)


def test_priority_counts_within_the_account(box: Box) -> None:
    first = box.start()
    box.rig.running(first)
    low, high = box.start("sleep 0.2"), box.start("sleep 0.2", priority=5)
    assert box.waiting(high).position == 1
    until(lambda: box.rig.report(low).line.position == 2)
    box.rig.call("stop", job_id=first, by="t", grace_s=1)
    box.rig.ended(low)
    begun = [json.loads((box.rig.step(job) / names.STEP_START).read_text())["started_at"] for job in (high, low)]
    assert begun == sorted(begun)


@pytest.mark.skipif(not can_be_known(), reason="the driver's pids are not this namespace's")
def test_a_job_that_holds_its_card_behind_a_stranger_can_still_leave_the_line(box: Box) -> None:
    stranger = subprocess.Popen(["sleep", "100"])
    plain = (box.driver.folder / "nvml.state").read_text()
    box.driver.write(plain.replace("card GPU-bbbb", f"  holder {stranger.pid} compute 900\ncard GPU-bbbb"))
    job = box.start("true")
    assert f"pid {stranger.pid}" in box.waiting(job).why
    assert box.held()
    assert box.rig.call("unqueue", job_id=job, by="t")["decision"] == "no"
    assert box.rig.ended(job).decision == "no"
    until(lambda: not box.held())
    stranger.kill()
    stranger.wait()
    assert not box.rig.standing(job).card_allocated


@pytest.mark.skipif(not can_be_known(), reason="the driver's pids are not this namespace's")
def test_a_stranger_on_the_card_is_named_and_waited_for(box: Box) -> None:
    stranger = subprocess.Popen(["sleep", "100"])
    plain = (box.driver.folder / "nvml.state").read_text()
    box.driver.write(plain.replace("card GPU-bbbb", f"  holder {stranger.pid} compute 900\ncard GPU-bbbb"))
    with pytest.raises(Refusal) as refusal:
        box.start(queue_wait_s=0)
    assert (refusal.value.token, str(stranger.pid) in refusal.value.message) == ("gpu_busy", True)
    job = box.start("true")
    assert f"pid {stranger.pid} of root, 900 MiB" in box.waiting(job).why
    for amount in (907, 914):
        box.driver.write(plain.replace("card GPU-bbbb", f"  holder {stranger.pid} compute {amount}\ncard GPU-bbbb"))
        until(lambda: f"{amount} MiB" in box.waiting(job).why)  # noqa: B023  used at once
    # What it holds now is told, and no news each time.
    assert [one.event for one in box.rig.report(job).events].count("card_busy") == 1
    stranger.kill()
    stranger.wait()
    box.rig.ended(job)
    assert box.status(job) is Status.SUCCEEDED


def test_a_worker_that_closed_its_descriptors_keeps_the_next_job_out(box: Box) -> None:
    detached = "import os,time,sys\nos.setsid()\nos.closerange(0,100)\ntime.sleep(100)"
    script = f"import subprocess,sys,time;subprocess.Popen([sys.executable,'-c',{detached!r}]);time.sleep(100)"
    job = box.start((sys.executable, "-c", script))
    main = box.rig.running(job)
    worker = until(lambda: next((pid for pid in _below(main) if pid), 0))
    second = box.start("true")
    box.waiting(second)
    for pid in (box.rig.keeper(job), box.rig.pump(job, main), main):
        os.kill(pid, signal.SIGKILL)
    until(lambda: str(worker) in box.rig.report(second).line.why)
    assert lives(worker)
    os.kill(worker, signal.SIGKILL)
    box.rig.ended(second)
    assert box.status(second) is Status.SUCCEEDED


def test_the_card_stays_held_until_the_last_of_keeper_pump_and_command_is_gone(box: Box) -> None:
    job = box.start()
    main = box.rig.running(job)
    victims = [box.rig.keeper(job), box.rig.pump(job, main), main]
    for pid in victims:
        opened = [os.path.basename(os.readlink(one)) for one in Path(f"/proc/{pid}/fd").iterdir()]
        assert f"{A}.lock" in opened
        assert any(name.startswith((".t-", "t-")) for name in opened)
    second = box.start("true")
    box.waiting(second)
    for pid in victims:
        assert box.held()
        assert box.waiting(second).holder_job_id == job
        os.kill(pid, signal.SIGKILL)
    box.rig.ended(second)
    assert box.status(second) is Status.SUCCEEDED
    assert box.tickets() == 0


@pytest.mark.parametrize("victim", ["pump", "command"])
def test_pump_or_command_killed_alone_frees_the_card_only_with_the_tree(box: Box, victim: str) -> None:
    job = box.start()
    main = box.rig.running(job)
    os.kill(box.rig.pump(job, main) if victim == "pump" else main, signal.SIGKILL)
    if victim == "pump":
        assert box.held()
        box.rig.call("stop", job_id=job, by="t", grace_s=1)
    box.rig.ended(job)
    until(lambda: not box.held())
    assert box.tickets() == 0


def test_a_lock_file_taken_away_while_held_is_explained_and_gives_no_second_holder(box: Box) -> None:
    first = box.start()
    box.rig.running(first)
    (box.locks / "aicrun/v1" / f"{A}.lock").unlink()
    with pytest.raises(Refusal) as refusal:
        box.start()
    assert refusal.value.token == "no_lock"
    assert "unlinked or replaced while run run-1 of root holds its card" in refusal.value.message


@pytest.mark.parametrize("murders", [False, True], ids=["plain", "kill -9"])
def test_24_starts_for_one_card_never_two_on_it(box: Box, murders: bool) -> None:
    """Each command makes a folder that can be made once only; a killed one leaves it to whoever finds it dead."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    choice = random.Random(seed)
    arena = box.rig.home / "arena"
    script = (
        "import os,sys,time\n"
        "p=sys.argv[1]\n"
        "for _ in range(2):\n"
        "  try: os.symlink(str(os.getpid()),p); break\n"
        "  except FileExistsError:\n"
        "    other=os.readlink(p)\n"
        "    if os.path.exists('/proc/'+other) and ') Z' not in open('/proc/'+other+'/stat').read():\n"
        "      os.mkdir(p+'.two'); sys.exit(3)\n"
        "    os.unlink(p)\n"
        "time.sleep(0.02)\n"
        "os.unlink(p)\n"
    )
    # More of them by hand: AICRUN_RACE_ROUNDS=50 AICRUN_RACE_STARTS=100.
    rounds = int(os.environ.get("AICRUN_RACE_ROUNDS", "8"))
    for _ in range(rounds):
        jobs = box.start_at_once(STARTS, (sys.executable, "-S", "-c", script, str(arena)))
        for job in choice.sample(jobs, 6) if murders else ():
            _murder(box, job, choice)
        for job in jobs:
            box.rig.ended(job, 300)
            assert not arena.with_name("arena.two").exists(), seed
        until(lambda: not box.held(), 30)
        assert box.tickets() == 0, seed


def _murder(box: Box, job: str, choice: random.Random) -> None:
    try:
        pids = [box.rig.keeper(job)]
        start = box.rig.step(job) / names.STEP_START
        if start.exists():
            pids.append(int(json.loads(start.read_text())["pid"]))
        os.kill(choice.choice(pids), signal.SIGKILL)
    except (OSError, ValueError):
        return


def _below(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_where_nobody_can_list_processes_the_history_says_that_the_card_was_not_looked_at(box: Box) -> None:
    listed = box.start("true")
    box.rig.ended(listed)
    box.driver.add("answer nvmlDeviceGetComputeRunningProcesses_v3 4")
    blind = box.start("true")
    box.rig.ended(blind)
    found = {
        job: [one for one in box.rig.report(job).events if one.event == "card_unverified"] for job in (listed, blind)
    }
    assert found[listed] == []
    assert [one.detail for one in found[blind]] == ["nobody can list the processes on card 0 here"]


def test_a_stranger_keeps_a_card_also_where_only_nvidia_smi_tells_of_him(tmp_path: Path) -> None:
    box = Box(tmp_path)
    tool = Tool(tmp_path / "bin")
    del box.rig.env["LD_LIBRARY_PATH"]
    box.rig.env.update(tool.env)
    try:
        stranger = subprocess.Popen(["sleep", "100"])
        (tool.folder / "apps").write_text(f"{A}, {stranger.pid}, 900\n")
        job = box.start("true")
        until(lambda: f"pid {stranger.pid}" in (box.rig.report(job).line or InLine(())).why, 60)
        (tool.folder / "apps").unlink()
        assert box.status(job) is Status.ENQUEUED
        assert box.rig.ended(job, 60).card_allocated
        assert box.status(job) is Status.SUCCEEDED
    finally:
        stranger.kill()
        stranger.wait()
        box.close()


def test_the_card_of_a_tree_that_cannot_be_ended_stays_held(box: Box, freezer: Freezer) -> None:
    box.rig.env["AICRUN_TEST_STUCK_S"] = "2"
    job = box.start(("/bin/sleep", "100"))
    pid = box.rig.running(job)
    until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
    freezer.freeze(pid)
    box.rig.call("stop", job_id=job, by="t", grace_s=0)
    until(lambda: box.status(job) is Status.STOP_FAILED)
    assert box.held()
    with pytest.raises(Refusal, match="gpu_busy"):
        box.start(queue_wait_s=0)
    freezer.thaw()
    assert status_of(box.rig.ended(job)).status is Status.STOPPED
    until(lambda: not box.held())
