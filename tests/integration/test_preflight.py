"""The preflight through the real commands, on a simulated card: a torch that sees another one trains nothing."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from fake_nvml.driver import can_be_built
from integration.project import Project
from integration.test_cards import CARD
from support import until

pytestmark = pytest.mark.skipif(not can_be_built(), reason="no C compiler for the simulated driver")

# What the preflight asks of torch, answered from the run's environment; the real one is tried on a real card.
TORCH = """import os
__version__ = "2.8.0"
class version:
    cuda, hip = os.environ.get("TORCH_CUDA", "12.8"), None
class cuda:
    names = [name for name in os.environ.get("TORCH_SEES", "").split("|") if name]
    def init():
        if "TORCH_FAILS" in os.environ:
            raise RuntimeError(os.environ["TORCH_FAILS"])
    def device_count():
        return len(cuda.names)
    def get_device_name(number):
        return cuda.names[number]
    def get_device_capability(number):
        return 8, 6
    def get_arch_list():
        return ["sm_86"]
def ones(size, device):
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0", os.environ["CUDA_VISIBLE_DEVICES"]
    return type("Tensor", (), {"sum": lambda self: self, "item": lambda self: 2.0})()
"""


@pytest.fixture
def box(box: Project, tmp_path: Path) -> Project:
    """With a folder of wheels that has a stand-in for torch."""
    with zipfile.ZipFile(tmp_path / "torch-2.8.0-py3-none-any.whl", "w") as wheel:
        about = "torch-2.8.0.dist-info"
        wheel.writestr("torch.py", TORCH)
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.8.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    (box.folder / "requirements.txt").write_text(f"--no-index\n--find-links {tmp_path}\ntorch\n")
    return box


def apply(box: Project, env: str, more: str = "") -> tuple[int, str]:
    setup = f"setup: {{requirements: requirements.txt, torch_backend: none{more}}}\n"
    box.write("python3 work.py 0", more=f"{CARD}{setup}env: {{{env}}}\n")
    done = box.apply("--follow", "--again")
    return done.returncode, done.stdout + done.stderr


def test_torch_that_sees_the_cards_of_the_run_trains(box: Project) -> None:
    code, said = apply(box, "TORCH_SEES: NVIDIA RTX A6000")
    assert code == 0, said
    assert "preflight  cuda" in said and "built, preflight cuda passed" in said
    log = box.run("logs", "quick", "--step", "preflight").stdout
    assert "driver 570.124.06 (CUDA up to 12.8), torch 2.8.0 for CUDA 12.8" in log
    assert "torch sees the run's 1: NVIDIA RTX A6000" in log


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ("TORCH_SEES: NVIDIA RTX 3090", "the run holds a NVIDIA RTX A6000 there"),
        ('TORCH_SEES: ""', "torch sees 0, the run holds 1"),
        ("TORCH_FAILS: driver too old, TORCH_CUDA: '13.0'", "mend: setup.torch_backend: cu128, or a newer driver"),
    ],
)
def test_torch_that_does_not_trains_nothing_and_the_card_is_free_again(box: Project, env: str, words: str) -> None:
    code, said = apply(box, env)
    assert code == 10 and "preflight_failed" in said.replace(" ", "_"), said
    assert words in " ".join(said.split()), said
    assert box.starts() == []
    assert box.job()["reason"] == "preflight_failed"
    # What is free is found free, and a preflight that is well is enough to go on.
    assert apply(box, "TORCH_SEES: NVIDIA RTX A6000")[0] == 0
    assert len(box.starts()) == 1


def test_a_command_of_ones_own_is_a_preflight_and_none_is_none(box: Project) -> None:
    code, said = apply(box, "TORCH_SEES: x", ", preflight: 'echo \"card $CUDA_VISIBLE_DEVICES\"; exit 4'")
    assert code == 10 and "preflight exit code 4" in said, said
    assert "card 0" in box.run("logs", "quick", "--step", "preflight").stdout
    code, said = apply(box, "TORCH_SEES: x", ", preflight: none")
    assert code == 0 and "2 preflight" not in said, said


def test_a_stop_in_the_preflight_stops_the_run(box: Project) -> None:
    box.write(
        "python3 work.py 0", more=f"{CARD}setup: {{packages: [], preflight: sleep 900}}\n".replace("packages: [], ", "")
    )
    assert box.run("apply", "--yes", "--no-wait").returncode == 0
    until(lambda: box.job().get("phase") == "preflight", 60)
    assert "building" in box.run("list").stdout
    assert box.run("stop", "quick", "--yes", "--grace", "0s").returncode == 0
    assert box.run("wait", "quick").returncode == 11
    assert box.starts() == []
