"""Cards as a driver tells them: the real pynvml over our own library, in the process that the agent would start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_nvml.driver import TWO_CARDS, FakeDriver, can_be_built
from support import P38

from aicrun.agent.cards import LOOKS, LOOKS_WITHIN_S
from aicrun.hosts.bundle import build
from aicrun.wire.codec import from_json, load
from aicrun.wire.facts import Cards

pytestmark = pytest.mark.skipif(not can_be_built(), reason="no C compiler here")

ASK = "import sys; sys.path[:0] = [sys.argv[1]]; from aicrun.agent import cards; from aicrun.wire.codec import dump; "
ASK += "import os; sys.stdout.buffer.write(dump(cards.{way}float(sys.argv[2]), int(sys.argv[3]))))"
# By a process that is started, with any environment, and by a fork of the one that asks.
WAYS = ("cards(os.environ, ", "here(")

Ask = Callable[..., Cards]


@pytest.fixture(scope="session")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agent as it is unpacked on a host, with the pynvml it brings along."""
    folder = tmp_path_factory.mktemp("agent")
    for path, content in build().files:
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return folder


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    return FakeDriver(tmp_path / "driver")


@pytest.fixture(params=WAYS)
def ask(agent: Path, driver: FakeDriver, request: pytest.FixtureRequest) -> Ask:
    """Asks the cards as a host's agent does, in a fresh process."""
    words = ASK.replace("{way}", request.param)

    def asked(
        deadline_s: float = 20.0, python: str = sys.executable, env: dict[str, str] | None = None, looks: int = 1
    ) -> Cards:
        argv = [python, "-I", "-S", "-c", words, str(agent), str(deadline_s), str(looks)]
        environ = dict(os.environ, **(driver.env if env is None else env))
        said = subprocess.run(argv, env=environ, capture_output=True, check=True, timeout=60).stdout
        return from_json(Cards, load(said))

    return asked


@pytest.fixture
def somebody() -> Iterator[int]:
    """A process that lives for the length of a test."""
    process = subprocess.Popen(["sleep", "60"], env={"AICRUN_JOB_ID": "00000000000000aa"})
    yield process.pid
    process.kill()
    process.wait()


@pytest.mark.parametrize("python", [sys.executable, *([str(P38)] if P38 else [])])
def test_two_cards_as_they_are(ask: Ask, python: str) -> None:
    found = ask(python=python)
    assert (found.state, found.driver, found.cuda) == ("devices", "570.124.06", "12.8")
    one, two = found.cards
    assert (one.index, one.uuid, one.model) == (0, "GPU-aaaa", "NVIDIA GeForce RTX 3090")
    assert (one.vram_total_mib, one.vram_free_mib, one.vram_used_mib, one.vram_reserved_mib) == (24576, 24176, 100, 300)
    assert (one.utilization_percent, one.temperature_c, one.power_w, one.display) == (3, 40, 30, True)
    assert (one.compute_capability, one.compute_mode, one.pci_bus_id) == ("8.6", "default", "00000000:01:00.0")
    assert (one.mig, two.mig) == ("unsupported", "off")
    assert two.compute_capability == "8.9"
    assert one.unreadable == {}


def test_a_process_on_a_card_is_named_with_its_user_and_job(ask: Ask, driver: FakeDriver, somebody: int) -> None:
    driver.add(f"holder {somebody} compute 900")
    (process,) = ask().cards[1].processes
    assert (process.pid, process.kind, process.vram_mib, process.name) == (somebody, "compute", 900, "sleep")
    assert (process.user, process.job_id) == (os.environ.get("USER") or "root", "00000000000000aa")
    assert ask().cards[1].vram_free_mib == 49140 - 600 - 900


def test_a_pid_that_does_not_live_keeps_its_row(ask: Ask, driver: FakeDriver) -> None:
    driver.add("process 4194303 compute 10151")
    (process,) = ask().cards[1].processes
    assert (process.pid, process.user, process.name, process.vram_mib) == (4194303, "", "", 10151)


def test_graphics_is_told_apart_from_compute(ask: Ask, driver: FakeDriver, somebody: int) -> None:
    driver.add(f"holder {somebody} graphics 70")
    assert [process.kind for process in ask().cards[1].processes] == ["graphics"]


def test_one_lost_card_hides_no_other(ask: Ask, driver: FakeDriver) -> None:
    driver.write(TWO_CARDS.replace("card GPU-bbbb NVIDIA RTX A6000", "card GPU-bbbb NVIDIA RTX A6000\n  fails 15"))
    found = ask()
    assert [card.state for card in found.cards] == ["ok", "lost"]
    assert found.cards[0].vram_free_mib == 24176
    assert found.cards[1].vram_free_mib is None
    assert found.cards[1].unreadable == {"handle": "lost"}


def test_an_old_driver_without_the_second_memory_question(ask: Ask, driver: FakeDriver) -> None:
    driver.add("answer nvmlDeviceGetMemoryInfo_v2 13")
    one = ask().cards[0]
    assert (one.vram_free_mib, one.vram_used_mib, one.vram_reserved_mib) == (24176, 400, None)


def test_memory_that_cannot_be_read_is_absent_not_zero(ask: Ask, driver: FakeDriver) -> None:
    driver.add("answer nvmlDeviceGetMemoryInfo_v2 3\nanswer nvmlDeviceGetMemoryInfo 3")
    one = ask().cards[0]
    assert (one.state, one.vram_free_mib, one.vram_total_mib, one.utilization_percent) == ("ok", None, None, 3)
    assert one.unreadable == {"vram_free_mib": "not_supported", "vram_total_mib": "not_supported"}


def test_a_process_table_that_cannot_be_read_is_not_empty(ask: Ask, driver: FakeDriver) -> None:
    driver.add("answer nvmlDeviceGetComputeRunningProcesses_v3 4")
    one = ask().cards[0]
    assert (one.processes_listed, one.processes) == (False, ())
    assert one.unreadable == {"processes": "no_permission"}


@pytest.mark.parametrize(
    ("field", "function"),
    [
        ("utilization_percent", "nvmlDeviceGetUtilizationRates"),
        ("temperature_c", "nvmlDeviceGetTemperature"),
        ("power_w", "nvmlDeviceGetPowerUsage"),
        ("uuid", "nvmlDeviceGetUUID"),
        ("pci_bus_id", "nvmlDeviceGetPciInfo_v3"),
        ("compute_capability", "nvmlDeviceGetCudaComputeCapability"),
    ],
)
def test_each_question_fails_alone(ask: Ask, driver: FakeDriver, field: str, function: str) -> None:
    driver.add(f"answer {function} 3")
    one = ask().cards[0]
    assert one.unreadable == {field: "not_supported"}
    assert not getattr(one, field)
    assert one.vram_free_mib == 24176


@pytest.mark.parametrize(("code", "mode"), [(2, "prohibited"), (3, "exclusive_process"), (9, "unknown")])
def test_compute_modes(ask: Ask, driver: FakeDriver, code: int, mode: str) -> None:
    driver.add(f"mode {code}\nmig 1")
    assert (ask().cards[1].compute_mode, ask().cards[1].mig) == (mode, "on")


def test_a_driver_that_was_updated_under_a_running_host_is_unknown(ask: Ask, driver: FakeDriver) -> None:
    driver.add("init 18")
    found = ask()
    assert (found.state, found.reason, found.cards) == ("unknown", "driver_mismatch", ())


def test_any_other_failure_of_the_driver_is_unknown(ask: Ask, driver: FakeDriver) -> None:
    driver.add("init 999")
    assert (ask().state, ask().reason) == ("unknown", "nvml_error")
    driver.write(TWO_CARDS + "answer nvmlDeviceGetCount_v2 999\n")
    assert ask().state == "unknown"


def test_a_driver_that_is_not_loaded_and_no_card_is_none_with_its_reason(ask: Ask, driver: FakeDriver) -> None:
    driver.unload()
    assert (ask().state, ask().reason) == ("none", "driver_not_loaded")


def test_no_library_and_no_card_is_none(ask: Ask) -> None:
    assert (ask(env={}).state, ask(env={}).reason) == ("none", "no_driver")


def test_a_driver_without_cards_is_none(ask: Ask, driver: FakeDriver) -> None:
    driver.write("driver 570.1\ncuda 12080\n")
    assert (ask().state, ask().reason, ask().driver) == ("none", "no_device", "570.1")


def test_a_driver_that_hangs_is_unknown_after_the_deadline(ask: Ask, driver: FakeDriver) -> None:
    driver.add("hang 60000")
    began = time.monotonic()
    found = ask(deadline_s=0.5)
    assert (found.state, found.reason) == ("unknown", "timeout")
    assert time.monotonic() - began < 10


def test_a_slow_driver_is_waited_for(ask: Ask, driver: FakeDriver) -> None:
    driver.add("hang 20")
    assert ask().state == "devices"


NOT_LISTED = "answer nvmlDeviceGetComputeRunningProcesses_v3 4\n"


def test_a_card_whose_processes_cannot_be_listed_is_as_busy_as_the_busiest_of_five_looks(
    ask: Ask, driver: FakeDriver
) -> None:
    driver.write(NOT_LISTED + TWO_CARDS.replace("utilization 3", "utilization 3 0 97 0 0") + "utilization 1 2\n")
    began = time.monotonic()
    one, two = ask(looks=LOOKS).cards
    assert (one.utilization_percent, one.utilization_looks) == (97, 5)
    assert (two.utilization_percent, two.utilization_looks) == (2, 5)
    assert time.monotonic() - began >= LOOKS_WITHIN_S
    assert [card.utilization_looks for card in ask().cards] == [1, 1]


def test_one_look_is_enough_where_processes_are_listed(ask: Ask, driver: FakeDriver) -> None:
    driver.write(TWO_CARDS.replace("utilization 3", "utilization 3 97"))
    assert [(card.utilization_percent, card.utilization_looks) for card in ask(looks=LOOKS).cards] == [(3, 1), (0, 1)]


def test_a_utilization_that_cannot_be_read_is_not_looked_for_again(ask: Ask, driver: FakeDriver) -> None:
    driver.write(NOT_LISTED + TWO_CARDS + "answer nvmlDeviceGetUtilizationRates 3\n")
    one = ask(looks=LOOKS).cards[0]
    assert (one.utilization_percent, one.utilization_looks, one.unreadable["utilization_percent"]) == (
        None,
        0,
        "not_supported",
    )


LOADED = """
import sys; sys.path[:0] = [sys.argv[1]]
from aicrun.agent import cards
is_light = sys.argv[2] == "light"
found = cards._pynvml() if is_light else __import__("pynvml")
left = [name for name in ("ctypes.util", "string", "threading") if is_light and name in sys.modules]
errors = sorted(name for name in dir(found) if name.startswith("NVMLError"))
thread, punctuation = found.threading.Thread.__module__, found.string.punctuation
print(left, sorted(dir(found)), errors, thread, punctuation, type(found.libLoadLock).__name__)
"""


def test_the_package_is_the_same_in_half_of_its_time(agent: Path) -> None:
    def told(how: str) -> bytes:
        argv = [sys.executable, "-I", "-S", "-c", LOADED, str(agent), how]
        return subprocess.run(argv, capture_output=True, check=True, timeout=60).stdout

    assert told("light") == told("plain")
    assert told("light").startswith(b"[] [")
